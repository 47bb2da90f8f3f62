//! Where requests went, and why: counts and times of each path, `k̂` over time, and the last requests explained.

use std::collections::VecDeque;
use std::fmt;

use hdrhistogram::Histogram;
use pathcall_wire::Instant;

use super::held::Entry;
use super::{BenchStats, Context};
use crate::path::{KindId, PathId, Paths};
use crate::select::{PathState, Selector, Why};

/// Paths of one type that are told of in an explanation; there may be more.
pub const OPTIONS_MAX: usize = 6;
/// Times at which `k̂` is remembered.
const SAMPLES_MAX: usize = 4096;
/// Time between two of them, nanoseconds.
const SAMPLE_NS: u64 = 1_000_000;
/// The longest time that histograms tell apart, nanoseconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// What a path looked like when a request chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The path.
    pub path: PathId,
    /// `k̂`.
    pub k: u32,
    /// Messages in flight.
    pub in_flight: u32,
    /// `T`, nanoseconds.
    pub traverse_ns: u64,
    /// Toll, nanoseconds.
    pub toll_ns: u64,
    /// What was queued there by this context, nanoseconds.
    pub queue_ns: u64,
    /// How many 16ths of what the model and those ahead explain its messages took: 16 when all is well.
    pub slowness: u32,
    /// Whether it was left.
    pub left: bool,
}

impl Seen {
    /// What the path costs, nanoseconds: `T + 2 · queue + k̂ · toll`, times how slow it is (LEO §III-B2, as
    /// `docs/place.md` corrects it).
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.slowed(self.traverse_ns.saturating_add(self.others_ns()).saturating_add(self.queue_ns.saturating_mul(2)))
    }

    /// When a message that takes it may be expected to be done, nanoseconds from then.
    #[must_use]
    pub fn expected_ns(&self) -> u64 {
        self.slowed(self.traverse_ns.saturating_add(self.others_ns()).saturating_add(self.queue_ns))
    }

    /// What others queue there, nanoseconds.
    fn others_ns(&self) -> u64 {
        u64::from(self.k).saturating_mul(self.toll_ns)
    }

    fn slowed(&self, ns: u64) -> u64 {
        ns.saturating_mul(u64::from(self.slowness)) / 16
    }
}

/// One request: what it could take, what it took and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Counts requests.
    pub number: u64,
    /// As given.
    pub tag: u64,
    /// When it was to be sent.
    pub at: Instant,
    /// Its type.
    pub kind: KindId,
    /// The path of its last attempt, and why; none while it waits for others.
    pub chosen: Option<(PathId, Why)>,
    /// Whether it had to wait for others first: what there was to choose from then may have been something else.
    pub waited: bool,
    /// What there was to choose from when it came.
    pub options: [Option<Seen>; OPTIONS_MAX],
    /// Attempts that failed.
    pub failed: u32,
    /// The path that failed it last.
    pub failed_path: Option<PathId>,
    /// Why.
    pub reason: String,
    /// Whether the CPUs did it in place of paths that failed.
    pub resorted: bool,
    /// Times within the hosts and from end to end of the attempt that was answered, nanoseconds; none: not yet.
    pub ended: Option<(Option<u64>, u64)>,
}

