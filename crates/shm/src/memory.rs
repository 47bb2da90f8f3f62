//! Memory shared between processes: an anonymous file.
//!
//! Its creator seals its size, so that no process can cut off the mapping of another, and allocates all pages at once,
//! so that a lack of memory is an error here and not a signal later. The receiver checks both.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// Seals of the size, and of the seals themselves.
pub(crate) const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Error of creating or mapping shared memory.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The size is not sealed.
    #[error("memory with the seals {got:?}, expected {expected:?}")]
    Unsealed {
        /// Required seals.
        expected: SealFlags,
        /// Seals of the memory.
        got: SealFlags,
    },
    /// The size is wrong.
    #[error("memory of {got} bytes, expected {expected}")]
    Size {
        /// Expected size, bytes.
        expected: usize,
        /// Size of the memory, bytes.
        got: i64,
    },
    /// Error of the system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Creates zeroed memory, which takes a moment. `name` appears in the system's lists of mappings.
///
/// # Errors
/// When the host does not have so much shared memory.
pub(crate) fn create(name: &str, bytes: usize) -> Result<OwnedFd, MapError> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let memory = memory.map_err(io::Error::from)?;
    ftruncate(&memory, bytes as u64).map_err(io::Error::from)?;
    fallocate(&memory, FallocateFlags::empty(), 0, bytes as u64).map_err(io::Error::from)?;
    fcntl_add_seals(&memory, SEALS).map_err(io::Error::from)?;
    Ok(memory)
}

/// Checks that memory is sealed and has the right size.
///
/// # Errors
/// When it is not.
pub(crate) fn check(memory: &OwnedFd, bytes: usize) -> Result<(), MapError> {
    // A descriptor of anything else has no seals: the system returns an error.
    let got = fcntl_get_seals(memory).map_err(io::Error::from)?;
    if !got.contains(SEALS) {
        return Err(MapError::Unsealed { expected: SEALS, got });
    }
    // Huge pages, which may be lacking at the first access, do not come in this size.
    let got = fstat(memory).map_err(io::Error::from)?.st_size;
    if usize::try_from(got) != Ok(bytes) {
        return Err(MapError::Size { expected: bytes, got });
    }
    Ok(())
}

/// Maps the whole memory.
///
/// # Errors
/// Error of the system.
pub(crate) fn map(memory: impl AsFd, bytes: usize) -> Result<MmapRaw, MapError> {
    Ok(MmapOptions::new().len(bytes).map_raw(&memory.as_fd())?)
}
