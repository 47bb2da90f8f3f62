//! Many seeds, on all cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::tally::Tally;
use crate::{Finding, Outcome, run};

/// Findings that are kept; after so many the sweep ends early.
pub(crate) const FINDINGS_MAX: usize = 10;

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

/// How far a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Seeds played.
    pub done: u64,
    /// Seeds to be played.
    pub of: u64,
    /// Findings so far.
    pub findings: usize,
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
    report.wall_time = spread(first_seed, count, play, |outcome| {
        report.add(&outcome);
        progress(Progress { done: report.seeds, of: count, findings: report.findings.len() });
        report.findings.len() < findings_max
    });
    report.findings.sort_by_key(|finding| finding.seed);
    report
}

/// Plays seeds on all cores and has `take` look at what became of each, in any order, while it returns true; the
/// time it took.
pub(crate) fn spread<T: Send>(
    first_seed: u64,
    count: u64,
    play: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(T) -> bool,
) -> Duration {
    let started = Instant::now();
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (outcomes, results) = mpsc::channel::<T>();
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
        for outcome in results {
            if !take(outcome) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    });
    started.elapsed()
}

impl Report {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.tally += outcome.tally;
        // Seeds end in any order: what is kept must not depend on it.
        self.trace_hash ^= outcome.trace_hash.rotate_left((outcome.seed % 64) as u32);
        self.findings.extend(outcome.finding());
    }
}
