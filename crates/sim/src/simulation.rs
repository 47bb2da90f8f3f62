//! Interface that the simulations of all abilities share.
//!
//! ```text
//! seed ─ generate ─► plan ─ play ─► outcome        sweep: many seeds ─► report
//! ```
//!
//! A [`Simulation`] generates a plan from a seed and plays it. Sweep, report, shrinking and replay are the same for
//! all.

use std::fmt;
use std::mem::discriminant;
use std::ops::AddAssign;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::panics;
use crate::sweep::{FINDINGS_MAX, Progress, spread};
use crate::trace::Millis;

/// Result of one run: counts, hash of the trace, and the violation, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome<T, W> {
    /// Seed of the run.
    pub seed: u64,
    /// Hash of the run's trace; different runs have different hashes.
    pub trace_hash: u64,
    /// Counts of the run.
    pub counts: T,
    /// First violation and the virtual time of it; `None`: every check passed.
    pub failure: Option<(Instant, W)>,
}

/// Violation with the data that is needed to replay it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepFinding<W> {
    /// Subcommand of `pathcall sim` that replays the seed.
    pub ability: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Virtual time of the violation.
    pub at: Instant,
    /// The violation.
    pub violation: W,
}

impl<W: fmt::Display> fmt::Display for SweepFinding<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ability, seed, at, violation } = self;
        write!(f, "seed {seed}, after {} ms: {violation}\n  replay: pathcall sim {ability} --seed {seed}", Millis(*at))
    }
}

/// Result of a sweep over many seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepReport<T, W> {
    /// Number of seeds that were played.
    pub seeds: u64,
    /// Sums of the counts of all runs.
    pub counts: T,
    /// Combined hash of all traces.
    pub trace_hash: u64,
    /// Violations, in the order of their seeds. The sweep ends after the first few.
    pub findings: Vec<SweepFinding<W>>,
    /// Wall-clock time of the sweep.
    pub wall_time: Duration,
}

/// Simulation of one ability.
pub trait Simulation {
    /// Name of the ability on the command line.
    const NAME: &'static str;
    /// Plan of a run: parties, calls and faults.
    type Plan: fmt::Debug;
    /// Counts of a run.
    type Counts: fmt::Debug + Default + AddAssign + Send;
    /// Violations that the checker of this ability can report.
    type Violation: fmt::Display + Send;

    /// Generates the plan of a seed.
    fn generate(seed: u64) -> Self::Plan;

    /// Plays a plan, and appends the trace to `text` if there is one.
    fn play_with_trace(plan: &Self::Plan, text: &mut Option<String>) -> RunOutcome<Self::Counts, Self::Violation>;

    /// Whether two violations are of the same kind.
    fn same_kind(one: &Self::Violation, other: &Self::Violation) -> bool {
        discriminant(one) == discriminant(other)
    }

    /// Shrinks a plan to the smallest one for which `fails` returns true.
    fn shrink_plan(plan: &Self::Plan, fails: &mut dyn FnMut(&Self::Plan) -> bool) -> Self::Plan;

    /// Shrinks a plan to the smallest one with the same kind of violation; `None` if the plan has no violation.
    #[must_use]
    fn shrink(plan: &Self::Plan) -> Option<Self::Plan> {
        let (_, failure) = Self::play(plan).failure?;
        let mut fails =
            |plan: &_| Self::play(plan).failure.is_some_and(|(_, violation)| Self::same_kind(&violation, &failure));
        Some(Self::shrink_plan(plan, &mut fails))
    }

    /// Plays a plan.
    #[must_use]
    fn play(plan: &Self::Plan) -> RunOutcome<Self::Counts, Self::Violation> {
        Self::play_with_trace(plan, &mut None)
    }

    /// Plays a plan and returns the trace, too.
    #[must_use]
    fn play_traced(plan: &Self::Plan) -> (RunOutcome<Self::Counts, Self::Violation>, String) {
        let mut text = Some(String::new());
        (Self::play_with_trace(plan, &mut text), text.unwrap_or_default())
    }

    /// Plays the plan of a seed.
    #[must_use]
    fn run(seed: u64) -> RunOutcome<Self::Counts, Self::Violation> {
        Self::play(&Self::generate(seed))
    }

    /// Plays `count` seeds from `first_seed` on, on all cores; calls `progress` after each.
    fn sweep(
        first_seed: u64,
        count: u64,
        progress: impl FnMut(Progress),
    ) -> SweepReport<Self::Counts, Self::Violation> {
        sweep_by(Self::NAME, Self::run, first_seed, count, FINDINGS_MAX, progress)
    }

    /// Plays seeds with a mutant planted in the code under test, until a checker reports a violation.
    #[cfg(feature = "mutants")]
    fn find_mutant(
        mutant: pathcall_wire::Mutant,
        first_seed: u64,
        count: u64,
    ) -> SweepReport<Self::Counts, Self::Violation> {
        let planted = |seed| {
            pathcall_wire::mutant::plant(Some(mutant));
            Self::run(seed)
        };
        sweep_by(Self::NAME, planted, first_seed, count, 1, drop)
    }
}

/// Plays a run and returns its violation, if any. A panic is a violation.
pub(crate) fn caught<W>(play: impl FnOnce() -> Result<(), W>, panic: fn(String) -> W) -> Option<W> {
    match panics::catch(play) {
        Ok(played) => played.err(),
        Err(text) => Some(panic(text)),
    }
}

/// Plays `count` seeds from `first_seed` on, on all cores, until there are `findings_max` findings; calls `progress`
/// after each.
pub(crate) fn sweep_by<T: Default + AddAssign + Send, W: Send>(
    ability: &'static str,
    play: impl Fn(u64) -> RunOutcome<T, W> + Sync,
    first_seed: u64,
    count: u64,
    findings_max: usize,
    mut progress: impl FnMut(Progress),
) -> SweepReport<T, W> {
    let mut report =
        SweepReport { seeds: 0, counts: T::default(), trace_hash: 0, findings: Vec::new(), wall_time: Duration::ZERO };
    report.wall_time = spread(first_seed, count, play, |RunOutcome { seed, trace_hash, counts, failure }| {
        report.seeds += 1;
        report.counts += counts;
        // Seeds end in any order, so the combined hash must not depend on the order.
        report.trace_hash ^= trace_hash.rotate_left((seed % 64) as u32);
        report.findings.extend(failure.map(|(at, violation)| SweepFinding { ability, seed, at, violation }));
        progress(Progress { done: report.seeds, of: count, findings: report.findings.len() });
        report.findings.len() < findings_max
    });
    report.findings.sort_by_key(|finding| finding.seed);
    report
}
