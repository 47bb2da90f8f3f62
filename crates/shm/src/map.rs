//! The memory of a pair of rings, mapped by both sides.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use crate::memory;
pub use crate::memory::MapError;
use crate::ring::{Memory, words_for};

/// Bytes of each of the two rings.
pub const RING_BYTES: usize = 512 << 10;
/// Words of both.
const WORDS: usize = words_for(RING_BYTES / size_of::<u64>());
/// What one pair of rings takes of the host's memory, bytes.
pub const MAP_BYTES: usize = WORDS * size_of::<u64>();

/// A mapping of [`MAP_BYTES`], for as long as it is kept.
#[derive(Debug)]
pub struct Map(MmapRaw);

impl Map {
    /// Makes memory, which takes a moment; the descriptor is for the other side, and not needed afterwards.
    ///
    /// # Errors
    /// When the host has no such memory, or not that much of it.
    pub fn make() -> Result<(Self, OwnedFd), MapError> {
        let memory = memory::make("pathcall-ring", MAP_BYTES)?;
        Ok((Self::over(memory.as_fd())?, memory))
    }

    /// Maps what another process made.
    ///
    /// # Errors
    /// When it isn't such memory: sealed, and of the right size.
    pub fn take(memory: OwnedFd) -> Result<Self, MapError> {
        memory::check(&memory, MAP_BYTES)?;
        Self::over(memory.as_fd())
    }

    fn over(memory: BorrowedFd<'_>) -> Result<Self, MapError> {
        Ok(Self(memory::map(memory, MAP_BYTES)?))
    }
}

impl Memory for Map {
    type Word = AtomicU64;

    #[inline]
    #[allow(unsafe_code, reason = "the one place where memory of another process becomes words of ours")]
    fn words(&self) -> &[AtomicU64] {
        debug_assert_eq!(self.0.len(), MAP_BYTES);
        // SAFETY: the mapping begins at a page and so is aligned for words; it has WORDS of them, for as
        // long as `self` lives and so as the slice does, and its file is sealed at that size, so every one
        // is there to be touched. They are valid whatever their bits. Nobody here has another reference
        // into the mapping; what other processes do to the words at any moment, an atomic word allows.
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
    use crate::ring::{Side, pair};

    fn unsealed(bytes: u64, seals: SealFlags) -> OwnedFd {
        let memory = memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, bytes).unwrap();
        fcntl_add_seals(&memory, seals).unwrap();
        memory
    }

    #[test]
    fn both_sides_have_the_same_words() {
        let (made, memory) = Map::make().unwrap();
        let taken = Map::take(memory).unwrap();
        made.words()[WORDS - 1].store(7, Ordering::Relaxed);
        assert_eq!(taken.words()[WORDS - 1].load(Ordering::Relaxed), 7);
        let (mut producer, _) = pair(Arc::new(made), Side::Maker);
        let (_, mut consumer) = pair(Arc::new(taken), Side::Taker);
        producer.push(b"frame").unwrap();
        assert!(!producer.publish());
        let mut frame = [0; 16];
        assert_eq!(consumer.pop(&mut frame), Ok(Some(5)));
        assert_eq!(frame[..5], *b"frame");
    }

    #[test]
    fn memory_that_could_vanish_is_not_mapped() {
        let bytes = MAP_BYTES as u64;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
            let error = Map::take(unsealed(bytes, seals)).unwrap_err();
            assert!(matches!(error, MapError::Unsealed { got, .. } if got == seals), "{error}");
        }
        for wrong in [0, bytes - 1, bytes + 1] {
            let error = Map::take(unsealed(wrong, SEALS)).unwrap_err();
            assert!(matches!(error, MapError::Size { got, .. } if got as u64 == wrong), "{error}");
        }
        let file = std::fs::File::open("/dev/zero").unwrap();
        assert!(matches!(Map::take(file.into()).unwrap_err(), MapError::System(_)));
        // One that nobody may write to can't be mapped for writing.
        let error = Map::take(unsealed(bytes, SEALS | SealFlags::WRITE)).unwrap_err();
        assert!(matches!(error, MapError::System(_)), "{error}");
    }

    #[test]
    fn the_size_of_what_was_made_is_final() {
        let (_map, memory) = Map::make().unwrap();
        assert!(ftruncate(&memory, 0).is_err());
        assert!(ftruncate(&memory, 1 << 30).is_err());
    }
}
