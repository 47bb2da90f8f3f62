//! One direction of a link between two nodes: arrival times of frames, losses and repeats.
//!
//! ```text
//! frame ─► cut? ─► [ queue │ rate ] ─► delay + jitter ─► loss, repeats, reordering ─► arrivals
//!         a [`CutLink`]   a [`Wire`], its limits changing         a [`FaultyLink`] around it
//! ```

mod cut;
mod faulty;
mod wire;

use pathcall_wire::Instant;

pub use cut::{CutLink, Outage};
pub use faulty::{Faults, FaultyLink};
pub use wire::{Wire, WireSpec};

/// Arrival of a frame at the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameArrival {
    /// Time of the arrival.
    pub at: Instant,
    /// Whether the frame met a queue over the threshold (ECN).
    pub marked: bool,
}

/// Effects of a link on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkOutcome {
    /// Cause of the loss, if the frame is lost.
    pub lost: Option<LossCause>,
    /// Whether the frame arrives more than once.
    pub repeated: bool,
    /// Whether the frame was held back, so that later ones may overtake it.
    pub delayed: bool,
}

/// Cause of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Random loss.
    Chance,
    /// Full queue.
    QueueFull,
    /// Outage of the link.
    Cut,
    /// Damage: at most invalid bytes arrive in place of the frame.
    Damaged,
}

/// One direction of a link. Each kind of fault is an implementation of this trait.
pub trait LinkModel {
    /// Carries a frame of `len` bytes that is sent at `now`, and appends its arrivals.
    fn transmit(&mut self, now: Instant, len: usize, arrivals: &mut Vec<FrameArrival>) -> LinkOutcome;
}
