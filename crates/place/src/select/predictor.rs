//! Rolling horizon: eq. 1–4 solved for the current request and predicted later ones (LEO §III-B1).

use pathcall_wire::Instant;

use crate::exact::{Solver, TimedRequest};
use crate::path::{KindId, PathId, Paths};

/// Limit on the look-ahead in requests.
const DEPTH_MAX: u8 = 64;
/// Limit on the labels per step.
const LABELS_MAX: usize = 256;

/// Modelled queues, and the last requests.
#[derive(Debug)]
pub(super) struct Predictor {
    solver: Solver,
    depth: usize,
    /// Backlog of each resource in nanoseconds, at `at`.
    backlog_ns: Vec<u64>,
    at: Instant,
    /// Types of the last requests, oldest first, as a ring buffer.
    last: Vec<KindId>,
    next: usize,
    /// Smoothed time between requests.
    gap_ns: u64,
    foreseen: Vec<TimedRequest>,
    arrivals: Vec<TimedRequest>,
    busy: Vec<Vec<(usize, u64)>>,
}

impl Predictor {
    pub(super) fn new(paths: &Paths, depth: u8) -> Self {
        let depth = usize::from(depth.clamp(1, DEPTH_MAX));
        let busy = |hops: &[crate::Hop]| hops.iter().map(|hop| (usize::from(hop.resource.0), hop.busy_ns)).collect();
        Self {
            solver: Solver::new(paths),
            depth,
            backlog_ns: vec![0; paths.resources.len()],
            at: Instant(0),
            last: Vec::with_capacity(depth),
            next: 0,
            gap_ns: 0,
            foreseen: Vec::with_capacity(depth),
            arrivals: Vec::with_capacity(depth),
            busy: paths.paths.iter().map(|path| busy(&path.hops)).collect(),
        }
    }

    /// Selects the path of a request that arrives now.
    pub(super) fn plan(&mut self, now: Instant, kind: KindId) -> PathId {
        self.advance_time(now);
        self.arrivals.clear();
        self.arrivals.push(TimedRequest { kind, after_ns: 0 });
        if self.foreseen.is_empty() {
            // Predicts the types of the last requests again, at the last requests' interval.
            let (new, old) = self.last.split_at(self.next.min(self.last.len()));
            let again = old.iter().chain(new).map(|kind| TimedRequest { kind: *kind, after_ns: self.gap_ns });
            self.arrivals.extend(again.take(self.depth - 1));
        } else {
            self.arrivals.extend(self.foreseen.iter().take(self.depth - 1));
        }
        self.solver.solve(&self.backlog_ns, &self.arrivals, LABELS_MAX).paths[0]
    }

    /// Records that a request is sent.
    pub(super) fn sent(&mut self, now: Instant, kind: KindId, path: PathId) {
        self.advance_time(now);
        for &(at, busy_ns) in &self.busy[usize::from(path.0)] {
            self.backlog_ns[at] = self.backlog_ns[at].saturating_add(busy_ns);
        }
        if self.last.len() < self.depth {
            self.last.push(kind);
        } else {
            self.last[self.next] = kind;
            self.next = (self.next + 1) % self.depth;
        }
    }

    pub(super) fn foresee(&mut self, upcoming: &[(u64, KindId)]) {
        self.foreseen.clear();
        let upcoming = upcoming.iter().map(|(after_ns, kind)| TimedRequest { kind: *kind, after_ns: *after_ns });
        self.foreseen.extend(upcoming.take(usize::from(DEPTH_MAX)));
    }

    /// Advances the time.
    fn advance_time(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.at.0);
        if passed > 0 {
            self.gap_ns = self.gap_ns - self.gap_ns / 8 + passed / 8;
            self.backlog_ns.iter_mut().for_each(|backlog| *backlog = backlog.saturating_sub(passed));
            self.at = now;
        }
    }
}
