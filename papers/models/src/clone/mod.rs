//! How long calls take at the scale of microseconds: the real callers, servers, coordinator and switch program in
//! virtual time, on a bed like the paper's (NetClone §5.1).
//!
//! ```text
//! callers: Poisson arrivals ─▶ sender ─▶ wire ─▶ switch ─▶ wire ─▶ dispatcher ─▶ queue ─▶ workers
//!    └ latency, from when a call was to be made ◀─ receiver ◀─ wire ◀─ switch ◀─ wire ◀──────┘
//! ```
//!
//! Each thread of a host takes a time of its own for each frame, one after the other; [`Costs`] says which. Wires
//! and the switch take theirs, however many frames there are. Nothing is lost, so nothing is sent twice but clones.

mod coordinator;
mod model;
mod scheme;
mod workload;

use std::time::Duration;

pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorStats};
pub use scheme::{ParseSchemeError, Scheme};
pub use workload::{Service, Workload};

use crate::histogram::Histogram;

/// The hosts and what is between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Bed {
    /// Workers of each server.
    pub workers: Vec<usize>,
    /// Hosts that call.
    pub callers: usize,
    /// What frames cost.
    pub costs: Costs,
    /// Whether the switch stops the second answers to cloned calls (Fig. 15).
    pub filter: bool,
    /// The switch loses all, and what it knows, from then until then (Fig. 16).
    pub outage: Option<(Duration, Duration)>,
    /// Width of the steps of [`Measured::timeline`].
    pub step: Duration,
}

impl Default for Bed {
    /// The paper's: two hosts call six servers of fifteen workers.
    fn default() -> Self {
        Self {
            workers: vec![15; 6],
            callers: 2,
            costs: Costs::default(),
            filter: true,
            outage: None,
            step: Duration::from_millis(1),
        }
    }
}

impl Bed {
    /// Calls that all workers together can answer in a second, without clones.
    #[must_use]
    pub fn capacity(&self, workload: &Workload) -> f64 {
        let call = workload.mean() + self.costs.reply;
        self.workers.iter().sum::<usize>() as f64 / call.as_secs_f64()
    }
}

/// What frames cost. The paper gives none of these: they are those of its class of hosts, of kernel-bypass sockets
/// at two to three million frames a second and core, and of a switch that takes hundreds of nanoseconds (§1, §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// From one host's memory to the switch, or back.
    pub wire: Duration,
    /// A pass through the switch.
    pub switch: Duration,
    /// What a clone takes longer, for its second pass.
    pub recirculate: Duration,
    /// A frame, at the caller's sending thread.
    pub send: Duration,
    /// A frame, at the caller's receiving thread.
    pub receive: Duration,
    /// A frame, at the server's dispatcher.
    pub dispatch: Duration,
    /// An answer, at the worker that sends it.
    pub reply: Duration,
    /// A frame, in or out, at LÆDGE's coordinator, which has one thread.
    pub coordinate: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            wire: Duration::from_nanos(800),
            switch: Duration::from_nanos(400),
            recirculate: Duration::from_nanos(400),
            send: Duration::from_nanos(300),
            receive: Duration::from_nanos(400),
            dispatch: Duration::from_nanos(300),
            reply: Duration::from_nanos(300),
            coordinate: Duration::from_nanos(300),
        }
    }
}

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// How calls are steered.
    pub scheme: Scheme,
    /// How long they take.
    pub workload: Workload,
    /// Calls made, as a share of [`Bed::capacity`].
    pub load: f64,
    /// Where chance comes from.
    pub seed: u64,
    /// For how long calls are made. Those of the first tenth are not measured.
    pub duration: Duration,
}

/// What came out, of calls that were made after the first tenth of the time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Latencies of calls that were answered, from when they were to be made.
    pub latency: Histogram,
    /// Calls made, in a second.
    pub offered: f64,
    /// Calls answered while calls were made, in a second.
    pub throughput: f64,
    /// Of all calls, from the first on: made.
    pub calls: u64,
    /// Of all calls: that ended without an answer.
    pub failed: u64,
    /// Requests that came to servers beyond one for each call.
    pub extra: u64,
    /// Of those, clones that servers dropped because others waited.
    pub dropped: u64,
    /// Second answers that the switch stopped, or the coordinator.
    pub filtered: u64,
    /// Second answers that came to callers.
    pub redundant: u64,
    /// Answers that said that nobody waits (Fig. 13).
    pub idle: u64,
    /// Answers that servers gave.
    pub answers: u64,
    /// Calls answered in each [`Bed::step`] of the time.
    pub timeline: Vec<u64>,
}

/// Runs calls on a bed: the same each time.
#[must_use]
pub fn measure(bed: &Bed, run: &Run) -> Measured {
    model::Model::new(bed, run).run()
}
