//! One direction of a link between two nodes: when, how often and whether a frame arrives.
//!
//! ```text
//! frame ─► cut? ─► [ queue │ rate ] ─► delay + jitter ─► loss, repeats, reordering ─► arrivals
//!        a [`Cut`]   a [`Wire`], its limits changing        a [`Faulty`] around it
//! ```

mod cut;
mod faulty;
mod wire;

use pathcall_wire::Instant;

pub use cut::{Cut, Outage};
pub use faulty::{Faults, Faulty};
pub use wire::{Wire, WireSpec};

/// A frame arriving at the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Whether it met a queue over the threshold (ECN).
    pub marked: bool,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fate {
    /// It does not arrive.
    pub lost: Option<Loss>,
    /// It arrives more than once.
    pub repeated: bool,
    /// It was held back, so that later ones may overtake it.
    pub delayed: bool,
}

/// Why a frame does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// By chance.
    Chance,
    /// The queue was full.
    QueueFull,
    /// The link was cut.
    Cut,
    /// It was damaged: what arrives in its place, if anything, is no frame.
    Damaged,
}

/// One direction of a link. Faults of any kind are implementations of this.
pub trait Link {
    /// Takes a frame of `len` bytes that is sent at `now` and adds its arrivals.
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate;
}
