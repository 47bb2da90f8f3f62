//! Interface that the simulations of all abilities share.
//!
//! ```text
//! seed ─ generate ─► plan ─ play ─► outcome        sweep: many seeds on all cores ─► report
//! ```
//!
//! A [`Simulation`] generates a plan from a seed and plays it. Sweep, report, shrinking and replay are the same for
//! all.

use std::fmt;
use std::mem::{self, discriminant};
use std::num::NonZero;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::minimizer::{FailureTest, Minimizer, ShrinkList};
use crate::trace::Millis;

/// Number of findings after which a sweep ends.
const FINDINGS_MAX: usize = 10;

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

impl<T: Default, W> RunOutcome<T, W> {
    /// Outcome of a run that could not start.
    pub(crate) fn not_started(seed: u64, violation: W) -> Self {
        Self { seed, trace_hash: 0, counts: T::default(), failure: Some((Instant(0), violation)) }
    }

    /// Violation with the data that is needed to replay it, if any.
    pub(crate) fn into_finding(self, ability: &'static str) -> Option<SweepFinding<W>> {
        let Self { seed, failure, .. } = self;
        failure.map(|(at, violation)| SweepFinding { ability, seed, at, violation })
    }
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

/// Progress of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of seeds that were played.
    pub done: u64,
    /// Number of seeds to play.
    pub of: u64,
    /// Number of findings so far.
    pub findings: usize,
}

/// Simulation of one ability.
pub trait Simulation {
    /// Name of the ability on the command line.
    const NAME: &'static str;
    /// Plan of a run: parties, calls and faults.
    type Plan: fmt::Debug + Clone + PartialEq + 'static;
    /// Counts of a run.
    type Counts: fmt::Debug + Default + AddAssign + Send;
    /// Violations that the checker of this ability can report.
    type Violation: fmt::Display + Send;

    /// Limit on the runs of shrinking.
    const SHRINK_RUNS_MAX: u32 = 1_000;
    /// Changes that remove one kind of fault of a plan.
    const CHANGES: &'static [fn(&mut Self::Plan)] = &[];
    /// Lists of a plan from which shrinking removes elements.
    const LISTS: &'static [ShrinkList<Self::Plan>] = &[];

    /// Generates the plan of a seed.
    fn generate(seed: u64) -> Self::Plan;

    /// Plays a plan, and appends the trace to `text` if there is one.
    fn play_with_trace(plan: &Self::Plan, text: &mut Option<String>) -> RunOutcome<Self::Counts, Self::Violation>;

    /// Text of a plan, for a replay.
    #[must_use]
    fn describe(plan: &Self::Plan) -> String {
        format!("{plan:#?}\n")
    }

    /// Whether two violations are of the same kind.
    fn same_kind(one: &Self::Violation, other: &Self::Violation) -> bool {
        discriminant(one) == discriminant(other)
    }

    /// Shrinks a plan to the smallest one for which `fails` returns true.
    fn shrink_plan(plan: &Self::Plan, fails: FailureTest<'_, Self::Plan>) -> Self::Plan {
        let mut smaller = Minimizer::new(plan, Self::SHRINK_RUNS_MAX, fails);
        smaller.minimize(Self::CHANGES, Self::LISTS);
        smaller.best
    }

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
        sweep_by::<Self>(Self::run, first_seed, count, FINDINGS_MAX, progress)
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
        sweep_by::<Self>(planted, first_seed, count, 1, drop)
    }
}

/// Plays `count` seeds from `first_seed` on, on all cores, until there are `findings_max` findings; calls `progress`
/// after each.
fn sweep_by<S: Simulation + ?Sized>(
    play: impl Fn(u64) -> RunOutcome<S::Counts, S::Violation> + Sync,
    first_seed: u64,
    count: u64,
    findings_max: usize,
    mut progress: impl FnMut(Progress),
) -> SweepReport<S::Counts, S::Violation> {
    let started = std::time::Instant::now();
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let (mut seeds, mut counts, mut trace_hash, mut findings) = (0, S::Counts::default(), 0, Vec::new());
    thread::scope(|scope| {
        let (outcomes, results) = mpsc::channel();
        for _ in 0..cores {
            let (outcomes, next, enough, play) = (outcomes.clone(), &next, &enough, &play);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || outcomes.send(play(first_seed.wrapping_add(index))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(outcomes);
        for mut outcome in results {
            seeds += 1;
            // Seeds end in any order, so the combined hash must not depend on the order.
            trace_hash ^= outcome.trace_hash.rotate_left((outcome.seed % 64) as u32);
            counts += mem::take(&mut outcome.counts);
            findings.extend(outcome.into_finding(S::NAME));
            progress(Progress { done: seeds, of: count, findings: findings.len() });
            if findings.len() >= findings_max {
                enough.store(true, Ordering::Relaxed);
            }
        }
    });
    findings.sort_by_key(|finding| finding.seed);
    SweepReport { seeds, counts, trace_hash, findings, wall_time: started.elapsed() }
}
