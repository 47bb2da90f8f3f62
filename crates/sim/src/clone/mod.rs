//! Calls that any of several servers can answer: real callers, servers and coordinators around the real switch
//! program, in a network that loses, repeats and reorders, beside a stranger, while servers come, go and die.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ callers and servers: Caller, Worker; some servers lie about their queues
//!                  ├─ element: Program with small tables, watched; or LÆDGE's Coordinator
//!                  ├─ network: faults, a stranger; pools that change, and are heard of late
//!                  └─ judge: one whole answer or a failure in time, nothing cloned that may not be, budgets, bounds
//! ```
//!
//! Beside that, [`performance`] says how long calls take at the paper's scale.

mod element;
mod hosts;
mod judge;
mod network;
mod payload;
pub mod performance;
pub mod plan;
mod shrink;
mod world;

use std::ops::AddAssign;
use std::time::Duration;

pub use judge::Wrong;
pub use plan::{Plan, generate};
pub use shrink::shrink;

use crate::sweep::{FINDINGS_MAX, Progress};
use crate::{ability, panics};
use world::World;

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;
/// A failure with all that is needed to see it again.
pub type Finding = ability::Finding<Wrong>;
/// What became of many seeds.
pub type Report = ability::Report<Tally, Wrong>;

/// As the command line calls it.
pub(crate) const NAME: &str = "clone";

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.answered += other.answered;
        self.failed += other.failed;
        self.executions += other.executions;
        self.cloned += other.cloned;
        self.clones_dropped += other.clones_dropped;
        self.filtered += other.filtered;
        self.redundant += other.redundant;
        self.resent += other.resent;
        self.refused += other.refused;
        self.silent += other.silent;
        self.frames += other.frames;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.forged += other.forged;
        self.incidents += other.incidents;
        self.virtual_time += other.virtual_time;
    }
}

/// Plays the plan of a seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    play(&generate(seed))
}

/// Plays a plan.
#[must_use]
pub fn play(plan: &Plan) -> Outcome {
    play_in(World::new(plan)).0
}

/// Plays a plan; what happens, line by line, too.
#[must_use]
pub fn play_traced(plan: &Plan) -> (Outcome, String) {
    let mut world = World::new(plan);
    world.text = Some(String::new());
    play_in(world)
}

fn play_in(mut world: World<'_>) -> (Outcome, String) {
    let failure = match panics::catch(|| world.play()) {
        Ok(played) => played.err(),
        Err(text) => Some(Wrong::Panic(text)),
    };
    let failure = failure.map(|wrong| (world.now, wrong));
    world.count();
    let text = world.text.unwrap_or_default();
    (Outcome { seed: world.plan.seed, trace_hash: world.hash, tally: world.tally, failure }, text)
}

/// Plays `count` seeds from `first_seed` on, on all cores. `progress` is called after each.
pub fn sweep(first_seed: u64, count: u64, progress: impl FnMut(Progress)) -> Report {
    ability::sweep_by(NAME, run, first_seed, count, FINDINGS_MAX, progress)
}

/// Plays seeds with a mistake in the code under test, until one shows it.
#[cfg(feature = "mutants")]
pub fn hunt(mutant: pathcall_wire::Mutant, first_seed: u64, count: u64) -> Report {
    let planted = |seed| {
        pathcall_wire::mutant::plant(Some(mutant));
        run(seed)
    };
    ability::sweep_by(NAME, planted, first_seed, count, 1, drop)
}
