//! Codec for 32-bit words with few significant bits, such as columns of numbers, indices, samples and times.
//!
//! ```text
//! block headers (one per 128 words): base 4 · width 1 · rows 3 │ rows, 16 bytes each │ rest (fewer than 512 bytes)
//! ```
//!
//! A block of 128 words consists of 32 *rows* of four *lanes*. Each word is replaced by its difference from the
//! smallest word of the block (frame of reference), or from the word one row before in its lane, zigzag-encoded
//! (delta). The block uses the variant that needs fewer bits. The 32 values of each lane are concatenated with this bit
//! width, and the words of the lanes lie side by side in rows of 16 bytes. A block that needs all 32 bits keeps its
//! length. Blocks can be packed and unpacked in parallel: the eight bytes of block header contain the index of the
//! block's first row.
//!
//! Little-endian, like the words.

use crate::ChunkError;

/// Words per block.
pub const WORDS: usize = 128;
/// Bytes per block.
pub const BLOCK: usize = 4 * WORDS;
/// Bytes of a block header.
pub const ABOUT: usize = 8;
/// Bytes of a row.
pub const ROW: usize = 16;
/// Flag in the width field for differences from the row before.
const DELTA: u8 = 64;

type Row = [u32; 4];
type Block = [Row; 32];

/// Packs `raw`; returns the packed length if it is shorter.
pub fn pack(raw: &[u8], to: &mut [u8]) -> Option<usize> {
    let (blocks, rest) = raw.as_chunks::<BLOCK>();
    let (mut row, about) = (0_usize, ABOUT * blocks.len());
    // Packing stops once the result cannot become shorter.
    let end = raw.len().min(to.len());
    for (at, bytes) in blocks.iter().enumerate() {
        let mut block = read(bytes);
        let (base, width) = narrow(&mut block);
        let place = about + ROW * row;
        let rows = usize::from(width & !DELTA);
        if place + ROW * rows + rest.len() >= end {
            return None;
        }
        let start = (row as u32).to_le_bytes();
        to[ABOUT * at..][..4].copy_from_slice(&base.to_le_bytes());
        to[ABOUT * at + 4..][..4].copy_from_slice(&[width, start[0], start[1], start[2]]);
        squeeze(&block, rows as u32, &mut to[place..][..ROW * rows]);
        row += rows;
    }
    let place = about + ROW * row;
    if place + rest.len() >= end {
        return None;
    }
    to[place..][..rest.len()].copy_from_slice(rest);
    Some(place + rest.len())
}

/// Unpacks into `raw`, which has the unpacked length.
///
/// # Errors
/// Returns [`ChunkError::Length`] or [`ChunkError::Block`] if the packed data is malformed.
pub fn unpack(packed: &[u8], raw: &mut [u8]) -> Result<(), ChunkError> {
    let (blocks, rest) = raw.as_chunks_mut::<BLOCK>();
    let about = ABOUT * blocks.len();
    let wrong = ChunkError::Length { got: packed.len(), expected: about + rest.len() };
    let rows = packed.len().checked_sub(about + rest.len()).filter(|bytes| bytes.is_multiple_of(ROW)).ok_or(wrong)?;
    let (about, packed) = packed.split_at(about);
    let (rows, tail) = packed.split_at(rows);
    rest.copy_from_slice(tail);
    let (about, rows) = (about.as_chunks::<ABOUT>().0, rows.as_chunks::<ROW>().0);
    for (at, (block, about)) in blocks.iter_mut().zip(about).enumerate() {
        let base = u32::from_le_bytes([about[0], about[1], about[2], about[3]]);
        let start = u32::from_le_bytes([about[5], about[6], about[7], 0]) as usize;
        let (width, delta) = (about[4] & !DELTA, about[4] & DELTA != 0);
        let rows = (width <= 32).then(|| rows.get(start..start + usize::from(width))).flatten();
        let rows = rows.ok_or(ChunkError::Block { block: at })?;
        let mut values = expand(rows, u32::from(width));
        widen(&mut values, base, delta);
        write(&values, block);
    }
    Ok(())
}

fn read(bytes: &[u8; BLOCK]) -> Block {
    let mut block = [[0; 4]; 32];
    for (word, bytes) in block.as_flattened_mut().iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    block
}

