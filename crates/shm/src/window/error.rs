//! Errors of shared windows.

use std::io;
use std::time::Duration;

use super::{LEN_MAX, NAME_MAX, OPENERS_MAX};
use crate::memory::MapError;

/// Error of a shared window.
#[derive(Debug, thiserror::Error)]
pub enum SharedWindowError {
    /// The name has an invalid length.
    #[error("a shared window's name of {got} bytes, expected 1 to {NAME_MAX}")]
    Name {
        /// Length of the name, bytes.
        got: usize,
    },
    /// The window has an invalid length.
    #[error("shared window `{name}` of {got} bytes, expected 1 to {LEN_MAX}")]
    Length {
        /// Name of the window.
        name: String,
        /// Length of the window, bytes.
        got: usize,
    },
    /// A window of this name exists.
    #[error("shared window `{name}` exists: end its owner, or take another name")]
    Taken {
        /// Name of the window.
        name: String,
    },
    /// No window has this name.
    #[error("no process has created shared window `{name}`: start its owner, in the same network namespace")]
    Unknown {
        /// Name of the window.
        name: String,
    },
    /// The owner's process belongs to another user.
    #[error("shared window `{name}` belongs to another user: start both processes as one user")]
    User {
        /// Name of the window.
        name: String,
    },
    /// The owner does not let this process in.
    #[error(
        "the owner of shared window `{name}` closed the connection: restart it if it has ended, build both programs from \
         one version, or open it at most {OPENERS_MAX} times"
    )]
    Refused {
        /// Name of the window.
        name: String,
    },
    /// The owner does not answer.
    #[error("the owner of shared window `{name}` did not answer within {waited:?}: check whether it is stopped")]
    Silent {
        /// Name of the window.
        name: String,
        /// Time waited.
        waited: Duration,
    },
    /// The memory cannot be created or mapped.
    #[error("cannot share {bytes} bytes as window `{name}`: {source}")]
    Memory {
        /// Name of the window.
        name: String,
        /// Size of the memory, bytes.
        bytes: usize,
        /// Reason.
        source: MapError,
    },
    /// The access is outside the window.
    #[error("access to {len} bytes at {at} exceeds window `{name}` of {has} bytes")]
    Outside {
        /// Name of the window.
        name: String,
        /// Length of the window, bytes.
        has: usize,
        /// Offset of the access.
        at: usize,
        /// Length of the access, bytes.
        len: usize,
    },
    /// Another process holds the lock of the window for too long. No byte was written.
    #[error("process {process} holds the lock of shared window `{name}` for {waited:?}: check whether it is stopped")]
    Locked {
        /// Name of the window.
        name: String,
        /// Process id, in that process's namespace, as that process has written it.
        process: u64,
        /// Time waited.
        waited: Duration,
    },
    /// Error of the system.
    #[error(transparent)]
    System(#[from] io::Error),
}
