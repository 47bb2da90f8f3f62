//! Simulation of clone: real callers and servers around the real switch program, in a network with loss, repeats and
//! reordering, with an attacker, and with servers that join, leave and die.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ callers and servers: Caller, Worker; some servers report a wrong state
//!                  ├─ element: Program with small tables, each verdict checked
//!                  ├─ network: faults, an attacker; pool updates that arrive late
//!                  └─ checker: one whole answer or a failure in time, only permitted clones, budgets, bounds
//! ```

mod checker;
pub(crate) mod element;
mod hosts;
mod network;
pub(crate) mod part;
mod payload;
pub mod plan;
mod shrink;
pub(crate) mod world;

use std::time::Duration;

pub use checker::CloneViolation;
pub use plan::ClonePlan;

use crate::counts::counts;
use crate::environment::Environment;
use crate::simulation::{self, Simulation, caught};
use crate::stepping::SteppedRun;
use world::CloneWorld;

/// Result of a run.
pub type CloneOutcome = simulation::RunOutcome<CloneCounts, CloneViolation>;

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
        /// Extra requests that the hedge budget refused.
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

    fn generate(seed: u64) -> ClonePlan {
        plan::generate(seed)
    }

    fn play_with_trace(plan: &ClonePlan, text: &mut Option<String>) -> CloneOutcome {
        let mut world = CloneWorld::new(plan, Environment::default());
        world.text = text.take();
        let violation = caught(|| world.play(), CloneViolation::Panic);
        let failure = violation.map(|violation| (world.now, violation));
        world.count();
        *text = world.text;
        CloneOutcome { seed: plan.seed, trace_hash: world.hash, counts: world.counts, failure }
    }

    fn shrink_plan(plan: &ClonePlan, fails: &mut dyn FnMut(&ClonePlan) -> bool) -> ClonePlan {
        shrink::shrink_plan(plan, fails)
    }
}
