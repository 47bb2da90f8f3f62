//! The best choice of paths for a known sequence of requests (LEO §III-B1, eq. 1–4).
//!
//! Choosing for one request after the other, a partial plan is a *label*: what it cost, and the backlog that it leaves at
//! each resource. One label *dominates* another when it can't end dearer, whatever follows: then the other is dropped.
//! A bound from below drops those that can't beat a plan that is known. What is left over at the end is the best, proven.
//!
//! A request waits for what it finds: eq. 3 sums the backlogs before it joins them. (As printed, eq. 1 and 2 have them
//! after it joined and the gap that follows passed, which is what the next one finds.) A resource that a path visits
//! several times is waited for once, and kept busy for the sum.

mod bound;
mod label;

use crate::path::{KindId, PathId, Paths};
use label::Labels;

/// A request of a known sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its type.
    pub kind: KindId,
    /// Time from the arrival before it, `Δt`, in nanoseconds; of the first from the backlog's time.
    pub after_ns: u64,
}

/// Paths for a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// A path for each request.
    pub paths: Vec<PathId>,
    /// Sum of all requests' times inside the hosts, in nanoseconds (eq. 3).
    pub total_ns: u64,
    /// No plan is below this, in nanoseconds: equal to `total_ns` where the plan is proven to be the best.
    pub bound_ns: u64,
}

impl Plan {
    /// Whether no plan is better.
    #[must_use]
    pub const fn proven(&self) -> bool {
        self.bound_ns == self.total_ns
    }
}

/// Solves sequences over the same paths; keeps its memory from one to the next.
#[derive(Debug)]
pub struct Solver {
    kinds: Vec<Vec<Way>>,
    resources: usize,
    now: Labels,
    next: Labels,
    /// Of each step's labels: the label before, and the path.
    steps: Vec<Vec<(u32, PathId)>>,
}

/// A path as the solver sees it.
#[derive(Debug)]
pub(crate) struct Way {
    path: PathId,
    traverse_ns: u64,
    /// Resources with the time for which it keeps each busy.
    busy: Vec<(usize, u64)>,
}

/// Labels of the first, narrow search, which finds a good plan to measure others by.
const BEAM: usize = 64;

impl Solver {
    /// A solver for paths.
    #[must_use]
    pub fn new(paths: &Paths) -> Self {
        let way = |at: usize| {
            let path = &paths.paths[at];
            let mut busy: Vec<(usize, u64)> = Vec::new();
            for hop in &path.hops {
                match busy.iter_mut().find(|(known, _)| *known == usize::from(hop.resource.0)) {
                    Some((_, sum)) => *sum = sum.saturating_add(hop.busy_ns),
                    None => busy.push((usize::from(hop.resource.0), hop.busy_ns)),
                }
            }
            Way { path: PathId(at as u16), traverse_ns: path.traverse_ns, busy }
        };
        let ways = |kind: &crate::path::Kind| {
            let first = usize::from(kind.first.0);
            (first..first + usize::from(kind.count)).map(way).collect()
        };
        let resources = paths.resources.len();
        Self {
            kinds: paths.kinds.iter().map(ways).collect(),
            resources,
            now: Labels::new(resources),
            next: Labels::new(resources),
            steps: Vec::new(),
        }
    }

    /// Finds the plan with the least sum of times, from a backlog per resource in nanoseconds.
    ///
    /// Keeps at most `labels_max` partial plans a step; only where that is too few the plan is not proven.
    ///
    /// # Panics
    /// When a backlog is missing, or a type is not one of the paths'.
    pub fn solve(&mut self, backlog_ns: &[u64], arrivals: &[Arrival], labels_max: usize) -> Plan {
        assert_eq!(backlog_ns.len(), self.resources, "a backlog for each resource");
        let narrow = self.search(backlog_ns, arrivals, BEAM.min(labels_max.max(1)), u64::MAX);
        if narrow.proven() || labels_max <= BEAM {
            return narrow;
        }
        let wide = self.search(backlog_ns, arrivals, labels_max, narrow.total_ns);
        // Nothing was left that is better.
        if wide.paths.len() < arrivals.len() || wide.total_ns >= narrow.total_ns {
            return Plan { bound_ns: wide.bound_ns.min(narrow.total_ns), ..narrow };
        }
        wide
    }

    /// Searches for a plan below `below_ns`.
    fn search(&mut self, backlog_ns: &[u64], arrivals: &[Arrival], labels_max: usize, below_ns: u64) -> Plan {
        self.now.start(backlog_ns);
        let mut dropped_ns = u64::MAX;
        for (step, arrival) in arrivals.iter().enumerate() {
            let rest = &arrivals[step + 1..];
            self.next.clear();
            for at in 0..self.now.len() {
                for way in &self.kinds[usize::from(arrival.kind.0)] {
                    self.next.extend(&self.now, at, arrival.after_ns, way);
                }
            }
            self.next.bound(&self.kinds, rest, below_ns);
            dropped_ns = dropped_ns.min(self.next.thin(&self.kinds, rest, labels_max));
            if self.steps.len() <= step {
                self.steps.push(Vec::new());
            }
            self.next.trail(&mut self.steps[step]);
            std::mem::swap(&mut self.now, &mut self.next);
        }
        let Some((mut at, total_ns)) = self.now.best() else {
            return Plan { paths: Vec::new(), total_ns: below_ns, bound_ns: dropped_ns.min(below_ns) };
        };
        let mut paths = vec![PathId(0); arrivals.len()];
        for (path, step) in paths.iter_mut().zip(&self.steps).rev() {
            (at, *path) = step[at as usize];
        }
        Plan { paths, total_ns, bound_ns: dropped_ns.min(total_ns) }
    }
}

/// Finds the plan with the least sum of times from idle resources: see [`Solver::solve`].
#[must_use]
pub fn solve(paths: &Paths, arrivals: &[Arrival], labels_max: usize) -> Plan {
    Solver::new(paths).solve(&vec![0; paths.resources.len()], arrivals, labels_max)
}

/// What a plan costs from a backlog per resource: the sum of all requests' times inside the hosts, in nanoseconds.
///
/// # Panics
/// When there are fewer paths than arrivals, or a path is not one of the request's type.
#[must_use]
pub fn cost_ns(paths: &Paths, backlog_ns: &[u64], arrivals: &[Arrival], plan: &[PathId]) -> u64 {
    let solver = Solver::new(paths);
    let mut backlog = backlog_ns.to_vec();
    let mut total_ns = 0_u64;
    for (arrival, path) in arrivals.iter().zip(plan) {
        backlog.iter_mut().for_each(|backlog| *backlog = backlog.saturating_sub(arrival.after_ns));
        let way =
            solver.kinds[usize::from(arrival.kind.0)].iter().find(|way| way.path == *path).expect("a path of its type");
        total_ns += way.traverse_ns + way.busy.iter().map(|(at, _)| backlog[*at]).sum::<u64>();
        way.busy.iter().for_each(|(at, busy_ns)| backlog[*at] += busy_ns);
    }
    total_ns
}
