//! Latency of cloned calls at the scale of microseconds: the real callers, servers, coordinator and switch program in
//! virtual time, on hosts like the paper's (NetClone §5.1).
//!
//! ```text
//! callers: Poisson arrivals ─▶ sender ─▶ wire ─▶ switch ─▶ wire ─▶ dispatcher ─▶ queue ─▶ workers
//!    └ latency, from the scheduled start ◀─── receiver ◀─ wire ◀─ switch ◀─ wire ◀───────────┘
//! ```
//!
//! Each thread of a host processes one frame after the other. [`FrameCosts`] lists the time per frame. Wires and the
//! switch have a constant delay, independent of the load. Frames are never lost, so clones are the only repeated
//! requests, unless [`CloneTestbed::product`] is set.

mod coordinator;
mod frame_pool;
mod model;
mod scheme;
mod serial_thread;
mod tables;
mod workload;

use std::time::Duration;

use pathcall_endpoint::clone::HedgeBudgetConfig;
pub use pathcall_endpoint::clone::{KnownLoads, PolicyStats};

pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorStats};
pub use scheme::{ParseSchemeError, Scheme};
pub use workload::{Service, Workload};

use crate::histogram::Histogram;

/// Hosts, and the network between them.
#[derive(Debug, Clone, PartialEq)]
pub struct CloneTestbed {
    /// Workers of each server.
    pub workers: Vec<usize>,
    /// Calling hosts.
    pub callers: usize,
    /// Time per frame.
    pub costs: FrameCosts,
    /// Whether the switch has the program. If not, it forwards each request to the first server of its pair.
    pub element: bool,
    /// What callers know of the servers' loads.
    pub known_loads: KnownLoads,
    /// True if the switch drops second answers of cloned calls (Fig. 15).
    pub filter: bool,
    /// Start and end of an outage, in which the switch drops all frames and loses its state (Fig. 16).
    pub outage: Option<(Duration, Duration)>,
    /// Start and end of a time in which all servers take ten times as long.
    pub slow: Option<(Duration, Duration)>,
    /// Requests that all servers together serve at once, in the order of their arrival there, if they share something
    /// that is scarce; 0: they share nothing.
    pub shared_slots: usize,
    /// Limit of extra requests of [`Scheme::Automatic`]; other schemes have none.
    pub budget: HedgeBudgetConfig,
    /// Factor on the execution times of the last server.
    pub slow_server: u32,
    /// Whether callers repeat unanswered calls, and all schemes send no extra requests while all servers are slow.
    pub product: bool,
    /// Width of a step of [`CloneResults::timeline`].
    pub step: Duration,
}

/// Default limit of extra requests of a method whose policy is chosen automatically.
pub const AUTOMATIC_BUDGET: HedgeBudgetConfig = HedgeBudgetConfig { share: 0.1, burst: 500.0, per_second: 100.0 };

impl Default for CloneTestbed {
    /// The paper's testbed: two hosts call six servers of fifteen workers.
    fn default() -> Self {
        Self {
            workers: vec![15; 6],
            callers: 2,
            costs: FrameCosts::default(),
            element: true,
            known_loads: KnownLoads::default(),
            filter: true,
            outage: None,
            slow: None,
            shared_slots: 0,
            budget: AUTOMATIC_BUDGET,
            slow_server: 1,
            product: false,
            step: Duration::from_millis(1),
        }
    }
}

impl CloneTestbed {
    /// Calls per second that all workers can answer together, without clones.
    #[must_use]
    pub fn capacity(&self, workload: &Workload) -> f64 {
        let call = workload.mean() + self.costs.reply;
        self.workers.iter().sum::<usize>() as f64 / call.as_secs_f64()
    }
}

/// Time per frame in each part of the model. The paper gives no such times. These are assumptions for hosts of the
/// paper's class: kernel-bypass sockets at two to three million frames per second and core, and a switch latency of
/// hundreds of nanoseconds (§1, §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameCosts {
    /// From the memory of one host to the switch, or back.
    pub wire: Duration,
    /// Pass through the switch.
    pub switch: Duration,
    /// Second pass of a clone through the switch.
    pub recirculate: Duration,
    /// Frame in the caller's sending thread.
    pub send: Duration,
    /// Frame in the caller's receiving thread.
    pub receive: Duration,
    /// Frame in the server's dispatcher.
    pub dispatch: Duration,
    /// Answer in the worker that sends it.
    pub reply: Duration,
    /// Frame, in or out, in LÆDGE's coordinator, which has one thread.
    pub coordinate: Duration,
}

impl Default for FrameCosts {
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

/// Usual fixed delay of a hedge in mean service times: about one call in twenty is hedged.
pub const HEDGED_AFTER: f64 = 3.0;

/// Parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CloneRun {
    /// Scheme that steers the calls.
    pub scheme: Scheme,
    /// Distribution of the service times.
    pub workload: Workload,
    /// Offered load, as a share of [`CloneTestbed::capacity`].
    pub load: f64,
    /// Fixed delay of a hedge in mean service times.
    pub hedged_after: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Time in which callers make calls. Calls of the first tenth are not measured.
    pub duration: Duration,
}

/// Results of a run, for calls made after the first tenth of the time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CloneResults {
    /// Latencies of answered calls, from the scheduled start.
    pub latency: Histogram,
    /// Calls made per second.
    pub offered: f64,
    /// Calls answered per second, while callers make calls.
    pub throughput: f64,
    /// Calls made, the first tenth included.
    pub calls: u64,
    /// Calls that ended without an answer, the first tenth included.
    pub failed: u64,
    /// Requests received by servers beyond one per call.
    pub extra: u64,
    /// Clones that servers dropped because other requests waited.
    pub dropped: u64,
    /// Second answers dropped by the switch or the coordinator.
    pub filtered: u64,
    /// Second answers received by callers.
    pub redundant: u64,
    /// Answers that report an empty queue (Fig. 13).
    pub idle: u64,
    /// Answers sent by servers.
    pub answers: u64,
    /// Calls answered in each [`CloneTestbed::step`].
    pub timeline: Vec<u64>,
    /// Policies that the callers have chosen, at the end.
    pub policies: Vec<PolicyStats>,
    /// Extra requests in each step: sent by callers, or made by the switch.
    pub extra_timeline: Vec<u64>,
}

/// Runs calls on a testbed. The result is deterministic.
#[must_use]
pub fn measure(testbed: &CloneTestbed, run: &CloneRun) -> CloneResults {
    model::RackModel::new(testbed, run).run()
}
