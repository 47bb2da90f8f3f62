//! What placement gains at the paper's scale (CLIP §VII-B): the real `Placer` and `Holder` with a model of the
//! element's sketch and tables, Zipf's flows, and servers that work on one packet after the other.
//!
//! ```text
//! Traffic (flows, α) ─► windows of packets ─► sketch, table ─┬─ hits ─► element's time
//!                          ▲ placed at each window's end ────┘ rest ─► servers' queues
//! ```
//!
//! What the paper does not give is assumed, and named: see [`Costs`].

mod queue;
mod routes;
mod table;

use std::time::Duration;

use pathcall_function::place::Strategy;

pub use queue::{Costs, Latency};
pub use table::{Measured, run};

/// How a table is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Each flow has an entry of its own.
    Exact,
    /// Flows are addresses, entries are prefixes.
    Longest,
}

/// What is placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Exact or by the longest prefix.
    pub kind: Match,
    /// What is placed.
    pub strategy: Strategy,
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Flows.
    pub flows: usize,
    /// Entries that the element has room for.
    pub room: usize,
    /// Packets in a window.
    pub window: usize,
    /// Windows; what is measured is the last half of them.
    pub windows: usize,
    /// Columns of the sketch, logarithm to the base 2.
    pub sketch_log2: u16,
    /// Where chance comes from.
    pub seed: u64,
}

impl Run {
    /// A run of 20,000 flows, a million packets in ten windows, with a sketch of 2 × 32,768 columns.
    #[must_use]
    pub fn new(kind: Match, strategy: Strategy, alpha: f64, room: usize, seed: u64) -> Self {
        Self { kind, strategy, alpha, flows: 20_000, room, window: 200_000, windows: 12, sketch_log2: 15, seed }
    }
}

/// How long a window takes.
pub(crate) const WINDOW: Duration = Duration::from_millis(1049);
