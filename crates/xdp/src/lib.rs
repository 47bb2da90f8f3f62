//! Switch program in the kernel: loads `bpf/`, attaches it to interfaces (XDP), and changes its tables.
//!
//! ```text
//! element ── install, set_endpoint, … ─▶ KernelSwitch ── maps, control programs ─▶ ┌────────────┐
//!                                                                  frames ─▶ │ bpf/ (XDP) │ ─▶ frames
//! frames that came another way ── run ─▶        ── BPF_PROG_RUN ───────────▶ └────────────┘
//! ```
//!
//! The caller asks [`pathcall_program::AdmissionTables`] for each change of the tables first, and then passes on what
//! was accepted; nothing is checked here. A change is in force for every frame when the call returns. Where registers
//! are reset, frames of their last holder have left the program by then.
//!
//! Without the feature `kernel` there is only [`AVAILABLE`], because clang and libbpf are needed to build the rest.

#![warn(missing_docs)]

/// Whether the program was built in.
pub const AVAILABLE: bool = cfg!(feature = "kernel");

#[cfg(feature = "kernel")]
mod attach;
#[cfg(feature = "kernel")]
pub mod cost;
#[cfg(feature = "kernel")]
mod error;
#[cfg(feature = "kernel")]
pub mod function;
#[cfg(feature = "kernel")]
mod group;
#[cfg(feature = "kernel")]
mod kernel;
#[cfg(feature = "kernel")]
mod layout;
#[cfg(feature = "kernel")]
mod objects;
#[cfg(feature = "kernel")]
mod packet;
#[cfg(feature = "planted")]
mod planted;
#[cfg(feature = "kernel")]
mod pool;
#[cfg(feature = "kernel")]
mod read;
#[cfg(feature = "kernel")]
mod run;
#[cfg(feature = "kernel")]
mod typical_frames;

#[cfg(feature = "kernel")]
pub use attach::AttachMode;
#[cfg(feature = "kernel")]
pub use error::Error;
#[cfg(feature = "kernel")]
pub use kernel::{Config, KernelSwitch};
#[cfg(feature = "kernel")]
pub use objects::BpfObjects;
#[cfg(feature = "kernel")]
pub use packet::{Packet, SLOW_CLONE, SLOW_FORWARD, SLOW_MULTICAST};
#[cfg(feature = "kernel")]
pub use pool::CloneTableSlot;
#[cfg(feature = "kernel")]
pub use read::{KernelCounters, RepeatFilterWords, RowRegisters};
#[cfg(feature = "kernel")]
pub use run::RunResult;
#[cfg(feature = "kernel")]
pub use typical_frames::TypicalFrame;
