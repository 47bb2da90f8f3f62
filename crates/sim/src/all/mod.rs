//! All abilities at one time, on one element: what is sent for one passes what is done for another, and what goes wrong
//! goes wrong for all of them.
//!
//! ```text
//!                      ┌── function (in front, for a while) ──┐
//! map: callers, owners ┤                                      ├─► one switch program ─► owners, callers
//! clone: callers       ┤   frames, wrapped as IPv4 and UDP    │     └─► servers ─► their work, placed ─┐
//! delegate: messages   ┴──────────────────────────────────────┴─► hosts ─► first steps, placed ────────┤
//!                                                                                  place: selector ◄───┘
//! ```
//!
//! Each part is the world that its own simulation plays, with its own plan, network and judge; here their events are
//! played in one order of time. The element fails for all at once, and each part's controller repairs what is its own; a
//! machine that stands still or is cut off is that for every host on it; and [`Wrong`] says what must be so of the
//! whole: no frame goes astray, what the function carries comes out as it went in, the program's counters say what was
//! handed to it, and nothing is left in it in the end.

mod ending;
mod exchange;
mod judge;
mod lines;
mod packet;
pub mod plan;
mod shrink;
mod stage;
mod world;

pub use judge::Wrong;
pub use plan::{Plan, Spell};

use crate::ability::{self, Ability, caught};
use crate::tally::tally;
use crate::{clone, delegate, function, place};
use stage::Stage;
use world::World;

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;

tally! {
    /// What was counted.
    pub struct Tally {
        /// By map.
        pub map: crate::Tally,
        /// By clone.
        pub clone: clone::Tally,
        /// By delegate.
        pub delegate: delegate::Tally,
        /// By function.
        pub function: function::Tally,
        /// By place.
        pub place: place::Tally,
        /// Frames that went through the program.
        pub frames: u64,
        /// Frames and messages that came to the function.
        pub carried: u64,
        /// Of them, those that did not come out.
        pub held_back: u64,
        /// Of them, those that came out again.
        pub again: u64,
        /// Work of servers of clone, and steps of delegated calls, that was placed.
        pub placed: u64,
        /// Of it, what nobody did in the end.
        pub abandoned: u64,
        /// Failures of the element.
        pub failures: u64,
        /// Events that waited for a machine that stood still.
        pub waited: u64,
        /// Frames of one ability in the name of another.
        pub strange: u64,
    }
}

/// All abilities.
#[derive(Debug, Clone, Copy)]
pub enum Sim {}

impl Ability for Sim {
    const NAME: &'static str = "all";
    type Plan = Plan;
    type Tally = Tally;
    type Wrong = Wrong;

    fn generate(seed: u64) -> Plan {
        plan::generate(seed)
    }

    fn play_in(plan: &Plan, text: &mut Option<String>) -> Outcome {
        let stage = Stage::new(plan);
        let lines = lines::Lines::default();
        let (mut map_text, traced) = (lines.clone(), text.is_some());
        let mut outcome = Outcome { seed: plan.seed, trace_hash: 0, tally: Tally::default(), failure: None };
        let made = World::new(plan, &stage, traced.then_some(&mut map_text));
        let mut world = match made {
            Ok(world) => world,
            Err(wrong) => {
                outcome.failure = Some((pathcall_wire::Instant(0), wrong));
                return outcome;
            }
        };
        world.text = text.take().map(|text| (text, lines));
        let wrong = caught(|| world.play(), Wrong::Panic);
        outcome.failure = wrong.map(|wrong| (world.now, wrong));
        outcome.tally = world.tally();
        outcome.trace_hash = world.hash();
        *text = world.text.take().map(|(text, _)| text);
        outcome
    }

    fn alike(one: &Wrong, other: &Wrong) -> bool {
        shrink::alike(one, other)
    }

    fn smallest(plan: &Plan, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
        shrink::smallest(plan, fails)
    }
}
