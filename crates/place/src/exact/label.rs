//! Partial plans of one step, and which of them are worth keeping.

use super::bound::{excess, rest_bound};
use super::{Arrival, Way};
use crate::path::PathId;

/// Labels of one step; backlogs lie in one piece of memory, so many a label.
#[derive(Debug)]
pub(super) struct Labels {
    resources: usize,
    heads: Vec<Head>,
    backlogs: Vec<u64>,
    kept: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    cost_ns: u64,
    /// No plan that begins so costs less.
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

    /// One label, with nothing decided.
    pub(super) fn start(&mut self, backlog_ns: &[u64]) {
        self.clear();
        self.heads.push(Head { cost_ns: 0, bound_ns: 0, before: 0, path: PathId(0) });
        self.backlogs.extend_from_slice(backlog_ns);
        self.kept.push(0);
    }

    /// Adds a label: one of the step before, and a path for the request that comes after a time.
    pub(super) fn extend(&mut self, before: &Self, at: usize, after_ns: u64, way: &Way) {
        let from = before.kept[at] as usize;
        let start = self.backlogs.len();
        self.backlogs.extend(before.backlog(from).iter().map(|backlog| backlog.saturating_sub(after_ns)));
        let backlog = &mut self.backlogs[start..];
        let mut cost_ns = before.heads[from].cost_ns.saturating_add(way.traverse_ns);
        for &(at, busy_ns) in &way.busy {
            cost_ns = cost_ns.saturating_add(backlog[at]);
            backlog[at] = backlog[at].saturating_add(busy_ns);
        }
        self.heads.push(Head { cost_ns, bound_ns: 0, before: at as u32, path: way.path });
    }

    /// Bounds each label from below; keeps those that may end below a cost, cheapest bound first.
    pub(super) fn bound(&mut self, kinds: &[Vec<Way>], rest: &[Arrival], below_ns: u64) {
        for at in 0..self.heads.len() {
            let bound_ns = self.heads[at].cost_ns.saturating_add(rest_bound(kinds, rest, self.backlog(at)));
            self.heads[at].bound_ns = bound_ns;
            if bound_ns < below_ns {
                self.kept.push(at as u32);
            }
        }
        let heads = &self.heads;
        self.kept.sort_unstable_by_key(|at| (heads[*at as usize].bound_ns, heads[*at as usize].cost_ns, *at));
    }

    /// Drops labels that others dominate, and those beyond `max`; the least bound of the latter.
    pub(super) fn thin(&mut self, kinds: &[Vec<Way>], rest: &[Arrival], max: usize) -> u64 {
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

    /// Whether one label ends no dearer than another, whatever paths the requests that follow take.
    fn dominates(&self, one: u32, other: u32, kinds: &[Vec<Way>], rest: &[Arrival]) -> bool {
        let [head, beside] = [one, other].map(|at| self.heads[at as usize]);
        let Some(spare) = beside.cost_ns.checked_sub(head.cost_ns) else { return false };
        excess(kinds, rest, self.backlog(one as usize), self.backlog(other as usize), spare)
    }

    /// Where the labels that were kept come from.
    pub(super) fn trail(&self, trail: &mut Vec<(u32, PathId)>) {
        trail.clear();
        trail.extend(self.kept.iter().map(|at| (self.heads[*at as usize].before, self.heads[*at as usize].path)));
    }

    /// The cheapest label and its cost.
    pub(super) fn best(&self) -> Option<(u32, u64)> {
        let costs = self.kept.iter().enumerate().map(|(n, at)| (n as u32, self.heads[*at as usize].cost_ns));
        costs.min_by_key(|(n, cost_ns)| (*cost_ns, *n))
    }

    fn backlog(&self, at: usize) -> &[u64] {
        &self.backlogs[at * self.resources..][..self.resources]
    }
}
