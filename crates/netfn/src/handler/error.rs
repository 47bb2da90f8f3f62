//! Errors of handlers.

use pathcall_sandbox::{GuestBuildError, OpenError};

use super::PARAMETER_BYTES_MAX;
use crate::mirror::layout::LayoutError;

/// Error in the C interface of a handler.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The program has no handler.
    #[error("the program has no remote_handler")]
    NoHandler,
    /// A mirrored table is too large.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The parameters are too large.
    #[error("request and response take {got} bytes, at most {PARAMETER_BYTES_MAX} each")]
    Parameters {
        /// Size of the longer of request and response, bytes.
        got: usize,
    },
    /// The cells of a mirrored register are too wide.
    #[error("register {register}: its cells have {got} bits, at most 64 can be mirrored")]
    Register {
        /// Name of the register.
        register: String,
        /// Width of a cell, bits.
        got: u16,
    },
}

/// Error at the start of a handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerStartError {
    /// The C interface cannot be made.
    #[error(transparent)]
    CInterface(#[from] InterfaceError),
    /// The C code cannot be built.
    #[error(transparent)]
    Build(#[from] GuestBuildError),
    /// The sandbox cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}
