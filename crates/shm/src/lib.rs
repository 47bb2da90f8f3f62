//! Frames between two processes of one host through memory that both have mapped; and values of a group of them.
//!
//! ```text
//! one side                    shared memory                     the other
//!   Producer ── frames ──▶ ring, 512 KiB ──────────────▶ Consumer
//!   Consumer ◀────────────── ring, 512 KiB ◀── frames ── Producer
//!   Peer     ◀── unix socket: the memory itself, bells, the end ──▶ Peer
//! ```
//!
//! In the order in which a pair of processes meets them: [`peer`] is the socket between them, by which
//! one gives the other the memory, each wakes the other, and learns that it is gone; [`map`] makes that memory and
//! checks what came; [`ring`] moves frames through it. Who may speak with whom is the caller's business
//! (the links of `pathcall-endpoint`).
//!
//! Beside it stands [`group`]: processes that trust each other and work together on values in memory of all.
//!
//! **The other side of a ring is hostile.** It may write anything into the memory at any moment and may stop at any
//! instruction. So the memory is read and written as atomic words only; a frame is copied out before
//! anybody looks at it; positions and lengths are checked against bounds that this side keeps for itself;
//! nothing waits for the other side. The worst that it can do is to lose the frames of this one ring.

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
pub use group::Group;
#[cfg(target_os = "linux")]
pub use map::Map;
#[cfg(target_os = "linux")]
pub use peer::{Listener, Peer};
pub use ring::{Consumer, Corrupt, Producer, Side, pair};
