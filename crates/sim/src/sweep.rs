//! Sweep over many seeds on all cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::MapCounts;
use crate::{MapFinding, MapOutcome, run};

/// Number of findings after which a sweep ends.
pub(crate) const FINDINGS_MAX: usize = 10;

/// Result of a sweep over many seeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapReport {
    /// Number of seeds that were played.
    pub seeds: u64,
    /// Sums of the counts of all runs.
    pub counts: MapCounts,
    /// Combined hash of all traces.
    pub trace_hash: u64,
    /// Violations, in the order of their seeds. The sweep ends after the first few.
    pub findings: Vec<MapFinding>,
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

/// Plays `count` seeds from `first_seed` on, on all cores; calls `progress` after each.
pub fn sweep(first_seed: u64, count: u64, progress: impl FnMut(Progress)) -> MapReport {
    sweep_by(run, first_seed, count, FINDINGS_MAX, progress)
}

/// Plays seeds with a mutant planted in the code under test, until the checker reports a violation.
#[cfg(feature = "mutants")]
pub fn find_mutant(mutant: pathcall_wire::Mutant, first_seed: u64, count: u64) -> MapReport {
    let planted = |seed| {
        pathcall_wire::mutant::plant(Some(mutant));
        run(seed)
    };
    sweep_by(planted, first_seed, count, 1, drop)
}

fn sweep_by(
    play: impl Fn(u64) -> MapOutcome + Sync,
    first_seed: u64,
    count: u64,
    findings_max: usize,
    mut progress: impl FnMut(Progress),
) -> MapReport {
    let mut report = MapReport::default();
    report.wall_time = spread(first_seed, count, play, |outcome| {
        report.add(&outcome);
        progress(Progress { done: report.seeds, of: count, findings: report.findings.len() });
        report.findings.len() < findings_max
    });
    report.findings.sort_by_key(|finding| finding.seed);
    report
}

/// Plays seeds on all cores and passes each result to `take`, in any order, while `take` returns true; returns the
/// time taken.
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

impl MapReport {
    fn add(&mut self, outcome: &MapOutcome) {
        self.seeds += 1;
        self.counts += outcome.counts;
        // Seeds end in any order, so the combined hash must not depend on the order.
        self.trace_hash ^= outcome.trace_hash.rotate_left((outcome.seed % 64) as u32);
        self.findings.extend(outcome.finding());
    }
}
