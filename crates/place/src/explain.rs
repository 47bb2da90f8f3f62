//! Log of the last requests, with the selected paths and the reasons.
//!
//! The owner of a [`Selector`] keeps a [`RequestLog`] beside it, and records each event of a request.

use std::collections::VecDeque;
use std::fmt;

use pathcall_wire::Instant;

use crate::path::{KindId, PathId, Paths};
use crate::select::{LearnedTimes, PathState, SelectionReason, Selector};

/// Limit on the paths in an explanation; a type may have more.
pub const OPTIONS_MAX: usize = 8;

/// State of a path at the time of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Id of the path.
    pub path: PathId,
    /// `k̂`.
    pub k: u32,
    /// Number of messages in flight.
    pub in_flight: u32,
    /// Traverse time `T` in nanoseconds.
    pub traverse_ns: u64,
    /// Toll in nanoseconds.
    pub toll_ns: u64,
    /// Queue of this context on the path, in nanoseconds.
    pub queue_ns: u64,
    /// Slowness in 16ths of the expected time: 16 when all is well.
    pub slowness: u32,
    /// Whether the selector has left the path.
    pub left: bool,
    /// Times that late binding has learnt; `None` with other strategies.
    pub learned: Option<LearnedTimes>,
}

impl PathSnapshot {
    /// Cost of the path in nanoseconds: `T + 2 · queue + k̂ · toll`, times its slowness (LEO §III-B2, as corrected in
    /// `docs/place.md`).
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.slowed(self.traverse_ns.saturating_add(self.others_ns()).saturating_add(self.queue_ns.saturating_mul(2)))
    }

    /// Expected time until a message on this path is done, in nanoseconds.
    #[must_use]
    pub fn expected_ns(&self) -> u64 {
        self.slowed(self.traverse_ns.saturating_add(self.others_ns()).saturating_add(self.queue_ns))
    }

    /// Estimated queue of others, in nanoseconds.
    fn others_ns(&self) -> u64 {
        u64::from(self.k).saturating_mul(self.toll_ns)
    }

    fn slowed(&self, ns: u64) -> u64 {
        ns.saturating_mul(u64::from(self.slowness)) / 16
    }
}

/// Record of one request: candidates, selected path and result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectionRecord {
    /// Number of the request.
    pub number: u64,
    /// Tag of the caller.
    pub tag: u64,
    /// Time of the request.
    pub at: Instant,
    /// Request type.
    pub kind: KindId,
    /// Path of the last attempt, and the reason; `None` while the request waits for others.
    pub chosen: Option<(PathId, SelectionReason)>,
    /// Whether it had to wait for others first; the candidates may have changed since.
    pub waited: bool,
    /// Candidates at the time of the request.
    pub options: [Option<PathSnapshot>; OPTIONS_MAX],
    /// Number of failed attempts.
    pub failed: u32,
    /// Path of the last failed attempt.
    pub failed_path: Option<PathId>,
    /// Reason of the last failure.
    pub reason: String,
    /// Whether the CPUs executed it after all paths had failed.
    pub run_on_cpus: bool,
    /// Time within the hosts and end-to-end time of the answered attempt, in nanoseconds; `None`: not answered yet.
    pub ended: Option<(Option<u64>, u64)>,
}

/// Log of a selector's last requests. Allocates only for reasons of failures after [`RequestLog::new`].
#[derive(Debug)]
pub struct RequestLog {
    explained: VecDeque<SelectionRecord>,
    max: usize,
    number: u64,
    before: [Option<PathSnapshot>; OPTIONS_MAX],
}

