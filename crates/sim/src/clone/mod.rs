//! Calls that any of several servers can answer: real callers and servers around the real switch program,
//! in a network that loses, repeats and reorders, beside a stranger, while servers come, go and die.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ callers and servers: Caller, Worker; some servers lie about their queues
//!                  ├─ element: Program with small tables, watched
//!                  ├─ network: faults, a stranger; pools that change, and are heard of late
//!                  └─ judge: one whole answer or a failure in time, nothing cloned that may not be, budgets, bounds
//! ```

pub(crate) mod element;
mod hosts;
mod judge;
mod network;
pub(crate) mod part;
mod payload;
pub mod plan;
mod shrink;
pub(crate) mod world;

use std::time::Duration;

pub use judge::Wrong;
pub use plan::Plan;

use crate::ability::{self, Ability, caught};
use crate::around::Around;
use crate::part::Part;
use crate::tally::tally;
use world::World;

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;

tally! {
    /// What was counted.
    pub struct Tally {
        /// Calls made.
        pub calls: u64,
        /// Calls that were answered.
        pub answered: u64,
        /// Calls that failed at their deadlines.
        pub failed: u64,
        /// Requests that servers began to work on.
        pub executions: u64,
        /// Requests that were cloned on their way.
        pub cloned: u64,
        /// Clones that servers dropped because others waited.
        pub clones_dropped: u64,
        /// Second answers that were stopped on their way.
        pub filtered: u64,
        /// Second answers that came to callers.
        pub redundant: u64,
        /// Failures that callers did not take for the answer at once.
        pub set_aside: u64,
        /// Requests that callers sent again.
        pub resent: u64,
        /// Requests that a budget did not allow.
        pub refused: u64,
        /// Times that callers began to go past a silent element.
        pub silent: u64,
        /// Frames sent.
        pub frames: u64,
        /// Frames lost.
        pub lost: u64,
        /// Frames that came once more.
        pub repeated: u64,
        /// Frames that a stranger made up.
        pub forged: u64,
        /// Restarts of elements, deaths of servers, changes of pools.
        pub incidents: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// The ability.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Ability for Sim {
    const NAME: &'static str = "clone";
    type Plan = Plan;
    type Tally = Tally;
    type Wrong = Wrong;

    fn generate(seed: u64) -> Plan {
        plan::generate(seed)
    }

    fn play_in(plan: &Plan, text: &mut Option<String>) -> Outcome {
        let mut world = World::new(plan, Around::default());
        world.text = text.take();
        let wrong = caught(|| world.play(), Wrong::Panic);
        let failure = wrong.map(|wrong| (world.now, wrong));
        world.count();
        *text = world.text;
        Outcome { seed: plan.seed, trace_hash: world.hash, tally: world.tally, failure }
    }

    fn smallest(plan: &Plan, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
        shrink::smallest(plan, fails)
    }
}
