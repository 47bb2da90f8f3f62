//! Strategies: each assigns a cost to each path, and the least is selected.

use std::ops::Range;

use pathcall_wire::{Instant, Mutant, mutant};

use super::backlog::Backlog;
use super::common_queue::CommonQueue;
use super::late::{LateBinding, QueueEnd};
use super::path_state::{PathInternals, PathState, QueueAhead};
use super::predictor::Predictor;
use super::sharing::{SharedAccelerators, accelerators};
use super::{Config, SelectionReason, SelectionStrategy};
use crate::path::{KindId, Path, PathId, Paths};

/// Index for "no path".
const NONE: u16 = u16::MAX;
/// Number of messages whose times make up the reference of the migration strategy.
const PROFILE: u32 = 16;

/// Paths of all request types, with their state.
#[derive(Debug)]
pub(super) struct PathChooser {
    strategy: SelectionStrategy,
    config: Config,
    lanes: Vec<PathInternals>,
    kinds: Vec<KindState>,
    /// Path indexes of each type, relative to its first, in the order of `T`.
    ranked: Vec<u16>,
    /// Properties of each path.
    marks: Vec<Mark>,
    /// Per class, the time before which sent messages may be lost, in nanoseconds.
    lossless_from: Vec<u64>,
    backlog: Backlog,
    predictor: Option<Predictor>,
    late: Option<LateBinding>,
    shared: SharedAccelerators,
}

/// Fixed properties of a path.
#[derive(Debug, Clone, Copy)]
struct Mark {
    kind: KindId,
    /// Its class, if it keeps order.
    class: Option<u16>,
    /// Its number of accelerators.
    accelerators: u8,
}

#[derive(Debug, Clone, Copy)]
struct KindState {
    first: u16,
    count: u16,
    /// Next path in turn.
    turn: u16,
    migration: Migration,
}

/// iPipe as emulated in LEO §V-A: the time with all work on the accelerator, and whether the last message took
/// longer.
#[derive(Debug, Clone, Copy, Default)]
struct Migration {
    profiled: u32,
    sum_ns: u64,
    away: bool,
}

impl PathChooser {
    pub(super) fn new(paths: &Paths, strategy: SelectionStrategy, config: Config) -> Self {
        let kinds = paths.kinds.iter();
        let late = strategy == SelectionStrategy::Late;
        let marks = paths.paths.iter().enumerate().map(|(at, path)| Mark {
            kind: path.kind,
            class: class(&paths.paths, at),
            accelerators: accelerators(path),
        });
        Self {
            strategy,
            config,
            lanes: paths.paths.iter().map(|path| PathInternals::new(path, &config, !late)).collect(),
            kinds: kinds
                .map(|kind| KindState {
                    first: kind.first.0,
                    count: kind.count,
                    turn: 0,
                    migration: Migration::default(),
                })
                .collect(),
            ranked: paths.kinds.iter().flat_map(|kind| priority_list(paths, kind)).collect(),
            marks: marks.collect(),
            lossless_from: vec![0; paths.paths.len()],
            backlog: Backlog::new(paths),
            predictor: match strategy {
                SelectionStrategy::Horizon { depth } => Some(Predictor::new(paths, depth)),
                _ => None,
            },
            late: late.then(|| LateBinding::new(paths, |path| accelerators(&paths.paths[path]))),
            shared: SharedAccelerators::new(paths),
        }
    }

    /// Selects the path of a request with this number of attempts. After a failure, it is not sent as a probe.
    pub(super) fn choose(&mut self, now: Instant, kind: KindId, attempts: u8) -> (PathId, SelectionReason) {
        let &KindState { first, count, .. } = &self.kinds[usize::from(kind.0)];
        if count == 1 {
            return (PathId(first), SelectionReason::Only);
        }
        if let Some(path) = self.last_path(first, count, attempts) {
            return (path, SelectionReason::LastAttempt);
        }
        let again = attempts > 0;
        let chosen = match self.strategy {
            SelectionStrategy::Leo | SelectionStrategy::Late => self.leo(now, first, count, again),
            _ => self.other(now, kind, again),
        };
        chosen.unwrap_or_else(|| self.least_bad(first, count))
    }

