//! Memory that processes share: a file without a name.
//!
//! Its maker seals its size, so nobody can make the mapping of somebody else fall off its end, and takes
//! all of its pages at once, so that a host short of memory says so here and not later, by a signal. Its
//! taker believes neither before it has looked.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// Its size can't change any more, nor can that.
pub(crate) const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Why memory that another process gave is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Its size could change.
    #[error("memory with the seals {got:?}, expected {expected:?}")]
    Unsealed {
        /// Seals needed.
        expected: SealFlags,
        /// Seals there.
        got: SealFlags,
    },
    /// It is not as large as it is to be.
    #[error("memory of {got} bytes, expected {expected}")]
    Size {
        /// What both sides map.
        expected: usize,
        /// Its size.
        got: i64,
    },
    /// What the system says.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Makes memory, which takes a moment: all zeros. `name` is what the system's lists of mappings call it.
///
/// # Errors
/// When the host has no such memory, or not that much of it.
pub(crate) fn make(name: &str, bytes: usize) -> Result<OwnedFd, MapError> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let memory = memory.map_err(io::Error::from)?;
    ftruncate(&memory, bytes as u64).map_err(io::Error::from)?;
    fallocate(&memory, FallocateFlags::empty(), 0, bytes as u64).map_err(io::Error::from)?;
    fcntl_add_seals(&memory, SEALS).map_err(io::Error::from)?;
    Ok(memory)
}

/// Whether this is such memory: sealed, and of the right size.
///
/// # Errors
/// When it isn't.
pub(crate) fn check(memory: &OwnedFd, bytes: usize) -> Result<(), MapError> {
    // Anything but memory has no seals to be asked for: an error of the system.
    let got = fcntl_get_seals(memory).map_err(io::Error::from)?;
    if !got.contains(SEALS) {
        return Err(MapError::Unsealed { expected: SEALS, got });
    }
    // Huge pages, which may be lacking when they are touched, don't come in this size.
    let got = fstat(memory).map_err(io::Error::from)?.st_size;
    if usize::try_from(got) != Ok(bytes) {
        return Err(MapError::Size { expected: bytes, got });
    }
    Ok(())
}

/// Maps all of it.
///
/// # Errors
/// What the system says.
pub(crate) fn map(memory: impl AsFd, bytes: usize) -> Result<MmapRaw, MapError> {
    Ok(MmapOptions::new().len(bytes).map_raw(&memory.as_fd())?)
}
