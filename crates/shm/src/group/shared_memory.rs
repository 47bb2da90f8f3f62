//! Shared memory of a group: a row of values for each rank, or words.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, MmapRaw};

use super::steps::{StepMemory, words_for};
use super::task::PlainNumber;
use crate::memory::{self, MapError};

/// Alignment of rows.
const PAGE: usize = 4096;

/// Rows of equal size, one for each rank.
#[derive(Debug)]
pub(super) struct SharedRows {
    map: MmapRaw,
    row_bytes: usize,
}

impl SharedRows {
    /// Creates zeroed rows of at least `bytes` bytes each.
    ///
    /// # Errors
    /// When the host does not have so much shared memory.
    pub(super) fn create(ranks: usize, bytes: usize) -> Result<(Self, OwnedFd), MapError> {
        let (all, row_bytes) = size(ranks, bytes)?;
        let memory = memory::create("pathcall-group", all)?;
        Ok((Self::map(&memory, all, row_bytes)?, memory))
    }

    /// Maps the rows that rank 0 created.
    ///
    /// # Errors
    /// When the memory is not sealed, or has another size.
    pub(super) fn from_fd(memory: &OwnedFd, ranks: usize, bytes: usize) -> Result<Self, MapError> {
        let (all, row_bytes) = size(ranks, bytes)?;
        memory::check(memory, all)?;
        Self::map(memory, all, row_bytes)
    }

    fn map(memory: &OwnedFd, all: usize, row_bytes: usize) -> Result<Self, MapError> {
        let map = memory::map(memory.as_fd(), all)?;
        // Populate the pages now rather than in the first task; systems without this advice do it then.
        let _ = map.advise(Advice::PopulateWrite);
        Ok(Self { map, row_bytes })
    }

    /// Address of `len` values in a rank's row, from byte `byte`. Valid as long as `self` lives.
    ///
    /// # Panics
    /// When the values exceed the row, or are misaligned.
    #[inline]
    pub(super) fn at<T: PlainNumber>(&self, rank: usize, byte: usize, len: usize) -> *mut T {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(byte));
        assert!(end.is_some_and(|end| end <= self.row_bytes), "{len} values from byte {byte} of {}", self.row_bytes);
        assert!(byte.is_multiple_of(align_of::<T>()) && (rank + 1) * self.row_bytes <= self.map.len());
        self.map.as_mut_ptr().wrapping_add(rank * self.row_bytes + byte).cast()
    }
}

/// Size of all rows, and of one, bytes.
pub(super) fn size(ranks: usize, bytes: usize) -> Result<(usize, usize), MapError> {
    let row = bytes.max(1).checked_next_multiple_of(PAGE);
    let all = row.and_then(|row| row.checked_mul(ranks)).filter(|all| isize::try_from(*all).is_ok());
    match (all, row) {
        (Some(all), Some(row)) => Ok((all, row)),
        _ => Err(MapError::System(std::io::ErrorKind::OutOfMemory.into())),
    }
}

/// Shared words of a group.
#[derive(Debug)]
pub(super) struct SharedWords {
    map: MmapRaw,
    words: usize,
}

impl SharedWords {
    /// Creates zeroed words.
    ///
    /// # Errors
    /// When the host does not have so much shared memory.
    pub(super) fn create(ranks: usize) -> Result<(Self, OwnedFd), MapError> {
        let memory = memory::create("pathcall-group", Self::bytes(ranks))?;
        Ok((Self::map(&memory, ranks)?, memory))
    }

    /// Maps the words that rank 0 created.
    ///
    /// # Errors
    /// When the memory is not sealed, or has another size.
    pub(super) fn from_fd(memory: &OwnedFd, ranks: usize) -> Result<Self, MapError> {
        memory::check(memory, Self::bytes(ranks))?;
        Self::map(memory, ranks)
    }

    fn map(memory: &OwnedFd, ranks: usize) -> Result<Self, MapError> {
        Ok(Self { map: memory::map(memory.as_fd(), Self::bytes(ranks))?, words: words_for(ranks) })
    }

    const fn bytes(ranks: usize) -> usize {
        (words_for(ranks) * size_of::<u32>()).next_multiple_of(PAGE)
    }
}

impl StepMemory for SharedWords {
    type StepWord = AtomicU32;

    #[inline]
    #[allow(unsafe_code, reason = "memory of other processes becomes words of this one")]
    fn cells(&self) -> &[AtomicU32] {
        // SAFETY: the mapping begins at a page, so it is aligned for words; it has `words` of them as long as `self`
        // lives, which outlives the slice. The file is sealed at that size, so every word can be accessed. Any bits are
        // valid words. This process has no other reference into the mapping, and other processes may change atomic
        // words at any moment.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_overlap() {
        let (rows, memory) = SharedRows::create(3, 5000).unwrap();
        let same = SharedRows::from_fd(&memory, 3, 5000).unwrap();
        let place = |rank, byte| rows.at::<f64>(rank, byte, 1) as usize;
        assert_eq!(place(1, 0) - place(0, 0), 8192);
        assert_eq!(place(2, 8) - place(0, 0), 16392);
        assert_ne!(same.at::<f64>(0, 0, 1), rows.at::<f64>(0, 0, 1));
        assert!(matches!(SharedRows::from_fd(&memory, 2, 5000), Err(MapError::Size { expected: 16384, got: 24576 })));
    }

    #[test]
    fn access_beyond_row_panics() {
        let (rows, _) = SharedRows::create(2, 4096).unwrap();
        let panics = |rank, byte, len| std::panic::catch_unwind(|| rows.at::<i64>(rank, byte, len)).is_err();
        assert!(!panics(1, 0, 512) && !panics(1, 4096, 0));
        assert!(panics(1, 0, 513) && panics(0, 8, 512) && panics(0, 4, 1) && panics(2, 0, 1));
        assert!(panics(0, 0, usize::MAX) && panics(0, usize::MAX - 7, 1));
    }

    #[test]
    fn impossible_row_size_is_refused() {
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX as usize / 2 + 4096] {
            assert!(matches!(SharedRows::create(2, bytes), Err(MapError::System(_))), "{bytes}");
        }
    }
}
