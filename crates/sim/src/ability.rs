//! What the simulations of several abilities have in common.
//!
//! ```text
//! seed ─ generate ─► plan ─ play ─► outcome        sweep: many seeds ─► report
//! ```
//!
//! An ability says how plans come from seeds and how one is played; the rest is the same for all.

use std::fmt;
use std::mem::discriminant;
use std::ops::AddAssign;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::panics;
use crate::sweep::{FINDINGS_MAX, Progress, spread};
use crate::trace::Millis;

/// What became of a run, with what was counted and what may be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<T, W> {
    /// Its seed.
    pub seed: u64,
    /// Differs where runs differ.
    pub trace_hash: u64,
    /// What was counted.
    pub tally: T,
    /// What was wrong, if anything, and when.
    pub failure: Option<(Instant, W)>,
}

/// A failure with all that is needed to see it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding<W> {
    /// `pathcall sim` of this ability plays the seed again.
    pub ability: &'static str,
    /// The seed.
    pub seed: u64,
    /// When it was seen, in virtual time.
    pub at: Instant,
    /// What was wrong.
    pub wrong: W,
}

impl<W: fmt::Display> fmt::Display for Finding<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ability, seed, at, wrong } = self;
        write!(f, "seed {seed}, after {} ms: {wrong}\n  replay: pathcall sim {ability} --seed {seed}", Millis(*at))
    }
}

/// What became of many seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<T, W> {
    /// Seeds played.
    pub seeds: u64,
    /// Sums of their counts.
    pub tally: T,
    /// Differs where any run differs.
    pub trace_hash: u64,
    /// What was wrong, by seed. The sweep ends after the first few.
    pub findings: Vec<Finding<W>>,
    /// Time it took.
    pub wall_time: Duration,
}

/// An ability as it is simulated.
pub trait Ability {
    /// As the command line calls it.
    const NAME: &'static str;
    /// What is to happen.
    type Plan: fmt::Debug;
    /// What is counted.
    type Tally: fmt::Debug + Default + AddAssign + Send;
    /// What may be wrong.
    type Wrong: fmt::Display + Send;

    /// The plan of a seed.
    fn generate(seed: u64) -> Self::Plan;

    /// Plays a plan; adds what happens, line by line, to the text, if there is one.
    fn play_in(plan: &Self::Plan, text: &mut Option<String>) -> Outcome<Self::Tally, Self::Wrong>;

    /// Whether two failures are of one kind.
    fn alike(one: &Self::Wrong, other: &Self::Wrong) -> bool {
        discriminant(one) == discriminant(other)
    }

    /// The smallest plan found of which `fails` says that it fails as this one does.
    fn smallest(plan: &Self::Plan, fails: &mut dyn FnMut(&Self::Plan) -> bool) -> Self::Plan;

    /// The smallest plan found that fails as this one does; `None` when this one does not.
    #[must_use]
    fn shrink(plan: &Self::Plan) -> Option<Self::Plan> {
        let (_, failure) = Self::play(plan).failure?;
        let mut fails = |plan: &_| Self::play(plan).failure.is_some_and(|(_, wrong)| Self::alike(&wrong, &failure));
        Some(Self::smallest(plan, &mut fails))
    }

    /// Plays a plan.
    #[must_use]
    fn play(plan: &Self::Plan) -> Outcome<Self::Tally, Self::Wrong> {
        Self::play_in(plan, &mut None)
    }

    /// Plays a plan; what happens, line by line, too.
    #[must_use]
    fn play_traced(plan: &Self::Plan) -> (Outcome<Self::Tally, Self::Wrong>, String) {
        let mut text = Some(String::new());
        (Self::play_in(plan, &mut text), text.unwrap_or_default())
    }

    /// Plays the plan of a seed.
    #[must_use]
    fn run(seed: u64) -> Outcome<Self::Tally, Self::Wrong> {
        Self::play(&Self::generate(seed))
    }

    /// Plays `count` seeds from `first_seed` on, on all cores. `progress` is called after each.
    fn sweep(first_seed: u64, count: u64, progress: impl FnMut(Progress)) -> Report<Self::Tally, Self::Wrong> {
        sweep_by(Self::NAME, Self::run, first_seed, count, FINDINGS_MAX, progress)
    }

    /// Plays seeds with a mistake in the code under test, until one shows it.
    #[cfg(feature = "mutants")]
    fn hunt(mutant: pathcall_wire::Mutant, first_seed: u64, count: u64) -> Report<Self::Tally, Self::Wrong> {
        let planted = |seed| {
            pathcall_wire::mutant::plant(Some(mutant));
            Self::run(seed)
        };
        sweep_by(Self::NAME, planted, first_seed, count, 1, drop)
    }
}

/// Has a world play; what was wrong, if anything, a panic included.
pub(crate) fn caught<W>(play: impl FnOnce() -> Result<(), W>, panic: fn(String) -> W) -> Option<W> {
    match panics::catch(play) {
        Ok(played) => played.err(),
        Err(text) => Some(panic(text)),
    }
}

/// Plays `count` seeds from `first_seed` on, on all cores, until so many findings were made. `progress` is called
/// after each.
pub(crate) fn sweep_by<T: Default + AddAssign + Send, W: Send>(
    ability: &'static str,
    play: impl Fn(u64) -> Outcome<T, W> + Sync,
    first_seed: u64,
    count: u64,
    findings_max: usize,
    mut progress: impl FnMut(Progress),
) -> Report<T, W> {
    let mut report =
        Report { seeds: 0, tally: T::default(), trace_hash: 0, findings: Vec::new(), wall_time: Duration::ZERO };
    report.wall_time = spread(first_seed, count, play, |Outcome { seed, trace_hash, tally, failure }| {
        report.seeds += 1;
        report.tally += tally;
        // Seeds end in any order: what is kept must not depend on it.
        report.trace_hash ^= trace_hash.rotate_left((seed % 64) as u32);
        report.findings.extend(failure.map(|(at, wrong)| Finding { ability, seed, at, wrong }));
        progress(Progress { done: report.seeds, of: count, findings: report.findings.len() });
        report.findings.len() < findings_max
    });
    report.findings.sort_by_key(|finding| finding.seed);
    report
}