    /// Records that the next message probes a path. Paths over the same accelerator take turns, so that more paths cost no
    /// more probes.
    fn probes(&mut self, now: Instant, path: u16) {
        let is_waiting = |at: &u16| self.shared.is_shared(path, *at) && self.lanes[usize::from(*at)].is_left_or_slow();
        let turns = if self.shared.has_several() { self.of_kind(path).filter(is_waiting).count() } else { 1 };
        self.lanes[usize::from(path)].probes(now, turns as u64, &self.config);
    }

    /// Paths of the same type.
    fn of_kind(&self, path: u16) -> Range<u16> {
        let KindState { first, count, .. } = self.kinds[usize::from(self.marks[usize::from(path)].kind.0)];
        first..first + count
    }

    /// Path of a last attempt: with several accelerators, they may all have failed the request.
    fn last_path(&self, first: u16, count: u16, attempts: u8) -> Option<PathId> {
        if !self.shared.has_several() || attempts == 0 || attempts.saturating_add(1) < self.config.attempts_max {
            return None;
        }
        let paths = (first..first + count).filter(|at| !self.lanes[usize::from(*at)].is_left());
        let best = paths.min_by_key(|at| {
            let at = usize::from(*at);
            (self.marks[at].accelerators, self.lanes[at].traverse_ns)
        });
        best.map(PathId)
    }

    /// Path to take if all were left: the first that is to be probed.
    fn least_bad(&self, first: u16, count: u16) -> (PathId, SelectionReason) {
        let allowed = self.accelerators_max(first, count);
        let paths = (first..first + count).filter(|at| self.marks[usize::from(*at)].accelerators <= allowed);
        let due = paths.min_by_key(|at| self.lanes[usize::from(*at)].probe_at());
        (PathId(due.unwrap_or(first)), SelectionReason::LeastBad)
    }

    /// Late binding: path of the first or the last message of a type that waits in the queue; `None` if both wait.
    /// `attempts`: of the first one, which after a failure is not sent as a probe.
    pub(super) fn pull(
        &mut self,
        now: Instant,
        kind: KindId,
        queue: &CommonQueue,
        attempts: u8,
    ) -> Option<(QueueEnd, PathId, SelectionReason)> {
        let KindState { first, count, .. } = self.kinds[usize::from(kind.0)];
        if let Some(path) = self.last_path(first, count, attempts) {
            return Some((QueueEnd::First, path, SelectionReason::LastAttempt));
        }
        let again = attempts > 0;
        let late = self.late.as_mut()?;
        for &at in &self.ranked[usize::from(first)..usize::from(first + count)] {
            let lane = &mut self.lanes[usize::from(first + at)];
            let mut probes = false;
            if lane.needs_check(now) {
                lane.usable(now, &self.config);
                probes = !again && lane.probe_due(now, true);
            }
            if probes || !again && count > 1 && !lane.is_left() && late.probe_due(now, first + at) {
                late.probes();
                if probes {
                    self.probes(now, first + at);
                }
                return Some((QueueEnd::First, PathId(first + at), SelectionReason::Probe));
            }
        }
        let lanes = &self.lanes;
        let usable = (first..first + count).filter(|at| !lanes[usize::from(*at)].is_left());
        if usable.clone().next().is_none() {
            let (path, reason) = self.least_bad(first, count);
            return Some((QueueEnd::First, path, reason));
        }
        let (path, end) = self.late.as_mut()?.pull(usable, queue)?;
        let reason = if count == 1 { SelectionReason::Only } else { SelectionReason::Best };
        Some((end, PathId(path), reason))
    }

    /// Time from which a path of a waiting message is stalled if no message ends.
    pub(super) fn stalls_at(&self, queue: &CommonQueue) -> Option<Instant> {
        let paths = self.late.as_ref()?.waiting_kinds(queue).flatten();
        paths.filter_map(|path| self.lanes[usize::from(path)].stalls_at()).min()
    }

    /// Begins a round of pulls, from the oldest waiting message on.
    pub(super) fn begin_round(&mut self) {
        self.late.iter_mut().for_each(LateBinding::begin_round);
    }

    /// Records that a message that was pulled is not sent.
    pub(super) fn not_sent(&mut self) {
        self.late.iter_mut().for_each(LateBinding::not_sent);
    }

    /// Greatest number of accelerators of a path that the strategy may select from these.
    fn accelerators_max(&self, first: u16, count: u16) -> u8 {
        let marks = &self.marks[usize::from(first)..usize::from(first + count)];
        match self.strategy {
            SelectionStrategy::AllCpu => marks.iter().map(|mark| mark.accelerators).min().unwrap_or(0),
            _ => u8::MAX,
        }
    }

