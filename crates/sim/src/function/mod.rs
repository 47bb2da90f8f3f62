//! A network function that is split: the real placement, scaling and generated parts, in the interpreter, around a small
//! function whose packets say what became of them; servers die, the element restarts, groups change, packets get lost.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ element: Interpreter with the split program; Installer
//!                  ├─ servers: handler, mirrored tables, Holder
//!                  ├─ controller: Placer, Scaler
//!                  └─ judge: split equals whole, per flow; order; nothing lost where nothing failed; room; rest
//! ```

mod control;
mod incident;
mod judge;
pub(crate) mod part;
pub mod plan;
mod program;
mod server;
mod shrink;
pub(crate) mod world;

use std::time::Duration;

pub use judge::Wrong;
pub use plan::Plan;
pub use program::Kind;

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
        /// Packets that came in.
        pub packets: u64,
        /// Packets that left.
        pub out: u64,
        /// Of them, those that no server worked on.
        pub in_element: u64,
        /// Requests to servers.
        pub requests: u64,
        /// Packets lost on their way to or from servers, or with them.
        pub lost: u64,
        /// Packets that came once more, to a server or back.
        pub repeated: u64,
        /// Of them, those that a server or the element knew for repeats.
        pub refused: u64,
        /// Packets that others of their flow may overtake.
        pub reordered: u64,
        /// Packets that found no server.
        pub no_server: u64,
        /// Reports of flows.
        pub reports: u64,
        /// Entries that came into the element.
        pub placed: u64,
        /// That left for others.
        pub replaced: u64,
        /// That left because a server said so.
        pub recalled: u64,
        /// Changes of server groups.
        pub groups: u64,
        /// Times that servers were asked for haste.
        pub drains: u64,
        /// Old groups that went although flows needed them: the operator had said when.
        pub overdue: u64,
        /// Servers that died.
        pub deaths: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}

/// The ability.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Ability for Sim {
    const NAME: &'static str = "function";
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
