//! Phases of a run: faults, end of all calls, late repeats, final queries.

use std::time::Duration;

use pathcall_endpoint::map::Operation;
use pathcall_endpoint::map::server::SOFTWARE_ROWS;
use pathcall_wire::{Instant, W_MAX};

use super::{EVENTS_MAX, LAST_QUERY, MapEvent, MapWorld};
use crate::map::MapCounts;
use crate::map::caller::Caller;
use crate::map::checker::MapViolation;
use crate::map::element::Element;
use crate::map::link::WireSpec;
use crate::map::node::{MapNodeId, NodeReport};
use crate::map::owner::Owner;
use crate::map::scenario::{ApplicationPlan, MapCallerPlan, Scenario, Step, StepWork};
use crate::timeline::{SteppedRun, Timeline};

/// Time within which all calls must end after the faults, in addition to the time that sequential calls need.
const BOUND: Duration = Duration::from_secs(60);
/// Limit on the link delays that such a call takes: the server has each addition before the call ends.
const WAYS: u32 = 16;
/// Time within which late repeats arrive, and cancelled calls end.
const SETTLE: Duration = Duration::from_secs(30);

/// Phase of a run: its condition, and the limit on its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// All calls end.
    Calls(Instant),
    /// All nodes become idle.
    Settles(Instant),
    /// All nodes become idle after the late repeats.
    Late(Instant),
    /// An application's owner answers the final query.
    Values(usize, Instant),
    /// The run has ended.
    Over,
}

impl Phase {
    pub(super) fn first(scenario: &Scenario) -> Self {
        Self::Calls(scenario.faults_until + BOUND + sequential_time(scenario))
    }
}

/// Time that a caller's sequential calls need.
fn sequential_time(scenario: &Scenario) -> Duration {
    let fewest = |index: usize| {
        let moves = scenario.moves.iter().filter(move |change| change.application == index);
        let rows = moves.filter_map(|change| change.memory).chain(scenario.applications[index].memory);
        rows.map(|memory| memory.rows).min().unwrap_or(SOFTWARE_ROWS)
    };
    let way = |wire: &WireSpec| wire.delay + wire.jitter;
    let changed = scenario.wire_changes.iter().map(|change| way(&change.wire));
    let ways = changed.fold(way(&scenario.wire), Duration::max).saturating_mul(WAYS);
    let time = |(index, application): (usize, &ApplicationPlan)| {
        // An answer may wait for the sync in progress, and for the next one.
        let wait = ways + application.store.map_or(Duration::ZERO, |store| store.sync_max) * 2;
        let wait = wait + application.handler.map_or(Duration::ZERO, |handler| handler.time_max);
        let calls = application.callers.iter().map(|caller| rounds(application, fewest(index), caller)).max();
        wait.saturating_mul(u32::try_from(calls.unwrap_or(0)).unwrap_or(u32::MAX))
    };
    scenario.applications.iter().enumerate().map(time).max().unwrap_or_default()
}

/// Most sums of one gradient: weights, blocks, counts, blocks.
const GRADIENT_SUMS: usize = 4;

/// Most lanes of these sums, of so many values: no block has fewer than 500 values, except the last.
fn gradient_lanes(values: usize) -> usize {
    2 * values + values.div_ceil(500) * 100
}

/// Number of sequential waits of a caller: one per call, and more for arrays that are longer than the rows of the
/// element (half of them with clear policy *shadow*).
fn rounds(application: &ApplicationPlan, rows: u32, caller: &MapCallerPlan) -> usize {
    // Parts that wait for a handler keep their places in a flow.
    let places = if application.handler.is_some() { W_MAX / 2 } else { u32::MAX };
    let ahead = rows.div_ceil(2).min(places) as usize;
    let chunks = |step: &Step| match &step.work {
        StepWork::Call(Operation::Sum { lanes, .. }) => {
            let lanes = if application.gradients.is_some() { gradient_lanes(lanes.len()) } else { lanes.len() };
            lanes.div_ceil(application.width.into())
        }
        _ => 0,
    };
    let sums = if application.gradients.is_some() { GRADIENT_SUMS } else { 1 };
    let calls = caller.steps.len().div_ceil(caller.outstanding.max(1)) * sums;
    calls + caller.steps.iter().map(chunks).sum::<usize>() / ahead.max(1)
}

