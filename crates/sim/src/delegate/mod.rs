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

use std::fmt;
use std::time::Duration;

use pathcall_endpoint::delegate::caller::Outcome as CallOutcome;
use pathcall_wire::Instant;

pub use judge::{Tag, Wrong};
pub use plan::{Plan, generate};

use crate::panics;
use crate::sweep::{FINDINGS_MAX, Progress, spread};
use crate::trace::Millis;
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

    fn add(&mut self, other: &Self) {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Differs where runs differ.
    pub trace_hash: u64,
    /// What was counted.
    pub tally: Tally,
    /// What was wrong, if anything, and when.
    pub failure: Option<(Instant, Wrong)>,
}

/// A failure with all that is needed to see it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// When it was seen, in virtual time.
    pub at: Instant,
    /// What was wrong.
    pub wrong: Wrong,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, wrong } = self;
        write!(f, "seed {seed}, after {} ms: {wrong}\n  replay: pathcall sim delegate --seed {seed}", Millis(*at))
    }
}

/// What became of many seeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Seeds played.
    pub seeds: u64,
    /// Sums of their counts.
    pub tally: Tally,
    /// Differs where any run differs.
    pub trace_hash: u64,
    /// What was wrong, by seed. The sweep ends after the first few.
    pub findings: Vec<Finding>,
    /// Time it took.
    pub wall_time: Duration,
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
    let text = world.text.unwrap_or_default();
    (Outcome { seed: world.plan.seed, trace_hash: world.hash, tally: world.tally, failure }, text)
}

/// Plays `count` seeds from `first_seed` on, on all cores. `progress` is called after each.
pub fn sweep(first_seed: u64, count: u64, progress: impl FnMut(Progress)) -> Report {
    sweep_by(run, first_seed, count, FINDINGS_MAX, progress)
}

/// Plays seeds with a mistake in the code under test, until one shows it.
#[cfg(feature = "mutants")]
pub fn hunt(mutant: pathcall_wire::Mutant, first_seed: u64, count: u64) -> Report {
    let planted = |seed| {
        pathcall_wire::mutant::plant(Some(mutant));
        run(seed)
    };
    sweep_by(planted, first_seed, count, 1, drop)
}

fn sweep_by(
    play: impl Fn(u64) -> Outcome + Sync,
    first_seed: u64,
    count: u64,
    findings_max: usize,
    mut progress: impl FnMut(Progress),
) -> Report {
    let mut report = Report::default();
    report.wall_time = spread(first_seed, count, play, |Outcome { seed, trace_hash, tally, failure }| {
        report.seeds += 1;
        report.tally.add(&tally);
        // Seeds end in any order: what is kept must not depend on it.
        report.trace_hash ^= trace_hash.rotate_left((seed % 64) as u32);
        report.findings.extend(failure.map(|(at, wrong)| Finding { seed, at, wrong }));
        progress(Progress { done: report.seeds, of: count, findings: report.findings.len() });
        report.findings.len() < findings_max
    });
    report.findings.sort_by_key(|finding| finding.seed);
    report
}
