//! The switch program in the kernel: loads `bpf/`, attaches it to interfaces (XDP), and changes its
//! tables.
//!
//! ```text
//! element ── install, set_endpoint, … ─▶ Kernel ── maps, control programs ─▶ ┌────────────┐
//!                                                                  frames ─▶ │ bpf/ (XDP) │ ─▶ frames
//! frames that came another way ── run ─▶        ── BPF_PROG_RUN ───────────▶ └────────────┘
//! ```
//!
//! Nothing here decides what a change of the tables may be: whoever calls has asked
//! [`pathcall_program::Tables`] first, and tells the kernel what they have taken. A change is in force
//! for every frame when the call returns: where registers start anew, frames of the last holder have
//! left the program by then.
//!
//! Without the feature `kernel` there is [`AVAILABLE`] alone: it takes clang and libbpf to build.

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
mod typical;

#[cfg(feature = "kernel")]
pub use attach::Mode;
#[cfg(feature = "kernel")]
pub use error::Error;
#[cfg(feature = "kernel")]
pub use kernel::{Config, Kernel};
#[cfg(feature = "kernel")]
pub use objects::Objects;
#[cfg(feature = "kernel")]
pub use packet::{Packet, SLOW_CLONE, SLOW_FORWARD, SLOW_MULTICAST};
#[cfg(feature = "kernel")]
pub use pool::Slot;
#[cfg(feature = "kernel")]
pub use read::{Element, Place, Row};
#[cfg(feature = "kernel")]
pub use run::Ran;
#[cfg(feature = "kernel")]
pub use typical::Typical;
