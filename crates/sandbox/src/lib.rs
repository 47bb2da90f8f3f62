//! Runs C that must harm nothing but itself: what a network function's handler is written in.
//!
//! ```text
//! C text ─► build (clang → wasm2c → cc, or cc) ─► Guest ── enter(entry, argument) ─► returns │ Trap
//!                                                   │ ▲
//!                                        area: memory both see      Host::call: what the guest may ask for
//! ```
//!
//! A guest runs in one of three rooms ([`Kind`]), which differ in speed and in what holds it, not in what it sees. In each,
//! a guest that reaches out of its memory, divides by zero, recurses or loops without end is left with a [`Trap`], and
//! [`Guest::restart`] gives it fresh memory; its host goes on.
//!
//! | room | contained by | a call costs |
//! |---|---|---|
//! | [`Kind::Wasm`] | WebAssembly, compiled to C and to machine code | a function call and a `setjmp` |
//! | [`Kind::Process`] | a process without system calls but for two pipes | two switches of processes |
//! | [`Kind::Native`] | nothing: the guest is trusted | as the first |
//!
//! In the order of use: [`build`](mod@build) makes the library or program, `room` and `process` run it, `watch` looks
//! at the clock and takes the signals. [`large_pages`] is for whoever keeps tables for guests.
//!
//! **What a guest is.** Freestanding C that has `void pc_enter(uint32_t entry, uint32_t argument)`, `void *pc_area(void)`,
//! `const uint32_t pc_area_bytes`, and may call `uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t
//! in_bytes, void *out, uint32_t out_bytes, uint64_t value)`.

#![warn(missing_docs)]

pub mod build;
mod pages;
mod process;
mod room;
mod watch;

pub use build::{BuildError, Built, Kind, Message, Source, build};
pub use pages::large_pages;

use std::io;
use std::time::Duration;

/// The longest input of a [`Host::call`], bytes.
pub const INPUT_BYTES_MAX: usize = 1024;
/// The longest output, bytes.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// The processor's time that one call may take, unless it is said otherwise.
pub const LIMIT: Duration = Duration::from_millis(20);

/// What a guest may ask for.
pub trait Host {
    /// Answers `pc_host`. `output` holds what the guest has there, and becomes what it gets. It must not panic.
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64;
}

/// Why a guest was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// It reached out of its memory (a null pointer does, too).
    #[error("out of bounds")]
    Bounds,
    /// An integer was divided by zero.
    #[error("division by zero")]
    Divide,
    /// A quotient has no room in its type.
    #[error("integer overflow in a division")]
    Overflow,
    /// A number that is none became an integer.
    #[error("conversion of what is no number")]
    Conversion,
    /// It came where it says that it never comes.
    #[error("unreachable code")]
    Unreachable,
    /// It called a pointer that is no function of that type.
    #[error("call of what is no such function")]
    Indirect,
    /// It recursed too deeply.
    #[error("stack overflow")]
    Stack,
    /// It took too long.
    #[error("time limit")]
    Time,
    /// Something else.
    #[error("ended")]
    Other,
}

impl Reason {
    /// All of them, for reports.
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

    /// The number that `room.h` gives it, from 1.
    fn from_number(number: u32) -> Self {
        Self::ALL.get((number as usize).wrapping_sub(1)).copied().unwrap_or(Self::Other)
    }

    /// What a signal means.
    fn from_signal(signal: i32) -> Self {
        match signal {
            libc::SIGSEGV | libc::SIGBUS => Self::Bounds,
            libc::SIGFPE => Self::Divide,
            libc::SIGILL | libc::SIGTRAP => Self::Unreachable,
            _ => Self::Other,
        }
    }
}

/// How a call ended that did not return. The guest has to be started anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Trap {
    /// Why.
    pub reason: Reason,
    /// Where in its code, for [`Built::line`]; 0 if that is not known.
    pub at: u64,
}

/// A guest that could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its library could not be loaded.
    #[error("the handler's library can't be loaded: {0}")]
    Load(#[from] libloading::Error),
    /// There is no memory for it, or no 8 GiB of addresses (`ulimit -v`).
    #[error("the handler gets no memory: 8 GiB of addresses are needed, which `ulimit -v` may forbid")]
    Memory,
    /// Its area is not where it should be.
    #[error("the handler's area is not in its memory")]
    Area,
    /// The process does not start.
    #[error("the handler's process does not start: {0}")]
    Process(#[from] io::Error),
    /// The kernel does not confine the process.
    #[error("the handler's process can't be confined (step {0}): the kernel refuses seccomp")]
    Confine(u32),
}

/// A guest with memory of its own.
#[derive(Debug)]
pub struct Guest(Inner);

#[derive(Debug)]
enum Inner {
    Room(room::Room),
    Process(process::Process),
}

impl Guest {
    /// Starts a guest that has an area of `area_bytes`, with so much of the processor's time for a call.
    pub fn open(built: &Built, area_bytes: usize, limit: Duration) -> Result<Self, OpenError> {
        Ok(Self(match built.kind {
            Kind::Wasm => Inner::Room(room::Room::open(&built.file, false, area_bytes, limit)?),
            Kind::Native => Inner::Room(room::Room::open(&built.file, true, area_bytes, limit)?),
            Kind::Process => Inner::Process(process::Process::open(&built.file, area_bytes, limit)?),
        }))
    }

    /// The memory that it shares with its host, between calls.
    pub fn area(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Room(room) => room.area(),
            Inner::Process(process) => process.area(),
        }
    }

    /// Calls it: `pc_enter(entry, argument)`. After a trap it must be restarted.
    #[inline]
    pub fn enter(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        match &mut self.0 {
            Inner::Room(room) => room.enter(entry, argument, host),
            Inner::Process(process) => process.enter(entry, argument, host),
        }
    }

    /// Gives it fresh memory: as it was when it was opened.
    pub fn restart(&mut self) -> Result<(), OpenError> {
        match &mut self.0 {
            Inner::Room(room) => room.restart(),
            Inner::Process(process) => process.restart(),
        }
    }
}

#[cfg(test)]
mod tests;