/// What a context remembers.
#[derive(Debug)]
pub(super) struct Records {
    explained: VecDeque<Explained>,
    max: usize,
    number: u64,
    before: [Option<Seen>; OPTIONS_MAX],
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
            explained: VecDeque::with_capacity(max.max(1)),
            max: max.max(1),
            number: 0,
            before: [None; OPTIONS_MAX],
            paths: paths.paths.iter().map(|_| times()).collect(),
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            sampled: Instant(0),
        }
    }

    /// What the paths look like before a request chooses.
    pub(super) fn before(&mut self, now: Instant, paths: &Paths, selector: &Selector, kind: KindId) {
        let first = paths.kinds[usize::from(kind.0)].first.0;
        self.before = [None; OPTIONS_MAX];
        for ((at, path), seen) in paths.of_kind(kind).iter().enumerate().zip(&mut self.before) {
            let id = PathId(first + at as u16);
            let PathState { k, in_flight, slowness, left_until, .. } = selector.state(id);
            let (traverse_ns, toll_ns, left) = (path.traverse_ns, path.toll_ns, left_until.is_some());
            let queue_ns = selector.queue_ns(now, id);
            *seen = Some(Seen { path: id, k, in_flight, traverse_ns, toll_ns, queue_ns, slowness, left });
        }
    }

    /// A request was taken: its number.
    pub(super) fn asked(&mut self, at: Instant, tag: u64, kind: KindId, waited: bool) -> u64 {
        if self.explained.len() == self.max {
            self.explained.pop_front();
        }
        let number = self.number;
        self.number += 1;
        self.explained.push_back(Explained {
            number,
            tag,
            at,
            kind,
            chosen: None,
            waited,
            options: self.before,
            failed: 0,
            failed_path: None,
            reason: String::new(),
            resorted: false,
            ended: None,
        });
        number
    }

    /// One that is still remembered.
    fn find(&mut self, number: u64) -> Option<&mut Explained> {
        let first = self.explained.front()?.number;
        self.explained.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    pub(super) fn chose(&mut self, number: u64, path: PathId, why: Why) {
        if let Some(record) = self.find(number) {
            record.chosen = Some((path, why));
        }
    }

    pub(super) fn failed(&mut self, number: u64, path: Option<PathId>, why: &str) {
        if let Some(record) = self.find(number) {
            record.failed += 1;
            (record.failed_path, record.reason) = (path, why.into());
        }
    }

    pub(super) fn resorted(&mut self, number: u64) {
        let Some(record) = self.find(number) else { return };
        record.resorted = true;
        if let Some(path) = record.failed_path {
            self.paths[usize::from(path.0)].resorted += 1;
        }
    }

    pub(super) fn ended(&mut self, now: Instant, entry: &Entry, intra: Option<u64>, total: u64, selector: &Selector) {
        if let Some(record) = self.find(entry.record) {
            record.ended = Some((intra, total));
        }
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
        let records = &self.telemetry.explained;
        let skip = records.len().saturating_sub(count);
        records.iter().skip(skip).map(|record| Explanation { record, paths: &self.paths })
    }
}

/// A request's way, as it is told.
#[derive(Debug, Clone, Copy)]
pub struct Explanation<'a> {
    /// What is known.
    pub record: &'a Explained,
    paths: &'a Paths,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explained { number, kind, chosen, waited, options, failed, failed_path, reason, resorted, ended, .. } =
            self.record;
        let name = |path: PathId| &self.paths.path(path).name;
        write!(f, "{number} {}: ", self.paths.kinds[usize::from(kind.0)].name)?;
        match (resorted, chosen) {
            (true, _) => write!(f, "by the CPUs, as no path answered")?,
            (false, Some((path, why))) => write!(f, "{} ({})", name(*path), because(*why))?,
            (false, None) => write!(f, "waits for those before it")?,
        }
        if *waited && chosen.is_some() {
            write!(f, ", after it had waited for those before it")?;
        }
        for (at, seen) in options.iter().flatten().enumerate() {
            let Seen { path, k, in_flight, traverse_ns, toll_ns, queue_ns, slowness, left } = seen;
            let left = if *left { ", left" } else { "" };
            write!(f, "{} {}: ", if at == 0 { ";" } else { "," }, name(*path))?;
            let sum = format!("{traverse_ns} + 2 × {queue_ns} + {k} × {toll_ns}");
            match slowness {
                0..=16 => write!(f, "{sum} = ")?,
                slow => write!(f, "({sum}) × {:.1} = ", f64::from(*slow) / 16.0)?,
            }
            write!(f, "{} ns, {in_flight} in flight{left}", seen.total_ns())?;
        }
        if let (1.., Some(path)) = (failed, failed_path) {
            write!(f, "; failed {failed} times, last on {}: {reason}", name(*path))?;
        }
        match ended {
            Some((Some(intra), total)) => write!(f, "; took {intra} ns within the hosts, {total} ns in all"),
            Some((None, total)) => write!(f, "; took {total} ns in all"),
            None => write!(f, "; not answered yet"),
        }
    }
}

/// In words.
const fn because(why: Why) -> &'static str {
    match why {
        Why::Best => "least",
        Why::Only => "no other",
        Why::Probe => "a probe",
        Why::Follows => "after one before it",
        Why::LeastBad => "all were left",
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
