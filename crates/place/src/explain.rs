//! The last requests, which path each took, and why: for whoever asks.
//!
//! Whoever has a [`Selector`] keeps a [`Log`] beside it, and tells it what becomes of each request.

use std::collections::VecDeque;
use std::fmt;

use pathcall_wire::Instant;

use crate::path::{KindId, PathId, Paths};
use crate::select::{PathState, Selector, Why};

/// Paths of one type that are told of in an explanation; there may be more.
pub const OPTIONS_MAX: usize = 6;

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

/// The last requests of a selector. Allocates nothing after [`Log::new`], but for reasons of failures.
#[derive(Debug)]
pub struct Log {
    explained: VecDeque<Explained>,
    max: usize,
    number: u64,
    before: [Option<Seen>; OPTIONS_MAX],
}

impl Log {
    /// One that remembers so many requests, at least one.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { explained: VecDeque::with_capacity(max), max, number: 0, before: [None; OPTIONS_MAX] }
    }

    /// What the paths look like before a request chooses.
    pub fn before(&mut self, now: Instant, paths: &Paths, selector: &Selector, kind: KindId) {
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
    pub fn asked(&mut self, at: Instant, tag: u64, kind: KindId, waited: bool) -> u64 {
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

    /// It goes on this path.
    pub fn chose(&mut self, number: u64, path: PathId, why: Why) {
        if let Some(record) = self.find(number) {
            record.chosen = Some((path, why));
        }
    }

    /// An attempt failed.
    pub fn failed(&mut self, number: u64, path: Option<PathId>, why: &str) {
        if let Some(record) = self.find(number) {
            record.failed += 1;
            (record.failed_path, record.reason) = (path, why.into());
        }
    }

    /// All paths have failed it: somebody does it in their place.
    pub fn resorted(&mut self, number: u64) {
        if let Some(record) = self.find(number) {
            record.resorted = true;
        }
    }

    /// It was answered: times within the hosts, if they are known, and from end to end, in nanoseconds.
    pub fn ended(&mut self, number: u64, intra_ns: Option<u64>, total_ns: u64) {
        if let Some(record) = self.find(number) {
            record.ended = Some((intra_ns, total_ns));
        }
    }

    /// The last `count` requests, the newest last.
    pub fn last<'a>(&'a self, count: usize, paths: &'a Paths) -> impl Iterator<Item = Explanation<'a>> {
        let skip = self.explained.len().saturating_sub(count);
        self.explained.iter().skip(skip).map(move |record| Explanation { record, paths })
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
