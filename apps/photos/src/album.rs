//! Photos of every server, and the expected answers: all of them derive from a photo's number.

use crate::pb::{Photo, Picture};

/// Number of photos in the album, numbered from 0.
pub const PHOTOS: u32 = 120;
/// Width and height of a photo in pixels.
const WIDTH: u32 = 32;
const HEIGHT: u32 = 24;
/// Reduction of a thumbnail in each direction.
const SHRINK: u32 = 4;
/// Words of titles; one of each list.
const SUBJECTS: [&str; 6] = ["whale", "tower", "harbour", "bridge", "garden", "switch"];
const TIMES_OF_DAY: [&str; 4] = ["dawn", "noon", "dusk", "night"];

/// Title of a photo, whose words find it.
#[must_use]
pub fn title(id: u32) -> String {
    let of = |words: &[&'static str], by: u32| words[(id / by) as usize % words.len()];
    format!("{} at {}", of(&SUBJECTS, 1), of(&TIMES_OF_DAY, SUBJECTS.len() as u32))
}

/// Photos that a word finds.
#[must_use]
pub fn find(word: &str) -> Vec<u32> {
    (0..PHOTOS).filter(|id| title(*id).split(' ').any(|known| known == word)).collect()
}

/// Word that finds some photos, in rotation.
#[must_use]
pub fn word(nth: u64) -> &'static str {
    let words = SUBJECTS.len() + TIMES_OF_DAY.len();
    let at = (nth % words as u64) as usize;
    if at < SUBJECTS.len() { SUBJECTS[at] } else { TIMES_OF_DAY[at - SUBJECTS.len()] }
}

/// Photo of this number; `None` if there is none.
#[must_use]
pub fn photo(id: u32) -> Option<Photo> {
    (id < PHOTOS).then(|| Photo { id, title: title(id), picture: Some(picture(id)) })
}

/// Thumbnail of a photo: each pixel is the mean of a square.
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
    // Rings around a point that depends on the photo.
    let (left, top) = (id % WIDTH, id / 5 % HEIGHT);
    let pixel = |x: u32, y: u32| (x.abs_diff(left).pow(2) + y.abs_diff(top).pow(2) + id) as u8;
    Picture { width: WIDTH, grey: (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| pixel(x, y))).collect() }
}
