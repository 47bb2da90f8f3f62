//! Where requests went, and why: counts and times of each path, `k̂` over time, and the last requests explained.

use std::collections::VecDeque;
use std::fmt;

use hdrhistogram::Histogram;
use pathcall_wire::Instant;

use super::held::Entry;
use super::{BenchStats, Context};
pub use crate::explain::{Explained, Explanation, OPTIONS_MAX, Seen};

use crate::explain::Log;
use crate::path::{PathId, Paths};
use crate::select::{PathState, Selector};

/// Times at which `k̂` is remembered.
const SAMPLES_MAX: usize = 4096;
/// Time between two of them, nanoseconds.
const SAMPLE_NS: u64 = 1_000_000;
/// The longest time that histograms tell apart, nanoseconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// What a context remembers.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) log: Log,
    paths: Vec<PathTimes>,
    samples: VecDeque<Sample>,
    sampled: Instant,
}

#[derive(Debug)]
struct PathTimes {
    intra: Histogram<u64>,
    total: Histogram<u64>,
    resorted: u64,
}

/// `k̂` of a path at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Which path.
    pub path: PathId,
    /// Its `k̂`.
    pub k: u32,
}

impl Records {
    pub(super) fn new(paths: &Paths, max: usize) -> Self {
        // Two digits; the bounds are known to be right.
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("bounds");
        let times = || PathTimes { intra: histogram(), total: histogram(), resorted: 0 };
        Self {
            log: Log::new(max),
            paths: paths.paths.iter().map(|_| times()).collect(),
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            sampled: Instant(0),
        }
    }

    pub(super) fn resorted(&mut self, entry: &Entry) {
        self.log.resorted(entry.record);
        if let Some(path) = entry.failed_path {
            self.paths[usize::from(path.0)].resorted += 1;
        }
    }

    pub(super) fn ended(&mut self, now: Instant, entry: &Entry, intra: Option<u64>, total: u64, selector: &Selector) {
        self.log.ended(entry.record, intra, total);
        let Some(path) = entry.path else { return };
        let times = &mut self.paths[usize::from(path.0)];
        times.total.saturating_record(total);
        if let Some(intra) = intra {
            times.intra.saturating_record(intra);
        }
        if now.0.saturating_sub(self.sampled.0) >= SAMPLE_NS {
            self.sampled = now;
            for path in (0..self.paths.len() as u16).map(PathId) {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample { at: now, path, k: selector.state(path).k });
            }
        }
    }
}

/// What a path has come to.
#[derive(Debug, Clone)]
pub struct PathTelemetry {
    /// The type of its requests.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Counts, `k̂`.
    pub state: PathState,
    /// Times within the hosts, nanoseconds.
    pub intra: Histogram<u64>,
    /// Times from end to end, nanoseconds.
    pub total: Histogram<u64>,
    /// Requests that the CPUs did in its place, when all attempts had failed.
    pub resorted: u64,
}

/// What a device has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTelemetry {
    /// Its role.
    pub role: crate::Role,
    /// Its name.
    pub name: String,
    /// Counts.
    pub stats: BenchStats,
}

/// What a context has come to.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Its paths.
    pub paths: Vec<PathTelemetry>,
    /// Its devices.
    pub devices: Vec<DeviceTelemetry>,
    /// `k̂` over time.
    pub samples: Vec<Sample>,
}

impl Context {
    /// What it has come to.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        let paths =
            self.paths.paths.iter().zip(&self.telemetry.paths).zip(0..).map(|((path, times), at)| PathTelemetry {
                kind: self.paths.kinds[usize::from(path.kind.0)].name.clone(),
                name: path.name.clone(),
                state: self.selector.state(PathId(at)),
                intra: times.intra.clone(),
                total: times.total.clone(),
                resorted: times.resorted,
            });
        let devices = self.benches.iter().flatten().map(|bench| DeviceTelemetry {
            role: bench.role,
            name: bench.device.info().name.clone(),
            stats: bench.stats,
        });
        Telemetry {
            paths: paths.collect(),
            devices: devices.collect(),
            samples: self.telemetry.samples.iter().copied().collect(),
        }
    }

    /// The last `count` requests that it was given, the newest last: which path each took, and why.
    pub fn explain(&self, count: usize) -> impl Iterator<Item = Explanation<'_>> {
        self.telemetry.log.last(count, &self.paths)
    }
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PathTelemetry { kind, name, state, intra, total, resorted } in &self.paths {
            let PathState { sent, done, failed, probes, lefts, k, .. } = state;
            write!(f, "{kind} {name}: sent {sent}, done {done}, failed {failed}, probes {probes}, left {lefts} times")?;
            write!(
                f,
                ", k {k}; within the hosts p50 {} p99 {} ns",
                intra.value_at_quantile(0.5),
                intra.value_at_quantile(0.99)
            )?;
            write!(f, "; in all p50 {} p99 {} ns", total.value_at_quantile(0.5), total.value_at_quantile(0.99))?;
            writeln!(
                f,
                "{}",
                if *resorted > 0 { format!("; {resorted} done by the CPUs instead") } else { String::new() }
            )?;
        }
        for DeviceTelemetry { role, name, stats } in &self.devices {
            let BenchStats { jobs, done, failed, stalled, late, app_errors } = stats;
            write!(f, "{role} {name}: {jobs} jobs, {done} done")?;
            let troubled = failed + stalled > 0;
            let fell_back = if troubled { ": their requests were sent again" } else { "" };
            writeln!(f, ", {failed} failed, {stalled} not in time ({late} late), {app_errors} refused{fell_back}")?;
        }
        Ok(())
    }
}
