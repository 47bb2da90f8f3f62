//! Telemetry of a context: counts and times of each path, `k̂` over time, and explanations of the last requests.

use std::collections::VecDeque;
use std::fmt;

use hdrhistogram::Histogram;
use pathcall_wire::Instant;

use super::pending::PendingRequest;
use super::{DeviceStats, PlaceContext};
pub use crate::explain::{Explanation, OPTIONS_MAX, PathSnapshot, SelectionRecord};

use crate::explain::RequestLog;
use crate::path::{PathId, Paths};
use crate::select::{PathState, Selector};

/// Number of samples of `k̂` that are kept.
const SAMPLES_MAX: usize = 4096;
/// Interval between two samples, in nanoseconds.
const SAMPLE_NS: u64 = 1_000_000;
/// Limit of the histograms, in nanoseconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// Telemetry state of a context.
#[derive(Debug)]
pub(super) struct TelemetryState {
    pub(super) log: RequestLog,
    paths: Vec<PathTimes>,
    samples: VecDeque<Sample>,
    sampled: Instant,
}

#[derive(Debug)]
struct PathTimes {
    intra: Histogram<u64>,
    total: Histogram<u64>,
    run_on_cpus: u64,
}

/// Sample of a path's `k̂`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Path of the sample.
    pub path: PathId,
    /// Value of `k̂`.
    pub k: u32,
}

impl TelemetryState {
    pub(super) fn new(paths: &Paths, max: usize) -> Self {
        // Two significant digits; the bounds are valid.
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("bounds");
        let times = || PathTimes { intra: histogram(), total: histogram(), run_on_cpus: 0 };
        Self {
            log: RequestLog::new(max),
            paths: paths.paths.iter().map(|_| times()).collect(),
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            sampled: Instant(0),
        }
    }

    pub(super) fn record_cpu_run(&mut self, entry: &PendingRequest) {
        self.log.record_cpu_run(entry.record);
        if let Some(path) = entry.failed_path {
            self.paths[usize::from(path.0)].run_on_cpus += 1;
        }
    }

    pub(super) fn ended(
        &mut self,
        now: Instant,
        entry: &PendingRequest,
        intra: Option<u64>,
        total: u64,
        selector: &Selector,
    ) {
        self.log.record_end(entry.record, intra, total);
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

/// Telemetry of a path.
#[derive(Debug, Clone)]
pub struct PathTelemetry {
    /// Request type of the path.
    pub kind: String,
    /// Name of the path.
    pub name: String,
    /// Counts and `k̂`.
    pub state: PathState,
    /// Times within the hosts, in nanoseconds.
    pub intra: Histogram<u64>,
    /// End-to-end times, in nanoseconds.
    pub total: Histogram<u64>,
    /// Requests that the CPUs executed after all attempts over the path had failed.
    pub run_on_cpus: u64,
}

/// Telemetry of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTelemetry {
    /// Role of the device.
    pub role: crate::DeviceRole,
    /// Name of the device.
    pub name: String,
    /// Statistics of the device.
    pub stats: DeviceStats,
}

/// Telemetry of a context.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Paths of the context.
    pub paths: Vec<PathTelemetry>,
    /// Devices of the context.
    pub devices: Vec<DeviceTelemetry>,
    /// Samples of `k̂`.
    pub samples: Vec<Sample>,
}

impl PlaceContext {
    /// Current telemetry.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        let paths =
            self.paths.paths.iter().zip(&self.telemetry.paths).zip(0..).map(|((path, times), at)| PathTelemetry {
                kind: self.paths.kinds[usize::from(path.kind.0)].name.clone(),
                name: path.name.clone(),
                state: self.selector.state(PathId(at)),
                intra: times.intra.clone(),
                total: times.total.clone(),
                run_on_cpus: times.run_on_cpus,
            });
        let devices = self.queues.iter().flatten().map(|queue| DeviceTelemetry {
            role: queue.role,
            name: queue.device.info().name.clone(),
            stats: queue.stats,
        });
        Telemetry {
            paths: paths.collect(),
            devices: devices.collect(),
            samples: self.telemetry.samples.iter().copied().collect(),
        }
    }

    /// Explanations of the last `count` requests, the newest last: path and reason.
    pub fn explain(&self, count: usize) -> impl Iterator<Item = Explanation<'_>> {
        self.telemetry.log.recent(count, &self.paths)
    }
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PathTelemetry { kind, name, state, intra, total, run_on_cpus } in &self.paths {
            let PathState { sent, done, failed, probes, times_left, k, learned, .. } = state;
            write!(
                f,
                "{kind} {name}: sent {sent}, done {done}, failed {failed}, probes {probes}, left {times_left} times"
            )?;
            write!(
                f,
                ", k {k}; within the hosts p50 {} p99 {} ns",
                intra.value_at_quantile(0.5),
                intra.value_at_quantile(0.99)
            )?;
            write!(f, "; in total p50 {} p99 {} ns", total.value_at_quantile(0.5), total.value_at_quantile(0.99))?;
            if let Some(learned) = learned {
                write!(f, "; the next in {learned}")?;
            }
            writeln!(
                f,
                "{}",
                if *run_on_cpus > 0 { format!("; {run_on_cpus} executed by the CPUs") } else { String::new() }
            )?;
        }
        for DeviceTelemetry { role, name, stats } in &self.devices {
            let DeviceStats { jobs, done, failed, stalled, late, app_errors } = stats;
            write!(f, "{role} {name}: {jobs} jobs, {done} done")?;
            let troubled = failed + stalled > 0;
            let fell_back = if troubled { ": their requests were sent again" } else { "" };
            writeln!(
                f,
                ", {failed} failed, {stalled} timed out ({late} answered later), {app_errors} refused{fell_back}"
            )?;
        }
        Ok(())
    }
}
