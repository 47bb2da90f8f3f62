//! The rolling horizon: eq. 1–4 solved for the request at hand and those that will probably follow (LEO §III-B1).

use pathcall_wire::Instant;

use crate::exact::{Arrival, Solver};
use crate::path::{KindId, PathId, Paths};

/// Most requests looked ahead.
const DEPTH_MAX: u8 = 64;
/// Partial plans kept a step.
const LABELS_MAX: usize = 256;

/// What is queued where by the model, and what came last.
#[derive(Debug)]
pub(super) struct Foretell {
    solver: Solver,
    depth: usize,
    /// Work that each resource still has, in nanoseconds, at `at`.
    backlog_ns: Vec<u64>,
    at: Instant,
    /// The last requests, oldest first, as a ring.
    last: Vec<KindId>,
    next: usize,
    /// Smoothed time between requests.
    gap_ns: u64,
    foreseen: Vec<Arrival>,
    arrivals: Vec<Arrival>,
    busy: Vec<Vec<(usize, u64)>>,
}

impl Foretell {
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

    /// The path for a request of a type that arrives now.
    pub(super) fn plan(&mut self, now: Instant, kind: KindId) -> PathId {
        self.pass(now);
        self.arrivals.clear();
        self.arrivals.push(Arrival { kind, after_ns: 0 });
        if self.foreseen.is_empty() {
            // The types that came last come again, as far apart as the last ones were.
            let (new, old) = self.last.split_at(self.next.min(self.last.len()));
            let again = old.iter().chain(new).map(|kind| Arrival { kind: *kind, after_ns: self.gap_ns });
            self.arrivals.extend(again.take(self.depth - 1));
        } else {
            self.arrivals.extend(self.foreseen.iter().take(self.depth - 1));
        }
        self.solver.solve(&self.backlog_ns, &self.arrivals, LABELS_MAX).paths[0]
    }

    /// Notes that a request goes.
    pub(super) fn sent(&mut self, now: Instant, kind: KindId, path: PathId) {
        self.pass(now);
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
        let upcoming = upcoming.iter().map(|(after_ns, kind)| Arrival { kind: *kind, after_ns: *after_ns });
        self.foreseen.extend(upcoming.take(usize::from(DEPTH_MAX)));
    }

    /// Lets time pass.
    fn pass(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.at.0);
        if passed > 0 {
            self.gap_ns = self.gap_ns - self.gap_ns / 8 + passed / 8;
            self.backlog_ns.iter_mut().for_each(|backlog| *backlog = backlog.saturating_sub(passed));
            self.at = now;
        }
    }
}
