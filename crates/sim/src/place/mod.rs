//! A host that chooses a path for each message: the real selector between an application and two hosts whose nodes and
//! links are slow, stand still or die; with time stamps that mislead, and a network that takes its time.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ selector: the real one, any strategy
//!                  ├─ bed: nodes and links of both hosts, first come, first served; the network between them
//!                  └─ judge: one answer each, in order, no stale value; counts at rest; devices left, and used again
//! ```

mod bed;
pub mod beds;
mod judge;
pub mod plan;
mod shrink;
pub(crate) mod station;
pub(crate) mod world;

use std::time::Duration;

pub use bed::{Bed, Between, Next};
pub use judge::Wrong;
pub use plan::Plan;
pub use station::{Spell, Trouble};

use crate::ability::{self, Ability, caught};
use crate::part::Part;
use crate::tally::tally;
use world::World;

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;

tally! {
    /// What was counted.
    pub struct Tally {
        /// Requests made.
        pub requests: u64,
        /// Of them, answered.
        pub answered: u64,
        /// Given up after failures.
        pub given_up: u64,
        /// Abandoned by who had made them.
        pub abandoned: u64,
        /// That waited for others before they went.
        pub waited: u64,
        /// Times that the selector was full.
        pub full: u64,
        /// Messages sent: requests, some of them again.
        pub messages: u64,
        /// That went where one before them is on its way.
        pub followed: u64,
        /// That took another path than the one of their type before them.
        pub changes: u64,
        /// That were lost.
        pub lost: u64,
        /// That were late, and taken for lost.
        pub overdue: u64,
        /// That failed, with another or for themselves.
        pub failed: u64,
        /// That found out whether a path is well again.
        pub probes: u64,
        /// Times that a path was left.
        pub left: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// The ability.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Ability for Sim {
    const NAME: &'static str = "place";
    type Plan = Plan;
    type Tally = Tally;
    type Wrong = Wrong;

    fn generate(seed: u64) -> Plan {
        plan::generate(seed)
    }

    fn play_in(plan: &Plan, text: &mut Option<String>) -> Outcome {
        let paths = beds::paths(plan.hosts, plan.app);
        let mut world = World::new(plan, &paths, false);
        world.text = text.take().map(|text| text + &world::spells(plan));
        let wrong = caught(|| world.play(), Wrong::Panic);
        let failure = wrong.map(|wrong| (world.now, wrong));
        *text = world.text.take();
        Outcome { seed: plan.seed, trace_hash: world.hash, tally: world.tally, failure }
    }

    fn smallest(plan: &Plan, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
        shrink::smallest(plan, fails)
    }
}
