//! What can go wrong between a function and the kernel.

use std::io;

use pathcall_function::emit::xdp::{Origin, Unsupported};
use pathcall_function::exec::TableError;

/// Why a function does not run in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program has something that XDP can't do.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// No execution takes the program.
    #[error(transparent)]
    Program(#[from] pathcall_function::interp::CompileError),
    /// There is no compiler.
    #[error("no clang found (tried {tried}): install it (Debian: clang-19), or name it in CLANG")]
    NoCompiler {
        /// Names that were tried.
        tried: String,
    },
    /// The compiler did not take the emitted C.
    #[error("{compiler} refused the emitted program: {said}")]
    Compiler {
        /// Its name.
        compiler: String,
        /// Its first error.
        said: String,
    },
    /// The kernel's verifier did not take the program.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// An entry of the program, or one of a controller, does not fit its table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A packet that the kernel can't be tested with.
    #[error("a packet of {0} bytes can't be run: 14 to {max} can", max = super::load::PACKET_MAX)]
    Length(usize),
    /// The port number is not one of the program's.
    #[error("port {0} is none: they are 0 to 510")]
    Port(u16),
    /// Loading, attaching, or what the object has.
    #[error(transparent)]
    Kernel(#[from] crate::Error),
    /// What the system says.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// What the kernel's verifier said, and of what.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's verifier refuses {}: {said}", .origin.as_ref().map_or("the program", |origin| &origin.what))]
pub struct Refused {
    /// The construct that it stopped at.
    pub origin: Option<Origin>,
    /// Its last word.
    pub said: String,
    /// All that it said.
    pub log: String,
}
