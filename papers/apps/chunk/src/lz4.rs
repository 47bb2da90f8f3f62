//! LZ4 codec with independent blocks of 64 KiB, which a device unpacks in parallel.
//!
//! ```text
//! lengths of blocks, 4 bytes each │ blocks
//! ```
//!
//! A block that LZ4 does not make shorter is stored plain. Its length equals its unpacked length, which an LZ4 block
//! here never has. Lengths are little-endian, as everywhere in LZ4.

use crate::ChunkError;

/// Bytes of an unpacked block.
pub const BLOCK: usize = 64 << 10;

/// Packs `raw`; returns the packed length if it is shorter.
pub fn pack(raw: &[u8], to: &mut [u8]) -> Option<usize> {
    let blocks = raw.len().div_ceil(BLOCK);
    let mut place = 4 * blocks;
    let end = raw.len().min(to.len());
    // A block may become longer before the codec detects it.
    let mut room = vec![0; lz4_flex::block::get_maximum_output_size(BLOCK.min(raw.len()))];
    for (at, block) in raw.chunks(BLOCK).enumerate() {
        let packed = lz4_flex::block::compress_into(block, &mut room).ok().filter(|packed| *packed < block.len());
        let packed = packed.map_or(block, |packed| &room[..packed]);
        if place + packed.len() >= end {
            return None;
        }
        to[4 * at..][..4].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        to[place..][..packed.len()].copy_from_slice(packed);
        place += packed.len();
    }
    (place < end).then_some(place)
}

/// Unpacks into `raw`, which has the unpacked length.
///
/// # Errors
/// Returns [`ChunkError::Length`] or [`ChunkError::Block`] if the packed data is malformed.
pub fn unpack(packed: &[u8], raw: &mut [u8]) -> Result<(), ChunkError> {
    let lengths = 4 * raw.len().div_ceil(BLOCK);
    let wrong = ChunkError::Length { got: packed.len(), expected: lengths };
    let (lengths, mut rest) = packed.split_at_checked(lengths).ok_or(wrong.clone())?;
    for (at, (to, length)) in raw.chunks_mut(BLOCK).zip(lengths.as_chunks::<4>().0).enumerate() {
        let bad = ChunkError::Block { block: at };
        let length = u32::from_le_bytes(*length) as usize;
        let (block, after) = rest.split_at_checked(length).ok_or(bad.clone())?;
        rest = after;
        if block.len() == to.len() {
            to.copy_from_slice(block);
        } else if lz4_flex::block::decompress_into(block, to).ok() != Some(to.len()) {
            return Err(bad);
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong) }
}