    /// Leo's selection; `None` if all paths were left.
    fn leo(&mut self, now: Instant, first: u16, count: u16, again: bool) -> Option<(PathId, SelectionReason)> {
        let mut best = None;
        let mut least = f64::INFINITY;
        for &at in &self.ranked[usize::from(first)..usize::from(first + count)] {
            let path = first + at;
            let lane = &mut self.lanes[usize::from(path)];
            if lane.needs_check(now) {
                let usable = lane.usable(now, &self.config);
                if !again && lane.probe_due(now, true) {
                    self.probes(now, path);
                    return Some((PathId(path), SelectionReason::Probe));
                }
                if !usable {
                    continue;
                }
            }
            // A queue cannot lower the cost.
            if lane.least_cost() >= least {
                continue;
            }
            let cost = lane.cost(self.backlog.of(now, usize::from(path)));
            if cost < least {
                (best, least) = (Some((PathId(path), SelectionReason::Best)), cost);
            }
        }
        best
    }

    /// Selection of the other strategies; `None` if all paths were left.
    fn other(&mut self, now: Instant, kind: KindId, again: bool) -> Option<(PathId, SelectionReason)> {
        let KindState { first, count, turn, migration } = self.kinds[usize::from(kind.0)];
        let allowed = self.accelerators_max(first, count);
        let planned = self.predictor.as_mut().map(|predictor| predictor.plan(now, kind));
        let lanes = &mut self.lanes[usize::from(first)..usize::from(first + count)];
        let marks = &self.marks[usize::from(first)..usize::from(first + count)];
        let several = self.shared.has_several();
        let heals = matches!(self.strategy, SelectionStrategy::ShortestQueue | SelectionStrategy::Horizon { .. });
        let (mut best, mut least) = (NONE, u64::MAX);
        for &at in &self.ranked[usize::from(first)..usize::from(first + count)] {
            let accelerators = marks[usize::from(at)].accelerators;
            if accelerators > allowed {
                continue;
            }
            let lane = &mut lanes[usize::from(at)];
            let usable = lane.usable(now, &self.config);
            if !again && lane.is_left_or_slow() && lane.probe_due(now, heals) {
                self.probes(now, first + at);
                return Some((PathId(first + at), SelectionReason::Probe));
            }
            if !usable {
                continue;
            }
            let cost = match self.strategy {
                SelectionStrategy::Leo | SelectionStrategy::Late | SelectionStrategy::LeoAsPrinted => {
                    lane.cost_as_printed()
                }
                SelectionStrategy::ShortestQueue => lane.cost_of_queue(),
                SelectionStrategy::GreedyE2e => lane.last_total_ns(),
                SelectionStrategy::GreedyIntra => lane.last_intra_ns(),
                SelectionStrategy::RoundRobin => u64::from((at + count - turn) % count),
                SelectionStrategy::AllCpu => lane.traverse_ns,
                SelectionStrategy::AllAcc => role_cost(2 - accelerators, lane, several),
                SelectionStrategy::Migration if migration.away => role_cost(accelerators, lane, several),
                SelectionStrategy::Migration => role_cost(2 - accelerators, lane, several),
                SelectionStrategy::Horizon { .. } if planned == Some(PathId(first + at)) => 0,
                SelectionStrategy::Horizon { .. } => lane.cost_of_queue().max(1),
            };
            if cost < least || best == NONE {
                (best, least) = (at, cost);
            }
        }
        if best == NONE {
            return None;
        }
        self.kinds[usize::from(kind.0)].turn = (best + 1) % count;
        Some((PathId(first + best), SelectionReason::Best))
    }

    /// Path of a request type in a class, if it was not left and no path of the class has failed since `sent`. The
    /// cause of a failure may also have lost messages whose failure is not reported yet.
    pub(super) fn in_class(&self, kind: KindId, class: u16, sent: Instant) -> Option<PathId> {
        if sent.0 < self.lossless_from[usize::from(class)] && !mutant::on(Mutant::PlaceFollowsBroken) {
            return None;
        }
        let KindState { first, count, .. } = self.kinds[usize::from(kind.0)];
        let mut paths = first..first + count;
        let at = paths.find(|at| self.marks[usize::from(*at)].class == Some(class))?;
        (!self.lanes[usize::from(at)].is_left()).then_some(PathId(at))
    }

