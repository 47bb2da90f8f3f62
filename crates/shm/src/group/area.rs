//! Memory that all ranks of a group have mapped: a row for each rank, or words.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, MmapRaw};

use super::steps::{Cells, words_for};
use super::task::Plain;
use crate::memory::{self, MapError};

/// Rows begin at pages.
const PAGE: usize = 4096;

/// Rows of as many bytes, one for each rank.
#[derive(Debug)]
pub(super) struct Rows {
    map: MmapRaw,
    row_bytes: usize,
}

impl Rows {
    /// Makes them, all zero; each has at least `bytes` bytes.
    ///
    /// # Errors
    /// When the host has no such memory, or not that much of it.
    pub(super) fn make(ranks: usize, bytes: usize) -> Result<(Self, OwnedFd), MapError> {
        let (all, row_bytes) = size(ranks, bytes)?;
        let memory = memory::make("pathcall-group", all)?;
        Ok((Self::over(&memory, all, row_bytes)?, memory))
    }

    /// Maps what rank 0 made.
    ///
    /// # Errors
    /// When it isn't such memory.
    pub(super) fn take(memory: &OwnedFd, ranks: usize, bytes: usize) -> Result<Self, MapError> {
        let (all, row_bytes) = size(ranks, bytes)?;
        memory::check(memory, all)?;
        Self::over(memory, all, row_bytes)
    }

    fn over(memory: &OwnedFd, all: usize, row_bytes: usize) -> Result<Self, MapError> {
        let map = memory::map(memory.as_fd(), all)?;
        // Now, rather than in the first task; systems that don't know this do it then.
        let _ = map.advise(Advice::PopulateWrite);
        Ok(Self { map, row_bytes })
    }

    /// Where `len` values lie in a rank's row, from a byte of it on. Valid for as long as `self` lives.
    ///
    /// # Panics
    /// When they don't lie in it, or not as such values have to.
    #[inline]
    pub(super) fn at<T: Plain>(&self, rank: usize, byte: usize, len: usize) -> *mut T {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(byte));
        assert!(end.is_some_and(|end| end <= self.row_bytes), "{len} values from byte {byte} of {}", self.row_bytes);
        assert!(byte.is_multiple_of(align_of::<T>()) && (rank + 1) * self.row_bytes <= self.map.len());
        self.map.as_mut_ptr().wrapping_add(rank * self.row_bytes + byte).cast()
    }
}

/// Bytes of all rows, and of one.
pub(super) fn size(ranks: usize, bytes: usize) -> Result<(usize, usize), MapError> {
    let row = bytes.max(1).checked_next_multiple_of(PAGE);
    let all = row.and_then(|row| row.checked_mul(ranks)).filter(|all| isize::try_from(*all).is_ok());
    match (all, row) {
        (Some(all), Some(row)) => Ok((all, row)),
        _ => Err(MapError::System(std::io::ErrorKind::OutOfMemory.into())),
    }
}

/// The words of a group.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
    words: usize,
}

impl Words {
    /// Makes them, all zero.
    ///
    /// # Errors
    /// When the host has no such memory.
    pub(super) fn make(ranks: usize) -> Result<(Self, OwnedFd), MapError> {
        let memory = memory::make("pathcall-group", Self::bytes(ranks))?;
        Ok((Self::over(&memory, ranks)?, memory))
    }

    /// Maps what rank 0 made.
    ///
    /// # Errors
    /// When it isn't such memory.
    pub(super) fn take(memory: &OwnedFd, ranks: usize) -> Result<Self, MapError> {
        memory::check(memory, Self::bytes(ranks))?;
        Self::over(memory, ranks)
    }

    fn over(memory: &OwnedFd, ranks: usize) -> Result<Self, MapError> {
        Ok(Self { map: memory::map(memory.as_fd(), Self::bytes(ranks))?, words: words_for(ranks) })
    }

    const fn bytes(ranks: usize) -> usize {
        (words_for(ranks) * size_of::<u32>()).next_multiple_of(PAGE)
    }
}

impl Cells for Words {
    type Cell = AtomicU32;

    #[inline]
    #[allow(unsafe_code, reason = "memory of other processes becomes words of ours")]
    fn cells(&self) -> &[AtomicU32] {
        // SAFETY: the mapping begins at a page and so is aligned for words; it has as many, for as long as `self`
        // lives and so as the slice does, and its file is sealed at that size, so every one is there to be touched.
        // They are valid whatever their bits. Nobody here has another reference into the mapping; what other
        // processes do to the words at any moment, an atomic word allows.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_touch_each_other() {
        let (rows, memory) = Rows::make(3, 5000).unwrap();
        let same = Rows::take(&memory, 3, 5000).unwrap();
        let place = |rank, byte| rows.at::<f64>(rank, byte, 1) as usize;
        assert_eq!(place(1, 0) - place(0, 0), 8192);
        assert_eq!(place(2, 8) - place(0, 0), 16392);
        assert_ne!(same.at::<f64>(0, 0, 1), rows.at::<f64>(0, 0, 1));
        assert!(matches!(Rows::take(&memory, 2, 5000), Err(MapError::Size { expected: 16384, got: 24576 })));
    }

    #[test]
    fn what_does_not_lie_in_a_row_is_not_to_be_had() {
        let (rows, _) = Rows::make(2, 4096).unwrap();
        let panics = |rank, byte, len| std::panic::catch_unwind(|| rows.at::<i64>(rank, byte, len)).is_err();
        assert!(!panics(1, 0, 512) && !panics(1, 4096, 0));
        assert!(panics(1, 0, 513) && panics(0, 8, 512) && panics(0, 4, 1) && panics(2, 0, 1));
        assert!(panics(0, 0, usize::MAX) && panics(0, usize::MAX - 7, 1));
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX as usize / 2 + 4096] {
            assert!(matches!(Rows::make(2, bytes), Err(MapError::System(_))), "{bytes}");
        }
    }
}
