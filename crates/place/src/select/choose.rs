//! The strategies: each gives a path a cost, and the least is taken.

use pathcall_wire::{Instant, Mutant, mutant};

use super::backlog::Backlog;
use super::foretell::Foretell;
use super::lane::{Ahead, Lane, PathState};
use super::{Config, Strategy, Why};
use crate::model::Role;
use crate::path::{KindId, Path, PathId, Paths};

/// No path.
const NONE: u16 = u16::MAX;
/// Messages whose times make up what migration compares with.
const PROFILE: u32 = 16;

/// Paths of all types of requests, and what is known of them.
#[derive(Debug)]
pub(super) struct Chooser {
    strategy: Strategy,
    config: Config,
    lanes: Vec<Lane>,
    kinds: Vec<Kind>,
    /// Of each type its paths, those with the least `T` first, counted from its first.
    ranked: Vec<u16>,
    /// Of each path: its type; its class, if it keeps order; accelerators and processors that it works on.
    marks: Vec<Mark>,
    /// Of each class: what was sent before this time may be lost, nanoseconds.
    whole_from: Vec<u64>,
    backlog: Backlog,
    foretell: Option<Foretell>,
}

/// What does not change of a path.
#[derive(Debug, Clone, Copy)]
struct Mark {
    kind: KindId,
    class: Option<u16>,
    accelerators: u8,
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    first: u16,
    count: u16,
    /// For taking turns.
    turn: u16,
    migration: Migration,
}

/// iPipe as LEO §V-A emulates it: the time with all work on the accelerator, and whether the last message took longer.
#[derive(Debug, Clone, Copy, Default)]
struct Migration {
    profiled: u32,
    sum_ns: u64,
    away: bool,
}

impl Chooser {
    pub(super) fn new(paths: &Paths, strategy: Strategy, config: Config) -> Self {
        let kinds = paths.kinds.iter();
        let marks = paths.paths.iter().enumerate().map(|(at, path)| Mark {
            kind: path.kind,
            class: class(&paths.paths, at),
            accelerators: accelerators(path),
        });
        Self {
            strategy,
            config,
            lanes: paths.paths.iter().map(|path| Lane::new(path, &config)).collect(),
            kinds: kinds
                .map(|kind| Kind { first: kind.first.0, count: kind.count, turn: 0, migration: Migration::default() })
                .collect(),
            ranked: paths.kinds.iter().flat_map(|kind| ranked(paths, kind)).collect(),
            marks: marks.collect(),
            whole_from: vec![0; paths.paths.len()],
            backlog: Backlog::new(paths),
            foretell: match strategy {
                Strategy::Horizon { depth } => Some(Foretell::new(paths, depth)),
                _ => None,
            },
        }
    }

    /// The path for a request.
    pub(super) fn choose(&mut self, now: Instant, kind: KindId) -> (PathId, Why) {
        let &Kind { first, count, .. } = &self.kinds[usize::from(kind.0)];
        if count == 1 {
            return (PathId(first), Why::Only);
        }
        let chosen = match self.strategy {
            Strategy::Leo => self.leo(now, first, count),
            _ => self.other(now, kind),
        };
        chosen.unwrap_or_else(|| {
            let due = (first..first + count).min_by_key(|at| self.lanes[usize::from(*at)].probe_at());
            (PathId(due.unwrap_or(first)), Why::LeastBad)
        })
    }

    /// Ours, if not all paths were left.
    fn leo(&mut self, now: Instant, first: u16, count: u16) -> Option<(PathId, Why)> {
        let mut best = None;
        let mut least = f64::INFINITY;
        for &at in &self.ranked[usize::from(first)..usize::from(first + count)] {
            let path = first + at;
            let lane = &mut self.lanes[usize::from(path)];
            if lane.look_due(now) {
                let usable = lane.usable(now);
                if lane.probe_due(now, true) {
                    lane.probes(now, &self.config);
                    return Some((PathId(path), Why::Probe));
                }
                if !usable {
                    continue;
                }
            }
            // Its queue can't make it better.
            if lane.least_cost() >= least {
                continue;
            }
            let cost = lane.cost(self.backlog.of(now, usize::from(path)));
            if cost < least {
                (best, least) = (Some((PathId(path), Why::Best)), cost);
            }
        }
        best
    }

    /// Another strategy's, if not all paths were left.
    fn other(&mut self, now: Instant, kind: KindId) -> Option<(PathId, Why)> {
        let Kind { first, count, turn, migration } = self.kinds[usize::from(kind.0)];
        let planned = self.foretell.as_mut().map(|foretell| foretell.plan(now, kind));
        let lanes = &mut self.lanes[usize::from(first)..usize::from(first + count)];
        let marks = &self.marks[usize::from(first)..usize::from(first + count)];
        let heals = matches!(self.strategy, Strategy::ShortestQueue | Strategy::Horizon { .. });
        let (mut best, mut least) = (NONE, u64::MAX);
        for &at in &self.ranked[usize::from(first)..usize::from(first + count)] {
            let lane = &mut lanes[usize::from(at)];
            let usable = lane.usable(now);
            if lane.unwell() && lane.probe_due(now, heals) {
                lane.probes(now, &self.config);
                return Some((PathId(first + at), Why::Probe));
            }
            if !usable {
                continue;
            }
            let accelerators = marks[usize::from(at)].accelerators;
            let cost = match self.strategy {
                Strategy::Leo | Strategy::LeoAsPrinted => lane.cost_as_printed(),
                Strategy::ShortestQueue => lane.cost_of_queue(),
                Strategy::GreedyE2e => lane.last_total_ns(),
                Strategy::GreedyIntra => lane.last_intra_ns(),
                Strategy::RoundRobin => u64::from((at + count - turn) % count),
                Strategy::AllCpu => by_role(accelerators, lane),
                Strategy::AllAcc => by_role(2 - accelerators, lane),
                Strategy::Migration if migration.away => by_role(accelerators, lane),
                Strategy::Migration => by_role(2 - accelerators, lane),
                Strategy::Horizon { .. } if planned == Some(PathId(first + at)) => 0,
                Strategy::Horizon { .. } => lane.cost_of_queue().max(1),
            };
            if cost < least || best == NONE {
                (best, least) = (at, cost);
            }
        }
        if best == NONE {
            return None;
        }
        self.kinds[usize::from(kind.0)].turn = (best + 1) % count;
        Some((PathId(first + best), Why::Best))
    }