    /// Class of a path: paths of one class have the same resources and keep order. `None` for a path that does not.
    pub(super) fn class(&self, path: PathId) -> Option<u16> {
        self.marks[usize::from(path.0)].class
    }

    /// Records that a message is sent; returns the queue ahead of it.
    pub(super) fn sent(&mut self, now: Instant, path: PathId) -> QueueAhead {
        if let Some(predictor) = &mut self.predictor {
            predictor.sent(now, self.marks[usize::from(path.0)].kind, path);
        }
        let queue_ns = self.backlog.add(now, usize::from(path.0));
        let late = self.late.as_mut().map_or_else(Default::default, |late| late.sent(now, path.0));
        QueueAhead { messages: self.lanes[usize::from(path.0)].sent(now), queue_ns, sent: now, late }
    }

    /// Records that a message was answered. `waiting`: others waited in the common queue.
    pub(super) fn done(
        &mut self,
        now: Instant,
        path: PathId,
        (ahead, waiting): (&QueueAhead, bool),
        intra_ns: Option<u64>,
        total_ns: u64,
    ) {
        self.backlog.remove(usize::from(path.0));
        let lane = &mut self.lanes[usize::from(path.0)];
        let was_left = lane.is_left();
        lane.done(now, ahead, intra_ns, total_ns, &self.config);
        if was_left && self.shared.has_several() && !lane.is_left() {
            // Others over its accelerators may work again, too.
            for at in self.of_kind(path.0).filter(|at| self.shared.is_shared(path.0, *at)) {
                self.lanes[usize::from(at)].probe_soon(now);
            }
        }
        if let Some(late) = &mut self.late {
            late.done(now, path.0, (&ahead.late, waiting), intra_ns, total_ns);
        }
        if self.strategy == SelectionStrategy::Migration {
            self.kinds[usize::from(self.marks[usize::from(path.0)].kind.0)].migration.done(total_ns);
        }
    }

    pub(super) fn failed(&mut self, now: Instant, path: PathId, ahead: &QueueAhead) {
        self.backlog.remove(usize::from(path.0));
        if let Some(late) = &mut self.late {
            late.lost(now, path.0, &ahead.late);
        }
        if let Some(class) = self.class(path) {
            self.lossless_from[usize::from(class)] = now.0.saturating_add(1);
        }
        self.lanes[usize::from(path.0)].fails(now);
    }

    pub(super) fn abandoned(&mut self, now: Instant, path: PathId, ahead: &QueueAhead) {
        self.backlog.remove(usize::from(path.0));
        if let Some(late) = &mut self.late {
            late.lost(now, path.0, &ahead.late);
        }
        self.lanes[usize::from(path.0)].abandoned();
    }

    pub(super) fn state(&self, path: PathId) -> PathState {
        let learned = self.late.as_ref().map(|late| late.learned(path.0));
        PathState { learned, ..self.lanes[usize::from(path.0)].state() }
    }

    pub(super) fn queue_ns(&self, now: Instant, path: PathId) -> u64 {
        self.backlog.of(now, usize::from(path.0)) as u64
    }

    pub(super) fn foresee(&mut self, upcoming: &[(u64, KindId)]) {
        if let Some(predictor) = &mut self.predictor {
            predictor.foresee(upcoming);
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

/// Cost by number of unwanted roles; ties are broken by `T`, and by the queue if there are several accelerators.
fn role_cost(unwanted: u8, lane: &PathInternals, several: bool) -> u64 {
    let ns = if several { lane.cost_of_queue().min((1 << 56) - 1) } else { lane.traverse_ns };
    (u64::from(unwanted) << 56) | ns
}

/// Priority list of a request type (LEO §III-B2).
fn priority_list(paths: &Paths, kind: &crate::path::RequestKind) -> Vec<u16> {
    let mut ranked: Vec<u16> = (0..kind.count).collect();
    ranked.sort_by_key(|at| paths.path(PathId(kind.first.0 + at)).traverse_ns);
    ranked
}

/// First path over the same resources in the same order.
fn class(paths: &[Path], at: usize) -> Option<u16> {
    let path = &paths[at];
    let keeps = |path: &Path| path.fifo || mutant::on(Mutant::PlaceFollowsAnywhere);
    let same = |other: &Path| {
        keeps(other) && other.hops.iter().map(|hop| hop.resource).eq(path.hops.iter().map(|hop| hop.resource))
    };
    keeps(path).then(|| paths.iter().position(same).map(|first| first as u16))?
}
