//! Exact solver: the best paths for a known sequence of requests (LEO §III-B1, eq. 1–4).
//!
//! The solver decides for one request after the other. A partial plan is a *label*: its cost, and the backlog that it
//! leaves at each resource. One label *dominates* another one if it cannot end with a higher cost, whatever follows;
//! the other one is then dropped. A lower bound removes labels that cannot beat a known plan. The plan that is left
//! is proven to be the best.
//!
//! A request waits for the backlog that it finds: eq. 3 sums the backlogs before the request joins them. (As printed,
//! eq. 1 and 2 give them after the request has joined and the following gap has passed, as the next request finds
//! them.) A resource that a path visits several times is waited for once, and is busy for the sum.

mod bound;
mod label;

use crate::path::{KindId, PathId, Paths};
use label::Labels;

/// Request of a known sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedRequest {
    /// Request type.
    pub kind: KindId,
    /// Time since the previous arrival, `Δt`, in nanoseconds; of the first one since the time of the backlog.
    pub after_ns: u64,
}

/// Paths for a sequence of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPlan {
    /// Path of each request.
    pub paths: Vec<PathId>,
    /// Sum of all requests' times within the hosts, in nanoseconds (eq. 3).
    pub total_ns: u64,
    /// Lower bound of all plans, in nanoseconds; equal to `total_ns` if the plan is proven to be the best.
    pub bound_ns: u64,
}

impl PathPlan {
    /// Whether the plan is proven to be the best.
    #[must_use]
    pub const fn proven(&self) -> bool {
        self.bound_ns == self.total_ns
    }
}

/// Exact solver for sequences over the same paths; reuses its memory.
#[derive(Debug)]
pub struct Solver {
    kinds: Vec<Vec<SolverPath>>,
    resources: usize,
    now: Labels,
    next: Labels,
    /// Predecessor and path of each step's labels.
    steps: Vec<Vec<(u32, PathId)>>,
}

/// Path in the form that the solver needs.
#[derive(Debug)]
pub(crate) struct SolverPath {
    path: PathId,
    traverse_ns: u64,
    /// Resources, with the time for which the path keeps each busy.
    busy: Vec<(usize, u64)>,
}

/// Number of labels of the first, narrow search, which finds a good plan for comparison.
const BEAM: usize = 64;

impl Solver {
    /// Creates a solver for paths.
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
            SolverPath { path: PathId(at as u16), traverse_ns: path.traverse_ns, busy }
        };
        let ways = |kind: &crate::path::RequestKind| {
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
    /// Keeps at most `labels_max` labels per step; the plan is not proven if that is too few.
    ///
    /// # Panics
    /// If a backlog is missing, or a request type does not exist.
    pub fn solve(&mut self, backlog_ns: &[u64], arrivals: &[TimedRequest], labels_max: usize) -> PathPlan {
        assert_eq!(backlog_ns.len(), self.resources, "a backlog for each resource");
        let narrow = self.search(backlog_ns, arrivals, BEAM.min(labels_max.max(1)), u64::MAX);
        if narrow.proven() || labels_max <= BEAM {
            return narrow;
        }
        let wide = self.search(backlog_ns, arrivals, labels_max, narrow.total_ns);
        // The wide search found no better plan.
        if wide.paths.len() < arrivals.len() || wide.total_ns >= narrow.total_ns {
            return PathPlan { bound_ns: wide.bound_ns.min(narrow.total_ns), ..narrow };
        }
        wide
    }

    /// Searches for a plan below `below_ns`.
    fn search(&mut self, backlog_ns: &[u64], arrivals: &[TimedRequest], labels_max: usize, below_ns: u64) -> PathPlan {
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
            dropped_ns = dropped_ns.min(self.next.prune(&self.kinds, rest, labels_max));
            if self.steps.len() <= step {
                self.steps.push(Vec::new());
            }
            self.next.append_predecessors(&mut self.steps[step]);
            std::mem::swap(&mut self.now, &mut self.next);
        }
        let Some((mut at, total_ns)) = self.now.best() else {
            return PathPlan { paths: Vec::new(), total_ns: below_ns, bound_ns: dropped_ns.min(below_ns) };
        };
        let mut paths = vec![PathId(0); arrivals.len()];
        for (path, step) in paths.iter_mut().zip(&self.steps).rev() {
            (at, *path) = step[at as usize];
        }
        PathPlan { paths, total_ns, bound_ns: dropped_ns.min(total_ns) }
    }
}

/// Finds the plan with the least sum of times from idle resources; see [`Solver::solve`].
#[must_use]
pub fn solve(paths: &Paths, arrivals: &[TimedRequest], labels_max: usize) -> PathPlan {
    Solver::new(paths).solve(&vec![0; paths.resources.len()], arrivals, labels_max)
}

/// Cost of a plan from a backlog per resource: the sum of all requests' times within the hosts, in nanoseconds.
///
/// # Panics
/// If there are fewer paths than arrivals, or a path has another request type.
#[must_use]
pub fn cost_ns(paths: &Paths, backlog_ns: &[u64], arrivals: &[TimedRequest], plan: &[PathId]) -> u64 {
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
