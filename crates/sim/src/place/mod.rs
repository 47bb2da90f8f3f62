//! Simulation of place: the real path selector between an application and two hosts whose nodes and links become
//! slow, stall or die, with inaccurate time stamps and a network with delay.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ selector: the real one, any strategy
//!                  ├─ hosts: nodes and links of both, first come, first served; the network between them
//!                  └─ checker: one answer each, in order, no stale value; counts 0 at the end; failed devices avoided
//! ```

mod binding;
mod checker;
mod host_pair;
pub mod plan;
pub mod presets;
pub(crate) mod station;
pub(crate) mod world;

use std::time::Duration;

pub use checker::PlaceViolation;
pub use host_pair::{HostPair, NetworkModel, StepResult};
pub use plan::PlacePlan;
pub use station::{StationFault, StationFaultKind};

use crate::counts::counts;
use crate::minimizer::{ShrinkList, remove_range};
use crate::random::Chance;
use crate::simulation::{RunOutcome, Simulation};
use crate::timeline::SteppedRun;
use world::PlaceWorld;

/// Result of a run.
pub type PlaceOutcome = RunOutcome<PlaceCounts, PlaceViolation>;

counts! {
    /// Counts of a run.
    pub struct PlaceCounts {
        /// Requests that were made.
        pub requests: u64,
        /// Requests that were answered.
        pub answered: u64,
        /// Requests that the selector gave up after failures.
        pub given_up: u64,
        /// Requests that their callers abandoned.
        pub abandoned: u64,
        /// Requests that waited for others before they were sent.
        pub waited: u64,
        /// Times that the selector was full.
        pub full: u64,
        /// Messages that were sent: requests, some of them repeatedly.
        pub messages: u64,
        /// Messages that took the path of an earlier one in flight.
        pub followed: u64,
        /// Messages that took another path than the previous one of their type.
        pub changes: u64,
        /// Messages that were lost.
        pub lost: u64,
        /// Messages that were late, and counted as lost.
        pub overdue: u64,
        /// Messages that failed, alone or with their connection.
        pub failed: u64,
        /// Messages that probed a path.
        pub probes: u64,
        /// Times that the selector left a path.
        pub left: u64,
        /// Times that the selector was polled because a device might be stalled.
        pub polls: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// Simulation of place.
#[derive(Debug, Clone, Copy)]
pub enum PlaceSimulation {}

impl Simulation for PlaceSimulation {
    const NAME: &'static str = "place";
    type Plan = PlacePlan;
    type Counts = PlaceCounts;
    type Violation = PlaceViolation;

    const CHANGES: &'static [fn(&mut PlacePlan)] = &[
        |plan| plan.set_further(Vec::new()),
        |plan| plan.noise_ns = 0,
        |plan| plan.unmeasured = Chance(0),
        |plan| plan.network.jitter = 0,
        |plan| plan.network.network_ns.1 = plan.network.network_ns.0,
        |plan| plan.requests.iter_mut().for_each(|ask| ask.abandoned = None),
    ];
    const LISTS: &'static [ShrinkList<PlacePlan>] = &[
        |plan, part| remove_range(&mut plan.requests, part),
        |plan, part| remove_range(&mut plan.station_faults, part),
    ];

    fn generate(seed: u64) -> PlacePlan {
        plan::generate(seed)
    }

    fn play_with_trace(plan: &PlacePlan, text: &mut Option<String>) -> PlaceOutcome {
        let paths = plan.paths();
        PlaceWorld::new(plan, &paths, false).outcome(plan.seed, text, PlaceViolation::Panic)
    }

    fn describe(plan: &PlacePlan) -> String {
        format!("{plan:#?}\n{}", world::station_faults(plan))
    }
}
