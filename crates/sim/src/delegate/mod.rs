//! Calls that servers pass on: real callers and workers in a network that loses, delays and reorders messages,
//! on hosts that die, with clocks that differ, beside a stranger.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ host: Caller, Worker, handlers that do as planned
//!                  ├─ stranger: repeats and forges
//!                  └─ judge: nothing twice, complete only with all, failed in time, nothing left
//! ```

mod host;
mod judge;
mod network;
pub(crate) mod part;
pub mod plan;
mod shrink;
mod stranger;
mod work;
pub(crate) mod world;

use std::time::Duration;

use pathcall_endpoint::delegate::caller::Outcome as CallOutcome;

pub use judge::{Tag, Wrong};
pub use plan::Plan;

use crate::ability::{self, Ability, caught};
use crate::around::Around;
use crate::part::Part;
use crate::tally::tally;
use world::World;

tally! {
    /// What was counted.
    pub struct Tally {
        /// Calls made.
        pub calls: u64,
        /// Requests of their trees.
        pub requests: u64,
        /// Times that a handler began to work on one.
        pub executions: u64,
        /// Replies that callers got.
        pub replies: u64,
        /// Calls that ended complete.
        pub complete: u64,
        /// Calls that failed, each time.
        pub failed: u64,
        /// Calls that were aborted.
        pub aborted: u64,
        /// Messages sent.
        pub messages: u64,
        /// Messages that came to somebody.
        pub delivered: u64,
        /// Messages lost.
        pub lost: u64,
        /// Messages that a stranger repeated.
        pub repeated: u64,
        /// Messages that a stranger made up.
        pub forged: u64,
        /// Processes that died.
        pub crashes: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

impl Tally {
    fn count(&mut self, outcome: &CallOutcome) {
        match outcome {
            CallOutcome::Complete => self.complete += 1,
            CallOutcome::Failed(_) => self.failed += 1,
            CallOutcome::Aborted { .. } => self.aborted += 1,
        }
    }
}

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;

/// The ability.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Ability for Sim {
    const NAME: &'static str = "delegate";
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
        *text = world.text;
        Outcome { seed: plan.seed, trace_hash: world.hash, tally: world.tally, failure }
    }

    fn smallest(plan: &Plan, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
        shrink::smallest(plan, fails)
    }
}
