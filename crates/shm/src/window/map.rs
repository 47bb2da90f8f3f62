//! Mapping of a shared window's memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapRaw};

use super::sequence_lock::words_for;
use crate::memory::{self, MapError};
use crate::ring::RingMemory;

/// Mapping of the words of a window.
#[derive(Debug)]
pub(super) struct WindowMap {
    map: MmapRaw,
    words: usize,
}

/// Size of the memory of a window of `len` bytes, bytes.
pub(super) const fn size(len: usize) -> usize {
    words_for(len) * size_of::<u64>()
}

impl WindowMap {
    /// Creates the memory of a window of `len` bytes, and its descriptor for other processes.
    ///
    /// # Errors
    /// When the host does not have so much shared memory.
    pub(super) fn create(name: &str, len: usize) -> Result<(Self, OwnedFd), MapError> {
        let memory = memory::create(name, size(len))?;
        Ok((Self::map(&memory, len)?, memory))
    }

    /// Maps the memory that the owner of a window of `len` bytes created.
    ///
    /// # Errors
    /// When the memory is not sealed, or has another size.
    pub(super) fn from_fd(memory: &OwnedFd, len: usize) -> Result<Self, MapError> {
        memory::check(memory, size(len))?;
        Self::map(memory, len)
    }

    fn map(memory: &OwnedFd, len: usize) -> Result<Self, MapError> {
        let map = memory::map(memory.as_fd(), size(len))?;
        // Populate the pages now rather than in the first access; systems without this advice do it then.
        let _ = map.advise(Advice::PopulateWrite);
        Ok(Self { map, words: words_for(len) })
    }
}

impl RingMemory for WindowMap {
    type Word = AtomicU64;

    #[inline]
    #[allow(unsafe_code, reason = "memory of other processes becomes words of this one")]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, so it is aligned for words; it has `words` of them as long as `self`
        // lives, which outlives the slice. The file is sealed at that size, so every word can be accessed. Any bits are
        // valid words. This process has no other reference into the mapping, and other processes may change atomic
        // words at any moment.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.words) }
    }
}
