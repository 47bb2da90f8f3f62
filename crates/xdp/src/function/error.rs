//! Errors of functions in the kernel.

use std::io;

use pathcall_p4::emit::xdp::{Origin, Unsupported};
use pathcall_p4::exec::TableError;

/// Error of a function in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has a construct that XDP does not support.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The program is invalid for every execution.
    #[error(transparent)]
    Program(#[from] pathcall_p4::interp::CompileError),
    /// No compiler was found.
    #[error("no clang found (tried {tried}): install it (Debian: clang-19), or name it in CLANG")]
    NoCompiler {
        /// Names that were tried.
        tried: String,
    },
    /// The compiler refused the emitted C.
    #[error("{compiler} refused the emitted program: {message}")]
    Compiler {
        /// Name of the compiler.
        compiler: String,
        /// First error of the compiler.
        message: String,
    },
    /// The kernel's verifier refused the program.
    #[error(transparent)]
    Refused(Box<VerifierError>),
    /// An entry of the program or of a controller does not fit its table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The kernel cannot run a packet of this length.
    #[error("invalid packet length {0} (14 to {max} bytes)", max = super::load::PACKET_MAX)]
    Length(usize),
    /// The port number is out of range.
    #[error("invalid port {0} (0 to 510)")]
    Port(u16),
    /// Error of the loader or the kernel.
    #[error(transparent)]
    Kernel(#[from] crate::Error),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// Refusal of the kernel's verifier.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's verifier refuses {}: {message}", .origin.as_ref().map_or("the program", |origin| &origin.what))]
pub struct VerifierError {
    /// Construct at which the verifier stopped.
    pub origin: Option<Origin>,
    /// Last message of the verifier.
    pub message: String,
    /// Complete log of the verifier.
    pub log: String,
}
