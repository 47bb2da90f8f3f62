//! Labels of the exact solver: partial plans of one step, with bounds and dominance.

use super::bound::{differs_at_most, remaining_cost_bound};
use super::{SolverPath, TimedRequest};
use crate::path::PathId;

/// Labels of one step; the backlogs of all labels are in one vector.
#[derive(Debug)]
pub(super) struct Labels {
    resources: usize,
    heads: Vec<LabelHead>,
    backlogs: Vec<u64>,
    kept: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct LabelHead {
    cost_ns: u64,
    /// Lower bound of the cost of all plans that begin with this label.
    bound_ns: u64,
    before: u32,
    path: PathId,
}

impl Labels {
    pub(super) fn new(resources: usize) -> Self {
        Self { resources, heads: Vec::new(), backlogs: Vec::new(), kept: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.backlogs.clear();
        self.kept.clear();
    }

    /// Resets to one label without decisions.
    pub(super) fn start(&mut self, backlog_ns: &[u64]) {
        self.clear();
        self.heads.push(LabelHead { cost_ns: 0, bound_ns: 0, before: 0, path: PathId(0) });
        self.backlogs.extend_from_slice(backlog_ns);
        self.kept.push(0);
    }

    /// Adds a label: one of the previous step, and a path for the next request, which arrives after `after_ns`.
    pub(super) fn extend(&mut self, before: &Self, at: usize, after_ns: u64, way: &SolverPath) {
        let from = before.kept[at] as usize;
        let start = self.backlogs.len();
        self.backlogs.extend(before.backlog(from).iter().map(|backlog| backlog.saturating_sub(after_ns)));
        let backlog = &mut self.backlogs[start..];
        let mut cost_ns = before.heads[from].cost_ns.saturating_add(way.traverse_ns);
        for &(at, busy_ns) in &way.busy {
            cost_ns = cost_ns.saturating_add(backlog[at]);
            backlog[at] = backlog[at].saturating_add(busy_ns);
        }
        self.heads.push(LabelHead { cost_ns, bound_ns: 0, before: at as u32, path: way.path });
    }

    /// Computes the lower bound of each label; keeps those below `below_ns`, smallest bound first.
    pub(super) fn bound(&mut self, kinds: &[Vec<SolverPath>], rest: &[TimedRequest], below_ns: u64) {
        for at in 0..self.heads.len() {
            let bound_ns = self.heads[at].cost_ns.saturating_add(remaining_cost_bound(kinds, rest, self.backlog(at)));
            self.heads[at].bound_ns = bound_ns;
            if bound_ns < below_ns {
                self.kept.push(at as u32);
            }
        }
        let heads = &self.heads;
        self.kept.sort_unstable_by_key(|at| (heads[*at as usize].bound_ns, heads[*at as usize].cost_ns, *at));
    }

    /// Removes labels that others dominate, and those beyond `max`; returns the least bound of the latter.
    pub(super) fn prune(&mut self, kinds: &[Vec<SolverPath>], rest: &[TimedRequest], max: usize) -> u64 {
        let mut kept = std::mem::take(&mut self.kept);
        let mut count = 0;
        let mut dropped_ns = u64::MAX;
        for n in 0..kept.len() {
            let at = kept[n];
            if kept[..count].iter().any(|other| self.dominates(*other, at, kinds, rest)) {
                continue;
            }
            if count == max {
                dropped_ns = self.heads[at as usize].bound_ns;
                break;
            }
            kept[count] = at;
            count += 1;
        }
        kept.truncate(count);
        self.kept = kept;
        dropped_ns
    }

    /// Whether one label costs at most as much as another, whatever paths later requests take.
    fn dominates(&self, one: u32, other: u32, kinds: &[Vec<SolverPath>], rest: &[TimedRequest]) -> bool {
        let [head, beside] = [one, other].map(|at| self.heads[at as usize]);
        let Some(spare) = beside.cost_ns.checked_sub(head.cost_ns) else { return false };
        differs_at_most(kinds, rest, self.backlog(one as usize), self.backlog(other as usize), spare)
    }

    /// Predecessors and paths of the labels that were kept.
    pub(super) fn append_predecessors(&self, trail: &mut Vec<(u32, PathId)>) {
        trail.clear();
        trail.extend(self.kept.iter().map(|at| (self.heads[*at as usize].before, self.heads[*at as usize].path)));
    }

    /// Cheapest label, and its cost.
    pub(super) fn best(&self) -> Option<(u32, u64)> {
        let costs = self.kept.iter().enumerate().map(|(n, at)| (n as u32, self.heads[*at as usize].cost_ns));
        costs.min_by_key(|(n, cost_ns)| (*cost_ns, *n))
    }

    fn backlog(&self, at: usize) -> &[u64] {
        &self.backlogs[at * self.resources..][..self.resources]
    }
}