fn write(block: &Block, bytes: &mut [u8; BLOCK]) {
    for (word, bytes) in block.as_flattened().iter().zip(bytes.as_chunks_mut::<4>().0) {
        *bytes = word.to_le_bytes();
    }
}

/// Subtracts the base, or the row before, from each word; returns the base, and the remaining width, with [`DELTA`] for
/// differences.
fn narrow(block: &mut Block) -> (u32, u8) {
    let (mut least, mut greatest, mut steps) = ([u32::MAX; 4], [0; 4], [0; 4]);
    let mut before = [block[0][0]; 4];
    for row in &*block {
        for lane in 0..4 {
            least[lane] = least[lane].min(row[lane]);
            greatest[lane] = greatest[lane].max(row[lane]);
            steps[lane] |= folded(row[lane].wrapping_sub(before[lane]));
        }
        before = *row;
    }
    let (least, greatest) = (least.into_iter().fold(u32::MAX, u32::min), greatest.into_iter().fold(0, u32::max));
    let spread = bits(greatest - least);
    let step = bits(steps[0] | steps[1] | steps[2] | steps[3]);
    if spread <= step {
        for word in block.as_flattened_mut() {
            *word -= least;
        }
        return (least, spread);
    }
    let first = block[0][0];
    for row in (0..32).rev() {
        let before = if row == 0 { [first; 4] } else { block[row - 1] };
        for (word, before) in block[row].iter_mut().zip(before) {
            *word = folded(word.wrapping_sub(before));
        }
    }
    (first, step | DELTA)
}

/// Inverse of [`narrow`].
fn widen(block: &mut Block, base: u32, delta: bool) {
    if !delta {
        return block.as_flattened_mut().iter_mut().for_each(|word| *word = word.wrapping_add(base));
    }
    let mut before = [base; 4];
    for row in block {
        for (word, before) in row.iter_mut().zip(&mut before) {
            *before = before.wrapping_add((*word >> 1) ^ (*word & 1).wrapping_neg());
            *word = *before;
        }
    }
}

/// Zigzag encoding: 0, -1, 1, -2 … become 0, 1, 2, 3 …
const fn folded(step: u32) -> u32 {
    (step << 1) ^ ((step as i32 >> 31) as u32)
}

const fn bits(value: u32) -> u8 {
    (32 - value.leading_zeros()) as u8
}

/// Concatenates the values of a block with this width.
fn squeeze(block: &Block, width: u32, to: &mut [u8]) {
    if width == 0 {
        return;
    }
    let mut rows = to.as_chunks_mut::<ROW>().0.iter_mut();
    let (mut row, mut filled) = ([0_u32; 4], 0);
    for values in block {
        for (word, value) in row.iter_mut().zip(values) {
            *word |= value << filled;
        }
        filled += width;
        if filled >= 32 {
            if let Some(bytes) = rows.next() {
                for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(row) {
                    *bytes = word.to_le_bytes();
                }
            }
            filled -= 32;
            // Bits of these values that are not yet in a row.
            let said = width - filled;
            for (word, value) in row.iter_mut().zip(values) {
                *word = value.checked_shr(said).unwrap_or(0);
            }
        }
    }
}

/// Inverse of [`squeeze`]: reads as many rows as the width.
fn expand(rows: &[[u8; ROW]], width: u32) -> Block {
    let mut block = [[0; 4]; 32];
    if width == 0 {
        return block;
    }
    let mask = u32::MAX >> (32 - width);
    let word = |at: usize, lane: usize| {
        let bytes = rows.get(at).map_or([0; 4], |row| row.as_chunks::<4>().0[lane]);
        u32::from_le_bytes(bytes)
    };
    for (at, values) in block.iter_mut().enumerate() {
        let bit = at as u32 * width;
        let (row, shift) = ((bit / 32) as usize, bit % 32);
        for (lane, value) in values.iter_mut().enumerate() {
            let low = word(row, lane) >> shift;
            let high = if shift + width > 32 { word(row + 1, lane) << (32 - shift) } else { 0 };
            *value = (low | high) & mask;
        }
    }
    block
}
