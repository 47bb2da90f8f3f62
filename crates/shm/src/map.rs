//! Memory of a pair of rings, mapped by both sides.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use crate::memory;
pub use crate::memory::MapError;
use crate::ring::{RingMemory, words_for};

/// Size of each of the two rings, bytes.
pub const RING_BYTES: usize = 512 << 10;
/// Words of both rings.
const WORDS: usize = words_for(RING_BYTES / size_of::<u64>());
/// Memory of one pair of rings, bytes.
pub const MAP_BYTES: usize = WORDS * size_of::<u64>();

/// Mapping of [`MAP_BYTES`] bytes.
#[derive(Debug)]
pub struct RingMap(MmapRaw);

impl RingMap {
    /// Creates the memory, which takes a moment. The descriptor is for the other side, and not needed afterwards.
    ///
    /// # Errors
    /// When the host does not have so much shared memory.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let memory = memory::create("pathcall-ring", MAP_BYTES)?;
        Ok((Self::map(memory.as_fd())?, memory))
    }

    /// Maps memory that another process created.
    ///
    /// # Errors
    /// When the memory is not sealed, or has another size.
    pub fn from_fd(memory: OwnedFd) -> Result<Self, MapError> {
        memory::check(&memory, MAP_BYTES)?;
        Self::map(memory.as_fd())
    }

    fn map(memory: BorrowedFd<'_>) -> Result<Self, MapError> {
        Ok(Self(memory::map(memory, MAP_BYTES)?))
    }
}

impl RingMemory for RingMap {
    type Word = AtomicU64;

    #[inline]
    #[allow(unsafe_code, reason = "memory of another process becomes words of this one")]
    fn words(&self) -> &[AtomicU64] {
        debug_assert_eq!(self.0.len(), MAP_BYTES);
        // SAFETY: the mapping begins at a page, so it is aligned for words; it has WORDS of them as long as `self`
        // lives, which outlives the slice. The file is sealed at that size, so every word can be accessed. Any bits
        // are valid words. This process has no other reference into the mapping, and other processes may change atomic
        // words at any moment.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), WORDS) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;
    use crate::memory::SEALS;
    use crate::ring::{RingSide, ring_pair};

    fn unsealed(bytes: u64, seals: SealFlags) -> OwnedFd {
        let memory = memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, bytes).unwrap();
        fcntl_add_seals(&memory, seals).unwrap();
        memory
    }

    #[test]
    fn both_sides_map_the_same_words() {
        let (made, memory) = RingMap::create().unwrap();
        let taken = RingMap::from_fd(memory).unwrap();
        made.words()[WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(taken.words()[WORDS - 1].load(Ordering::Relaxed), 7);
        let (mut producer, _) = ring_pair(Arc::new(made), RingSide::Creator);
        let (_, mut consumer) = ring_pair(Arc::new(taken), RingSide::Receiver);
        producer.push(b"frame").unwrap();
        assert!(!producer.publish());
        let mut frame = [0; 16];
        assert_eq!(consumer.pop(&mut frame), Ok(Some(5)));
        assert_eq!(frame[..5], *b"frame");
    }

    #[test]
    fn unsealed_memory_is_not_mapped() {
        let bytes = MAP_BYTES as u64;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
            let error = RingMap::from_fd(unsealed(bytes, seals)).unwrap_err();
            assert!(matches!(error, MapError::Unsealed { got, .. } if got == seals), "{error}");
        }
        for wrong in [0, bytes - 1, bytes + 1] {
            let error = RingMap::from_fd(unsealed(wrong, SEALS)).unwrap_err();
            assert!(matches!(error, MapError::Size { got, .. } if got as u64 == wrong), "{error}");
        }
        let file = std::fs::File::open("/dev/zero").unwrap();
        assert!(matches!(RingMap::from_fd(file.into()).unwrap_err(), MapError::System(_)));
        // Memory that is sealed against writes cannot be mapped for writing.
        let error = RingMap::from_fd(unsealed(bytes, SEALS | SealFlags::WRITE)).unwrap_err();
        assert!(matches!(error, MapError::System(_)), "{error}");
    }

    #[test]
    fn created_memory_cannot_be_resized() {
        let (_map, memory) = RingMap::create().unwrap();
        assert!(ftruncate(&memory, 0).is_err());
        assert!(ftruncate(&memory, 1 << 30).is_err());
    }
}
