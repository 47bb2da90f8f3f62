//! The photos, which every server has, and what each answer has to be: all of it follows from a photo's number.

use crate::pb::{Photo, Picture};

/// Photos in the album, numbered from 0.
pub const PHOTOS: u32 = 120;
/// Pixels of a photo's row, and rows.
const WIDTH: u32 = 32;
const HEIGHT: u32 = 24;
/// A thumbnail has one pixel for so many in a row, and as many rows.
const SHRINK: u32 = 4;
/// What photos show; one word of each list.
const WHAT: [&str; 6] = ["whale", "tower", "harbour", "bridge", "garden", "switch"];
const WHEN: [&str; 4] = ["dawn", "noon", "dusk", "night"];

/// What a photo is called: its words are those that it is found by.
#[must_use]
pub fn title(id: u32) -> String {
    let of = |words: &[&'static str], by: u32| words[(id / by) as usize % words.len()];
    format!("{} at {}", of(&WHAT, 1), of(&WHEN, WHAT.len() as u32))
}

/// The photos that a word finds.
#[must_use]
pub fn find(word: &str) -> Vec<u32> {
    (0..PHOTOS).filter(|id| title(*id).split(' ').any(|known| known == word)).collect()
}

/// A word that finds some photos; each in its turn.
#[must_use]
pub fn word(nth: u64) -> &'static str {
    let words = WHAT.len() + WHEN.len();
    let at = (nth % words as u64) as usize;
    if at < WHAT.len() { WHAT[at] } else { WHEN[at - WHAT.len()] }
}

/// A photo; `None`: there is none of this number.
#[must_use]
pub fn photo(id: u32) -> Option<Photo> {
    (id < PHOTOS).then(|| Photo { id, title: title(id), picture: Some(picture(id)) })
}

/// A photo made smaller: each pixel is the mean of a square.
#[must_use]
pub fn thumbnail(id: u32) -> Option<Picture> {
    let Picture { width, grey } = photo(id)?.picture?;
    let (columns, rows) = (width / SHRINK, HEIGHT / SHRINK);
    let mean = |row: u32, column: u32| {
        let square = (0..SHRINK * SHRINK).map(|at| {
            let (y, x) = (row * SHRINK + at / SHRINK, column * SHRINK + at % SHRINK);
            u32::from(grey[(y * width + x) as usize])
        });
        (square.sum::<u32>() / (SHRINK * SHRINK)) as u8
    };
    let pixels = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    Some(Picture { width: columns, grey: pixels.map(|(row, column)| mean(row, column)).collect() })
}

fn picture(id: u32) -> Picture {
    // Rings around a point that is another one in each photo.
    let (left, top) = (id % WIDTH, id / 5 % HEIGHT);
    let pixel = |x: u32, y: u32| (x.abs_diff(left).pow(2) + y.abs_diff(top).pow(2) + id) as u8;
    Picture { width: WIDTH, grey: (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| pixel(x, y))).collect() }
}