impl SteppedRun for MapWorld<'_> {
    type Event = MapEvent;
    type Counts = MapCounts;
    type Violation = MapViolation;

    fn time(&mut self) -> &mut Timeline<MapEvent> {
        &mut self.time
    }

    fn next(&self) -> Option<Instant> {
        let (done, bound) = self.awaited()?;
        let next = self.time.queue.next_at().filter(|at| *at <= bound);
        // Without a further event the next step is the change of the phase.
        next.filter(|_| !done).or(Some(self.time.now))
    }

    fn step(&mut self) -> Result<(), MapViolation> {
        let Some((done, bound)) = self.awaited() else { return Ok(()) };
        if done {
            return self.next_phase(true);
        }
        if let Some(at) = self.time.queue.next_at().filter(|at| *at > bound) {
            self.time.queue.postpone(at);
            return self.next_phase(false);
        }
        let event = self.time.pop(EVENTS_MAX).map_err(MapViolation::Endless)?;
        match event {
            Some(event) => self.handle_event(event),
            None => self.next_phase(false),
        }
    }

    fn check_end(&mut self) -> Result<(), MapViolation> {
        Ok(())
    }

    fn counts(&mut self) -> MapCounts {
        let mut counts = MapCounts { virtual_time: self.time.now.since(Instant(0)), ..self.counts };
        for stats in self.nodes.callers.iter().flatten().map(Caller::stats) {
            counts.retransmits += stats.retransmits;
            counts.unauthentic += stats.frames_unauthentic;
            counts.lanes_element += stats.lanes_element;
            counts.lanes_software += stats.lanes_software;
            counts.lane_bytes_sent += stats.lane_bytes_sent;
        }
        for stats in self.nodes.owners.iter().map(Owner::stats) {
            counts.lane_bytes_received += stats.lane_bytes_received;
            counts.rounds_element += stats.rounds_element;
            counts.rounds_software += stats.rounds_software;
            counts.keys_evicted += stats.keys_evicted;
            counts.unauthentic += stats.frames_unauthentic;
        }
        counts.unauthentic += self.nodes.elements.iter().map(Element::unauthentic).sum::<u64>();
        counts
    }
}

impl MapWorld<'_> {
    /// Whether the condition of the phase is met, and the limit on its time.
    fn awaited(&self) -> Option<(bool, Instant)> {
        Some(match self.phase {
            Phase::Calls(bound) => (self.checker.all_ended(), bound),
            Phase::Settles(bound) | Phase::Late(bound) => (self.is_quiet(), bound),
            Phase::Values(application, bound) => (self.answers.contains_key(&application), bound),
            Phase::Over => return None,
        })
    }

    /// Begins the next phase. `done`: the condition of the current one is met, not its time limit.
    fn next_phase(&mut self, done: bool) -> Result<(), MapViolation> {
        match self.phase {
            Phase::Calls(_) if !done => return Err(self.checker.stuck_violation()),
            Phase::Calls(_) => self.phase = Phase::Settles(self.bound(SETTLE)),
            Phase::Settles(_) => {
                for (to, datagram) in self.network.release() {
                    self.in_air += 1;
                    self.time.push(self.time.now, MapEvent::Arrive(to, datagram));
                }
                self.phase = Phase::Late(self.bound(SETTLE));
            }
            Phase::Late(_) => {
                if let Some(node) = self.nodes.busy_caller(self.scenario) {
                    return Err(MapViolation::NotIdle { node });
                }
                self.checker.check_end()?;
                let owners = &self.nodes.owners;
                self.checker.check_end_of_votes(|application, key, threshold| {
                    owners[application].has_decided(key, threshold)
                })?;
                self.last_query(0)?;
            }
            Phase::Values(application, _) if !done => {
                return Err(MapViolation::Unanswered { node: MapNodeId::Owner(application) });
            }
            Phase::Values(application, _) => {
                if let Some(NodeReport::Answered(_, Ok(values))) = self.answers.get(&application) {
                    self.checker.final_values(application, values)?;
                }
                self.last_query(application + 1)?;
            }
            Phase::Over => {}
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.in_air == 0 && self.nodes.busy_caller(self.scenario).is_none()
    }

    /// Time limit: this long after now, and after the faults.
    fn bound(&self, time: Duration) -> Instant {
        self.time.now.max(self.scenario.faults_until) + time
    }

    /// Queries the values of the next application that has some, from `first` on.
    fn last_query(&mut self, first: usize) -> Result<(), MapViolation> {
        let Some(application) = (first..self.nodes.owners.len()).find(|index| self.checker.has_values(*index)) else {
            self.phase = Phase::Over;
            return Ok(());
        };
        self.ask(application, LAST_QUERY, None)?;
        self.phase = Phase::Values(application, self.bound(BOUND));
        Ok(())
    }
}
