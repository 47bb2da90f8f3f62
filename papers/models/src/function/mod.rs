//! Model of placement at the paper's scale (CLIP §VII-B): the real `Placer` and `LeaseHolder` with a model of the
//! element's sketch and tables, flows by Zipf's law, and servers that process one packet after the other.
//!
//! ```text
//! Traffic (flows, α) ─► windows of packets ─► sketch, table ─┬─ hits ─► element's time
//!                          ▲ placed at each window's end ────┘ rest ─► servers' queues
//! ```
//!
//! Values that the paper does not give are assumed and named: see [`PacketCosts`].

mod queue;
mod routes;
mod table;

use std::time::Duration;

use pathcall_netfn::place::PlacementStrategy;

pub use queue::{PacketCosts, PacketLatency};
pub use table::{PlacementResults, run};

/// Match kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchKind {
    /// Each flow has its own entry.
    Exact,
    /// Flows are addresses, entries are prefixes.
    Longest,
}

/// Parameters of a placement run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementRun {
    /// Match kind of the table.
    pub kind: MatchKind,
    /// Strategy of the placer.
    pub strategy: PlacementStrategy,
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Number of flows.
    pub flows: usize,
    /// Entries that fit into the element.
    pub room: usize,
    /// Packets per window.
    pub window: usize,
    /// Number of windows. The second half is measured.
    pub windows: usize,
    /// Columns of the sketch, base-2 logarithm.
    pub sketch_log2: u16,
    /// Seed of the run.
    pub seed: u64,
}

impl PlacementRun {
    /// Creates a run of 20,000 flows, a million packets in ten windows, and a sketch of 2 × 32,768 columns.
    #[must_use]
    pub fn new(kind: MatchKind, strategy: PlacementStrategy, alpha: f64, room: usize, seed: u64) -> Self {
        Self { kind, strategy, alpha, flows: 20_000, room, window: 200_000, windows: 12, sketch_log2: 15, seed }
    }
}

/// Length of a window.
pub(crate) const WINDOW: Duration = Duration::from_millis(1049);
