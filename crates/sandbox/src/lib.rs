//! Sandbox for C code: runs the handlers of network functions so that they can harm only themselves.
//!
//! ```text
//! C text ─► build (clang → wasm2c → cc, or cc) ─► Guest ── enter(entry, argument) ─► returns │ Trap
//!                                                   │ ▲
//!                                        area: shared memory        Host::call: requests of the guest
//! ```
//!
//! A guest runs in one of three kinds of sandbox ([`SandboxKind`]), which differ in speed and in containment, but not
//! in the guest's interface. In each kind a guest that accesses memory out of bounds, divides by zero, recurses or
//! loops without end is stopped with a [`Trap`]. [`Guest::restart`] then gives it fresh memory; the host continues.
//!
//! | kind | contained by | cost of a call |
//! |---|---|---|
//! | [`SandboxKind::Wasm`] | WebAssembly, compiled to C and to machine code | a function call and a `setjmp` |
//! | [`SandboxKind::Process`] | a process without system calls except on two pipes | two process switches |
//! | [`SandboxKind::Native`] | nothing: the guest is trusted | as the first |
//!
//! [`build`](mod@build) makes the library or program, `in_process` and `process` run it, `time_limit` enforces time
//! limits and handles signals. [`large_pages`] is for owners of large tables.
//!
//! **Interface of a guest.** Freestanding C with `void pc_enter(uint32_t entry, uint32_t argument)`, `void
//! *pc_area(void)`, `const uint32_t pc_area_bytes`, and may call `uint64_t pc_host(uint32_t op, uint32_t which, const
//! void *in, uint32_t in_bytes, void *out, uint32_t out_bytes, uint64_t value)`.

#![warn(missing_docs)]

pub mod build;
mod in_process;
mod large_pages;
mod process;
mod time_limit;

pub use build::{BuiltGuest, CompilerMessage, GuestBuildError, GuestSource, SandboxKind, build};
pub use large_pages::large_pages;

use std::io;
use std::time::Duration;

/// Longest input of a [`Host::call`], bytes.
pub const INPUT_BYTES_MAX: usize = 1024;
/// Longest output of a [`Host::call`], bytes.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Default CPU time limit of one call.
pub const LIMIT: Duration = Duration::from_millis(20);

/// Host of a guest: answers its host calls.
pub trait Host {
    /// Answers `pc_host`. `output` holds the guest's bytes, and is returned to the guest. Must not panic.
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64;
}

/// Reason of a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum TrapReason {
    /// Memory access out of bounds, including null pointers.
    #[error("out of bounds")]
    Bounds,
    /// Integer division by zero.
    #[error("division by zero")]
    Divide,
    /// Quotient out of the range of its type.
    #[error("integer overflow in a division")]
    Overflow,
    /// Conversion of a value out of range, or not a number, to an integer.
    #[error("conversion of a value out of range")]
    Conversion,
    /// Execution of code marked as unreachable.
    #[error("unreachable code")]
    Unreachable,
    /// Call by a pointer that is not a function of the expected type.
    #[error("call of an invalid function pointer")]
    Indirect,
    /// Stack overflow.
    #[error("stack overflow")]
    Stack,
    /// CPU time limit exceeded.
    #[error("time limit")]
    Time,
    /// Any other reason.
    #[error("ended")]
    Other,
}

impl TrapReason {
    /// All reasons, for reports.
    pub const ALL: [Self; 9] = [
        Self::Bounds,
        Self::Divide,
        Self::Overflow,
        Self::Conversion,
        Self::Unreachable,
        Self::Indirect,
        Self::Stack,
        Self::Time,
        Self::Other,
    ];

    /// Reason with this number, from 1, in `sandbox.h`.
    fn from_number(number: u32) -> Self {
        Self::ALL.get((number as usize).wrapping_sub(1)).copied().unwrap_or(Self::Other)
    }

    /// Reason of a signal.
    fn from_signal(signal: i32) -> Self {
        match signal {
            libc::SIGSEGV | libc::SIGBUS => Self::Bounds,
            libc::SIGFPE => Self::Divide,
            libc::SIGILL | libc::SIGTRAP => Self::Unreachable,
            _ => Self::Other,
        }
    }
}

/// End of a call that did not return. The guest has to be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Trap {
    /// Reason of the trap.
    pub reason: TrapReason,
    /// Address in the guest's code, for [`BuiltGuest::line`]; 0 if unknown.
    pub at: u64,
}

/// Error at the start of a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library could not be loaded.
    #[error("cannot load the handler's library: {0}")]
    Load(#[from] libloading::Error),
    /// No memory, or less than 8 GiB of address space (`ulimit -v`).
    #[error("no memory for the handler: 8 GiB of address space are needed (check `ulimit -v`)")]
    Memory,
    /// The shared memory is outside of the guest's memory.
    #[error("shared memory of the handler is out of bounds")]
    Area,
    /// The process could not be started.
    #[error("cannot start the handler's process: {0}")]
    Process(#[from] io::Error),
    /// The kernel could not confine the process.
    #[error("cannot confine the handler's process (step {0}): the kernel refuses seccomp")]
    Confine(u32),
}

/// Guest with memory of its own.
#[derive(Debug)]
pub struct Guest(Inner);

#[derive(Debug)]
enum Inner {
    InProcess(in_process::InProcessGuest),
    Process(process::Process),
}

impl Guest {
    /// Starts a guest with shared memory of `area_bytes`, and a CPU time limit for each call.
    pub fn open(built: &BuiltGuest, area_bytes: usize, limit: Duration) -> Result<Self, OpenError> {
        Ok(Self(match built.kind {
            SandboxKind::Wasm => {
                Inner::InProcess(in_process::InProcessGuest::open(&built.file, false, area_bytes, limit)?)
            }
            SandboxKind::Native => {
                Inner::InProcess(in_process::InProcessGuest::open(&built.file, true, area_bytes, limit)?)
            }
            SandboxKind::Process => Inner::Process(process::Process::open(&built.file, area_bytes, limit)?),
        }))
    }

    /// Memory shared with the host, to be used between calls.
    pub fn area(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::InProcess(guest) => guest.area(),
            Inner::Process(process) => process.area(),
        }
    }

    /// Calls `pc_enter(entry, argument)`. After a trap the guest has to be restarted.
    #[inline]
    pub fn enter(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        match &mut self.0 {
            Inner::InProcess(guest) => guest.enter(entry, argument, host),
            Inner::Process(process) => process.enter(entry, argument, host),
        }
    }

    /// Gives the guest fresh memory, as after [`Self::open`].
    pub fn restart(&mut self) -> Result<(), OpenError> {
        match &mut self.0 {
            Inner::InProcess(guest) => guest.restart(),
            Inner::Process(process) => process.restart(),
        }
    }
}

#[cfg(test)]
mod tests;