impl RequestLog {
    /// Creates a log of at most `max` requests, at least one.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { explained: VecDeque::with_capacity(max), max, number: 0, before: [None; OPTIONS_MAX] }
    }

    /// Records the state of the paths before a selection.
    pub fn snapshot_paths(&mut self, now: Instant, paths: &Paths, selector: &Selector, kind: KindId) {
        let first = paths.kinds[usize::from(kind.0)].first.0;
        self.before = [None; OPTIONS_MAX];
        for ((at, path), seen) in paths.of_kind(kind).iter().enumerate().zip(&mut self.before) {
            let id = PathId(first + at as u16);
            let PathState { k, in_flight, slowness, left_until, learned, .. } = selector.state(id);
            let (traverse_ns, toll_ns, left) = (path.traverse_ns, path.toll_ns, left_until.is_some());
            let queue_ns = selector.queue_ns(now, id);
            *seen =
                Some(PathSnapshot { path: id, k, in_flight, traverse_ns, toll_ns, queue_ns, slowness, left, learned });
        }
    }

    /// Records a new request; returns its number.
    pub fn record_request(&mut self, at: Instant, tag: u64, kind: KindId, waited: bool) -> u64 {
        if self.explained.len() == self.max {
            self.explained.pop_front();
        }
        let number = self.number;
        self.number += 1;
        self.explained.push_back(SelectionRecord {
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
            run_on_cpus: false,
            ended: None,
        });
        number
    }

    /// Record of a request that is still in the log.
    fn find(&mut self, number: u64) -> Option<&mut SelectionRecord> {
        let first = self.explained.front()?.number;
        self.explained.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Records the selected path of an attempt.
    pub fn record_path(&mut self, number: u64, path: PathId, reason: SelectionReason) {
        if let Some(record) = self.find(number) {
            record.chosen = Some((path, reason));
        }
    }

    /// Records a failed attempt.
    pub fn record_failure(&mut self, number: u64, path: Option<PathId>, reason: &str) {
        if let Some(record) = self.find(number) {
            record.failed += 1;
            (record.failed_path, record.reason) = (path, reason.into());
        }
    }

    /// Records that all paths have failed and the CPUs execute the request.
    pub fn record_cpu_run(&mut self, number: u64) {
        if let Some(record) = self.find(number) {
            record.run_on_cpus = true;
        }
    }

    /// Records the answer: time within the hosts, if known, and end-to-end time, in nanoseconds.
    pub fn record_end(&mut self, number: u64, intra_ns: Option<u64>, total_ns: u64) {
        if let Some(record) = self.find(number) {
            record.ended = Some((intra_ns, total_ns));
        }
    }

    /// Last `count` requests, the newest last.
    pub fn recent<'a>(&'a self, count: usize, paths: &'a Paths) -> impl Iterator<Item = Explanation<'a>> {
        let skip = self.explained.len().saturating_sub(count);
        self.explained.iter().skip(skip).map(move |record| Explanation { record, paths })
    }
}

/// Explanation of one request, for people.
#[derive(Debug, Clone, Copy)]
pub struct Explanation<'a> {
    /// Record of the request.
    pub record: &'a SelectionRecord,
    paths: &'a Paths,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SelectionRecord {
            number,
            kind,
            chosen,
            waited,
            options,
            failed,
            failed_path,
            reason,
            run_on_cpus,
            ended,
            ..
        } = self.record;
        let name = |path: PathId| &self.paths.path(path).name;
        let is_late = options.iter().flatten().any(|seen| seen.learned.is_some());
        let awaited = if is_late { "a device or earlier requests" } else { "earlier requests" };
        write!(f, "{number} {}: ", self.paths.kinds[usize::from(kind.0)].name)?;
        match (run_on_cpus, chosen) {
            (true, _) => write!(f, "executed by the CPUs: no path answered")?,
            (false, Some((path, reason))) => write!(f, "{} ({})", name(*path), reason_text(*reason))?,
            (false, None) => write!(f, "waits for {awaited}")?,
        }
        if *waited && chosen.is_some() {
            write!(f, ", after waiting for {awaited}")?;
        }
        for (at, seen) in options.iter().flatten().enumerate() {
            let PathSnapshot { path, k, in_flight, traverse_ns, toll_ns, queue_ns, slowness, left, learned } = seen;
            let left = if *left { ", left" } else { "" };
            write!(f, "{} {}: ", if at == 0 { ";" } else { "," }, name(*path))?;
            if let Some(learned) = learned {
                write!(f, "{learned}, {in_flight} in flight{left}")?;
                continue;
            }
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
            Some((Some(intra), total)) => write!(f, "; took {intra} ns within the hosts, {total} ns in total"),
            Some((None, total)) => write!(f, "; took {total} ns in total"),
            None => write!(f, "; not answered yet"),
        }
    }
}

/// Text of a reason.
const fn reason_text(reason: SelectionReason) -> &'static str {
    match reason {
        SelectionReason::Best => "lowest cost",
        SelectionReason::Only => "only path",
        SelectionReason::Probe => "probe",
        SelectionReason::Follows => "follows an earlier request",
        SelectionReason::LeastBad => "all paths failing",
        SelectionReason::LastAttempt => "last attempt",
    }
}
