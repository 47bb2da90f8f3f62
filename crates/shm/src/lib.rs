//! Shared memory between processes of one host: rings of frames, groups, and windows.
//!
//! ```text
//! one side                    shared memory                     the other
//!   Producer ── frames ──▶ ring, 512 KiB ──────────────▶ Consumer
//!   Consumer ◀────────────── ring, 512 KiB ◀── frames ── Producer
//!   MemoryPeer ◀── unix socket: memory, wake-ups, end of process ──▶ MemoryPeer
//! ```
//!
//! [`peer`] is the socket between a pair of processes: it transfers the memory, wakes the other process, and reports
//! its end. [`map`] creates the memory and checks received memory; [`ring`] transfers frames through it. Access control
//! is the caller's task (the links of `pathcall-endpoint`).
//!
//! Two modules are independent of that: [`group`] is processes that trust each other and work together on values in
//! shared memory; [`window`] is memory of one process that others read and write without its help.
//!
//! **The other side of a ring is hostile.** It may write anything into the memory at any moment and may stop at any
//! instruction. So the memory is accessed as atomic words only; a frame is copied out before it is used; positions and
//! lengths are checked against limits that this side keeps in private memory; no code waits for the other side. The
//! worst that it can do is to lose the frames of this ring.

#![warn(missing_docs)]

#[cfg(target_os = "linux")]
pub mod group;
#[cfg(target_os = "linux")]
pub mod map;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
pub mod peer;
pub mod ring;
#[cfg(target_os = "linux")]
pub mod window;
mod words;

#[cfg(target_os = "linux")]
pub use group::Group;
#[cfg(target_os = "linux")]
pub use map::RingMap;
#[cfg(target_os = "linux")]
pub use peer::{MemoryPeer, PeerListener};
pub use ring::{Consumer, Producer, RingCorruption, RingSide, ring_pair};
#[cfg(target_os = "linux")]
pub use window::{SharedWindow, SharedWindowError};
