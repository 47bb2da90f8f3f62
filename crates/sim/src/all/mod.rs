//! Combined simulation: all abilities at one time on one element, under common faults.
//!
//! ```text
//!                      ┌── function (in front, for a while) ──┐
//! map: callers, owners ┤                                      ├─► one switch program ─► owners, callers
//! clone: callers       ┤   frames, wrapped as IPv4 and UDP    │     └─► servers ─► their work, placed ─┐
//! delegate: messages   ┴──────────────────────────────────────┴─► hosts ─► first steps, placed ────────┤
//!                                                                                  place: selector ◄───┘
//! ```
//!
//! Each part is the world of its own simulation, with its own plan, network and checker. Here the events of all parts
//! are played in one order of time. A failure of the element hits all parts at once, and each part's controller
//! repairs its own state. A machine that pauses or is cut off does so for all hosts on it. [`CombinedViolation`] adds
//! the checks of the whole: frames reach only endpoints of their own application, the function does not change what
//! it carries, the program's counters match its traffic, and no state is left in the element at the end.

mod checker;
mod ending;
mod exchange;
mod packet;
pub mod plan;
mod setup;
mod shrink;
mod world;

use std::mem::discriminant;

pub use checker::CombinedViolation;
pub use plan::{CombinedPlan, MachineOutage};

use crate::counts::counts;
use crate::minimizer::FailureTest;
use crate::panics;
use crate::simulation::{RunOutcome, Simulation};
use crate::{clone, delegate, function, map, place};
use setup::Setup;
use world::CombinedWorld;

/// Result of a combined run.
pub type CombinedOutcome = RunOutcome<CombinedCounts, CombinedViolation>;

counts! {
    /// Counts of a combined run.
    pub struct CombinedCounts {
        /// Counts of map.
        pub map: map::MapCounts,
        /// Counts of clone.
        pub clone: clone::CloneCounts,
        /// Counts of delegate.
        pub delegate: delegate::DelegateCounts,
        /// Counts of function.
        pub function: function::FunctionCounts,
        /// Counts of place.
        pub place: place::PlaceCounts,
        /// Frames that the program processed.
        pub frames: u64,
        /// Frames and messages that entered the function.
        pub carried: u64,
        /// Frames and messages that entered the function and did not come out.
        pub held_back: u64,
        /// Frames and messages that came out of the function a second time.
        pub again: u64,
        /// Work units (service of clone's servers, first steps of delegated requests) that were placed.
        pub placed: u64,
        /// Placed work units that no path completed.
        pub abandoned: u64,
        /// Failures of the element.
        pub failures: u64,
        /// Events that were postponed because their machine was paused.
        pub waited: u64,
        /// Frames of one ability that were sent under the ids of another.
        pub strange: u64,
    }
}

/// Simulation of all abilities together.
#[derive(Debug, Clone, Copy)]
pub enum CombinedSimulation {}

impl Simulation for CombinedSimulation {
    const NAME: &'static str = "all";
    type Plan = CombinedPlan;
    type Counts = CombinedCounts;
    type Violation = CombinedViolation;

    fn generate(seed: u64) -> CombinedPlan {
        plan::generate(seed)
    }

    fn play_with_trace(plan: &CombinedPlan, text: &mut Option<String>) -> CombinedOutcome {
        let setup = Setup::new(plan);
        let mut world = match CombinedWorld::new(plan, &setup) {
            Ok(world) => world,
            Err(violation) => return RunOutcome::not_started(plan.seed, violation),
        };
        world.time.trace.text = text.take();
        let violation = panics::catch(|| world.play()).unwrap_or_else(|text| Err(CombinedViolation::Panic(text))).err();
        let failure = violation.map(|violation| (world.time.now, violation));
        let (counts, trace_hash) = (world.counts(), world.hash());
        *text = world.time.trace.text;
        CombinedOutcome { seed: plan.seed, trace_hash, counts, failure }
    }

    fn same_kind(one: &CombinedViolation, other: &CombinedViolation) -> bool {
        match (one, other) {
            (CombinedViolation::Map(one), CombinedViolation::Map(other)) => map::MapSimulation::same_kind(one, other),
            (CombinedViolation::Clone(one), CombinedViolation::Clone(other)) => {
                clone::CloneSimulation::same_kind(one, other)
            }
            (CombinedViolation::Delegate(one), CombinedViolation::Delegate(other)) => {
                delegate::DelegateSimulation::same_kind(one, other)
            }
            (CombinedViolation::Function(one), CombinedViolation::Function(other)) => {
                function::FunctionSimulation::same_kind(one, other)
            }
            (CombinedViolation::Place(one), CombinedViolation::Place(other)) => {
                place::PlaceSimulation::same_kind(one, other)
            }
            _ => discriminant(one) == discriminant(other),
        }
    }

    fn shrink_plan(plan: &CombinedPlan, fails: FailureTest<'_, CombinedPlan>) -> CombinedPlan {
        shrink::shrink_plan(plan, fails)
    }
}
