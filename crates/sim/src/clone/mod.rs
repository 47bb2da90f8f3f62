//! Simulation of clone: real callers and servers around the real switch program, in a network with loss, repeats and
//! reordering, with an attacker, and with servers that join, leave and die.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ callers and servers: Caller, Worker; some servers report a wrong state
//!                  ├─ elements: one, or one in each of two racks: Program with small tables, each verdict checked;
//!                  │  some hold hedges
//!                  ├─ streams: streaming calls and their hedges
//!                  ├─ network: faults, an attacker; pool updates that arrive late
//!                  └─ checker: one whole answer or a failure in time, only permitted clones, budgets, bounds; no clones
//!                     while all servers are slow; no policy that is worse than another
//! ```

mod automatic;
mod checker;
pub(crate) mod element;
mod holding;
mod hosts;
mod network;
pub(crate) mod part;
mod payload;
pub mod plan;
mod racks;
mod slowdown;
pub mod streams;
mod violation;
pub(crate) mod world;

use std::time::Duration;

pub use holding::HoldPlan;
pub use plan::ClonePlan;
pub use racks::RackAssignment;
pub use streams::StreamViolation;
pub use violation::CloneViolation;

use crate::counts::counts;
use crate::environment::Environment;
use crate::minimizer::{FailureTest, Minimizer, ShrinkList, remove_range};
use crate::random::Chance;
use crate::simulation::{RunOutcome, Simulation};
use crate::timeline::SteppedRun;
use world::CloneWorld;

/// Result of a run.
pub type CloneOutcome = RunOutcome<CloneCounts, CloneViolation>;

counts! {
    /// Counts of a run.
    pub struct CloneCounts {
        /// Calls that were made.
        pub calls: u64,
        /// Calls that were answered.
        pub answered: u64,
        /// Calls that failed at their deadlines.
        pub failed: u64,
        /// Executions.
        pub executions: u64,
        /// Requests that the element cloned.
        pub cloned: u64,
        /// Held hedges that the element sent.
        pub hedges: u64,
        /// Clones that servers dropped because their queue was not empty.
        pub clones_dropped: u64,
        /// Slower answers that the element dropped.
        pub filtered: u64,
        /// Slower answers that callers received.
        pub redundant: u64,
        /// Failures of servers that callers set aside to wait for another answer.
        pub set_aside: u64,
        /// Repeated requests of callers.
        pub resent: u64,
        /// Extra requests that callers refused, for any reason.
        pub refused: u64,
        /// Times that a caller began to bypass a silent element.
        pub silent: u64,
        /// Frames that were sent.
        pub frames: u64,
        /// Frames that were lost.
        pub lost: u64,
        /// Frames that were duplicated.
        pub repeated: u64,
        /// Frames that the attacker forged.
        pub forged: u64,
        /// Restarts of elements, deaths of servers, changes of pools.
        pub incidents: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// Simulation of clone.
#[derive(Debug, Clone, Copy)]
pub enum CloneSimulation {}

impl Simulation for CloneSimulation {
    const NAME: &'static str = "clone";
    type Plan = ClonePlan;
    type Counts = CloneCounts;
    type Violation = CloneViolation;

    const CHANGES: &'static [fn(&mut ClonePlan)] = &[
        |plan| plan.loss = Chance(0),
        |plan| plan.repeat = Chance(0),
        |plan| plan.late = Chance(0),
        |plan| plan.forged = Chance(0),
        |plan| plan.delay.1 = plan.delay.0,
        |plan| plan.servers.iter_mut().for_each(|server| server.reported_state = None),
        |plan| plan.servers.iter_mut().for_each(|server| server.fails = Chance(0)),
        |plan| plan.streams = None,
        |plan| plan.racks = None,
        |plan| plan.holding = None,
    ];
    const LISTS: &'static [ShrinkList<ClonePlan>] = &[
        |plan, part| remove_range(&mut plan.calls, part),
        |plan, part| remove_range(&mut plan.incidents, part),
        |plan, part| plan.streams.as_mut().map_or(0, |streams| remove_range(&mut streams.calls, part)),
    ];

    fn generate(seed: u64) -> ClonePlan {
        let plan = automatic::with_automatic_calls(slowdown::with_slow_time(plan::generate(seed)));
        holding::with_holding(racks::with_racks(streams::with_streams(plan)))
    }

    fn play_with_trace(plan: &ClonePlan, text: &mut Option<String>) -> CloneOutcome {
        CloneWorld::new(plan, Environment::default()).outcome(plan.seed, text, CloneViolation::Panic)
    }

    fn shrink_plan(plan: &ClonePlan, fails: FailureTest<'_, ClonePlan>) -> ClonePlan {
        let mut smaller = Minimizer::new(plan, Self::SHRINK_RUNS_MAX, fails);
        smaller.minimize(Self::CHANGES, Self::LISTS);
        for at in 0..smaller.best.calls.len() {
            smaller.try_change(|plan| plan.calls[at].request = 0);
            smaller.try_change(|plan| plan.calls[at].reply = 0);
            smaller.try_change(|plan| plan.calls[at].options.patience = Some(Duration::ZERO));
        }
        smaller.best
    }
}