    /// The path of a type of request in a class, if it has one that was not left, and nothing of the class failed since
    /// `sent`: what broke it may have taken what was sent then, though that is not said yet.
    pub(super) fn in_class(&self, kind: KindId, class: u16, sent: Instant) -> Option<PathId> {
        if sent.0 < self.whole_from[usize::from(class)] && !mutant::on(Mutant::PlaceFollowsBroken) {
            return None;
        }
        let Kind { first, count, .. } = self.kinds[usize::from(kind.0)];
        let mut paths = first..first + count;
        let at = paths.find(|at| self.marks[usize::from(*at)].class == Some(class))?;
        (!self.lanes[usize::from(at)].left()).then_some(PathId(at))
    }

    /// A path's class: paths of one class have the same resources and keep order; none of a path that does not.
    pub(super) fn class(&self, path: PathId) -> Option<u16> {
        self.marks[usize::from(path.0)].class
    }

    /// Notes that a message goes; what it will meet.
    pub(super) fn sent(&mut self, now: Instant, path: PathId) -> Ahead {
        if let Some(foretell) = &mut self.foretell {
            foretell.sent(now, self.marks[usize::from(path.0)].kind, path);
        }
        let queue_ns = self.backlog.add(now, usize::from(path.0));
        Ahead { messages: self.lanes[usize::from(path.0)].sent(now), queue_ns, sent: now }
    }

    pub(super) fn done(&mut self, now: Instant, path: PathId, ahead: &Ahead, intra_ns: Option<u64>, total_ns: u64) {
        self.backlog.remove(usize::from(path.0));
        self.lanes[usize::from(path.0)].done(now, ahead, intra_ns, total_ns, &self.config);
        if self.strategy == Strategy::Migration {
            self.kinds[usize::from(self.marks[usize::from(path.0)].kind.0)].migration.done(total_ns);
        }
    }

    pub(super) fn failed(&mut self, now: Instant, path: PathId) {
        self.backlog.remove(usize::from(path.0));
        if let Some(class) = self.class(path) {
            self.whole_from[usize::from(class)] = now.0.saturating_add(1);
        }
        self.lanes[usize::from(path.0)].fails(now);
    }

    pub(super) fn abandoned(&mut self, path: PathId) {
        self.backlog.remove(usize::from(path.0));
        self.lanes[usize::from(path.0)].abandoned();
    }

    pub(super) fn state(&self, path: PathId) -> PathState {
        self.lanes[usize::from(path.0)].state()
    }

    pub(super) fn queue_ns(&self, now: Instant, path: PathId) -> u64 {
        self.backlog.of(now, usize::from(path.0)) as u64
    }

    pub(super) fn foresee(&mut self, upcoming: &[(u64, KindId)]) {
        if let Some(foretell) = &mut self.foretell {
            foretell.foresee(upcoming);
        }
    }
}

impl Migration {
    fn done(&mut self, total_ns: u64) {
        if self.profiled < PROFILE {
            self.profiled += 1;
            self.sum_ns = self.sum_ns.saturating_add(total_ns);
        } else {
            self.away = total_ns > self.sum_ns / u64::from(PROFILE);
        }
    }
}

/// Fewest first; of as many the quicker.
fn by_role(unwanted: u8, lane: &Lane) -> u64 {
    (u64::from(unwanted) << 56) | lane.traverse_ns
}

/// The priority list of a type of request (LEO §III-B2).
fn ranked(paths: &Paths, kind: &crate::path::Kind) -> Vec<u16> {
    let mut ranked: Vec<u16> = (0..kind.count).collect();
    ranked.sort_by_key(|at| paths.path(PathId(kind.first.0 + at)).traverse_ns);
    ranked
}

/// Ends of a path that are on accelerators.
fn accelerators(path: &Path) -> u8 {
    [path.role, path.requester_role].into_iter().filter(|role| *role == Role::Acc).count() as u8
}

/// The first path over the same resources in the same order.
fn class(paths: &[Path], at: usize) -> Option<u16> {
    let path = &paths[at];
    let keeps = |path: &Path| path.fifo || mutant::on(Mutant::PlaceFollowsAnywhere);
    let same = |other: &Path| {
        keeps(other) && other.hops.iter().map(|hop| hop.resource).eq(path.hops.iter().map(|hop| hop.resource))
    };
    keeps(path).then(|| paths.iter().position(same).map(|first| first as u16))?
}
