//! What keeps a handler from running.

use pathcall_sandbox::{BuildError, OpenError};

use super::PARAMETER_BYTES_MAX;
use crate::mirror::layout::LayoutError;

/// A handler that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum FaceError {
    /// The program has none.
    #[error("the program has no remote_handler")]
    NoHandler,
    /// A mirrored table is too large.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Its parameters take too much room.
    #[error("request and response take {got} bytes, at most {PARAMETER_BYTES_MAX} each")]
    Parameters {
        /// Bytes of the longer one.
        got: usize,
    },
    /// A mirrored register is too wide.
    #[error("register {register}: its cells have {got} bits, at most 64 can be mirrored")]
    Register {
        /// Which.
        register: String,
        /// Bits.
        got: u16,
    },
}

/// A handler that can't be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// What it is made of is wrong.
    #[error(transparent)]
    Face(#[from] FaceError),
    /// It can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It does not start.
    #[error(transparent)]
    Open(#[from] OpenError),
}
