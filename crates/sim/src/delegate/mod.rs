//! Calls that servers pass on: real callers and workers in a network that loses, delays and reorders messages,
//! on hosts that die, with clocks that differ, beside a stranger.
//!
//! ```text
//! seed ─► plan ─► world ─► outcome
//!                  ├─ host: Caller, Worker, handlers that do as planned
//!                  ├─ stranger: repeats and forges
//!                  └─ judge: nothing twice, complete only with all, failed in time, nothing left
//! ```
//!
//! Beside that, [`cost`] counts the messages of the [`shapes`] that the thesis measured, and their time on hosts
//! that work on one message after the other, against plain calls ([`twin`]).

pub mod cost;
mod host;
mod judge;
pub mod load;
pub mod lossy;
mod network;
pub mod plan;
pub mod shapes;
mod stranger;
pub mod twin;
mod work;
mod world;

use std::ops::AddAssign;
use std::time::Duration;

use pathcall_endpoint::delegate::caller::Outcome as CallOutcome;

pub use judge::{Tag, Wrong};
pub use plan::{Plan, generate};

use crate::sweep::{FINDINGS_MAX, Progress};
use crate::{ability, panics};
use world::World;

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

impl Tally {
    fn count(&mut self, outcome: &CallOutcome) {
        match outcome {
            CallOutcome::Complete => self.complete += 1,
            CallOutcome::Failed(_) => self.failed += 1,
            CallOutcome::Aborted { .. } => self.aborted += 1,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.requests += other.requests;
        self.executions += other.executions;
        self.replies += other.replies;
        self.complete += other.complete;
        self.failed += other.failed;
        self.aborted += other.aborted;
        self.messages += other.messages;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.forged += other.forged;
        self.crashes += other.crashes;
        self.virtual_time += other.virtual_time;
    }
}

/// What became of a run.
pub type Outcome = ability::Outcome<Tally, Wrong>;
/// A failure with all that is needed to see it again.
pub type Finding = ability::Finding<Wrong>;
/// What became of many seeds.
pub type Report = ability::Report<Tally, Wrong>;

/// As the command line calls it.
pub(crate) const NAME: &str = "delegate";

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
