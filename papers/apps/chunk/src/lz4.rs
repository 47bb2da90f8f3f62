//! LZ4, in blocks of 64 KiB that know nothing of each other, so that a device unpacks them side by side.
//!
//! ```text
//! bytes of block 4 × n   then the blocks
//! ```
//!
//! A block that does not get shorter is there as it is: it has as many bytes as it unpacks to, which LZ4's own never has
//! here. Lengths are little-endian, as all of LZ4.

use crate::ChunkError;

/// Bytes of a block before it is packed.
pub const BLOCK: usize = 64 << 10;

/// Packs: how many bytes that takes, if fewer than there were.
pub fn pack(raw: &[u8], to: &mut [u8]) -> Option<usize> {
    let blocks = raw.len().div_ceil(BLOCK);
    let mut place = 4 * blocks;
    let end = raw.len().min(to.len());
    // A block may get longer before it is known to.
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

/// Unpacks, into as many bytes as there were.
///
/// # Errors
/// [`ChunkError::Length`], [`ChunkError::Block`]: it is not what packing gives.
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
