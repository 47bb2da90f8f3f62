//! Invariant checks of map: a software model against which every outcome is compared.
//!
//! The input are reports of hosts; the output is the first [`MapViolation`]. The model knows the scenario, but no
//! frames: [`sums`] adds arrays in 64 bits, [`gradients`] what left the workers, [`keys`] keeps the range of each
//! key's value, [`locks`] the holders, [`votes`] the ballots.

mod gradients;
mod keys;
mod locks;
mod sums;
mod violation;
mod votes;

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::QueryId;
use pathcall_endpoint::map::{Ack, CallError, Key, Operation, Output};
use pathcall_wire::{ForwardTarget, Instant};

use crate::map::caller::step_of;
use crate::map::node::{MapNodeId, NodeReport};
use crate::map::scenario::{ApplicationPlan, Purpose, Scenario, StepWork};
use crate::trace::brief;
use gradients::Gradients;
use keys::{KeyLedger, KeySnapshot};
use locks::Locks;
use sums::Sums;
pub use violation::MapViolation;
use votes::Votes;

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapCallState {
    Open,
    Finished,
    Cancelled,
    /// The process of its caller was killed.
    Killed,
}

impl MapCallState {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
        }
    }
}

/// Checker of a run.
pub(crate) struct MapChecker<'a> {
    applications: Vec<Application<'a>>,
    /// Number of steps that must end and have not.
    waiting: usize,
    /// Number of ended steps among those that must end, by caller.
    ended: BTreeMap<(usize, usize), usize>,
    /// True time.
    pub(crate) now: Instant,
}

/// Model of an application.
struct Application<'a> {
    plan: &'a ApplicationPlan,
    calls: BTreeMap<(usize, CallId), MapCallState>,
    sums: Sums,
    gradients: Gradients,
    keys: KeyLedger<'a>,
    /// Ended additions before the start of each open call or query.
    before_calls: BTreeMap<(usize, CallId), KeySnapshot>,
    before_queries: BTreeMap<QueryId, KeySnapshot>,
    locks: Locks,
    votes: Votes,
    /// Whether values may be lost with a caller and the element, with a data-loss error; not if the server
    /// acknowledges.
    may_lose: bool,
    /// Whether any worker may get a disagreement, because one restarted in the middle of the others' array.
    may_disagree: bool,
}

impl<'a> MapChecker<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let steps = scenario.applications.iter().flat_map(|a| &a.callers).flat_map(|caller| &caller.steps);
        Self {
            waiting: steps.filter(|step| !step.may_never_end).count(),
            ended: BTreeMap::new(),
            now: Instant(0),
            applications: scenario
                .applications
                .iter()
                .enumerate()
                .map(|(index, plan)| {
                    let owner_ends = scenario.owner_crashes.iter().any(|crash| crash.application == index);
                    Application::new(plan, owner_ends || !scenario.failures.is_empty() || !scenario.moves.is_empty())
                })
                .collect(),
        }
    }

    /// Records that a caller's process was killed: each open call may have taken effect, once, or not.
    pub(crate) fn killed(&mut self, application: usize, caller: usize) {
        let model = &mut self.applications[application];
        let must = model.plan.callers[caller].steps.iter().filter(|step| !step.may_never_end).count();
        let ended = self.ended.get(&(application, caller)).copied().unwrap_or(0);
        self.waiting -= must - ended;
        for ((of, _), state) in &mut model.calls {
            // A cancelled call is not retried any more, either.
            if *of == caller && *state != MapCallState::Finished {
                *state = MapCallState::Killed;
            }
        }
    }

    /// Records that a caller replaces a killed one and joins with this chunk; returns the step that it begins with.
    pub(crate) fn resumed(&mut self, application: usize, caller: usize, start_chunk: u64) -> usize {
        let model = &mut self.applications[application];
        if model.plan.purpose != Purpose::Sum {
            return 0;
        }
        let steps = &model.plan.callers[caller].steps;
        let mut begins = 0;
        let mut first = 0;
        for step in steps {
            let ends = begins + step.work.chunks(model.plan.width);
            if ends > start_chunk {
                break;
            }
            (begins, first) = (ends, first + 1);
        }
        model.may_disagree |= first < steps.len() && begins != start_chunk;
        // The other workers have ended these steps with the killed one.
        self.waiting -= first;
        first
    }

    /// Records that the owner continues without its silent element: values of a caller that left may be lost.
    pub(crate) fn suspended(&mut self, application: usize) {
        let model = &mut self.applications[application];
        model.may_lose = model.plan.callers.iter().any(|caller| caller.crash.is_some());
    }

    /// Records that a killed caller has left.
    pub(crate) fn record_departure(&mut self, application: usize, caller: usize) {
        self.applications[application].locks.release_all(MapNodeId::Caller(application, caller));
    }

    /// Counts a step that must end.
    fn step_ended(&mut self, application: usize, caller: usize) {
        self.waiting -= 1;
        *self.ended.entry((application, caller)).or_default() += 1;
    }

    /// Whether every step that must end has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.waiting == 0
    }

    /// Violation for the steps that have not ended.
    pub(crate) fn stuck_violation(&self) -> MapViolation {
        let open = self.applications.iter().enumerate().find_map(|(index, application)| {
            let mut open = application.calls.iter().filter(|(_, state)| **state == MapCallState::Open);
            open.next().map(|((caller, id), _)| (MapNodeId::Caller(index, *caller), step_of(*id).0))
        });
        let (node, step) = open.unwrap_or((MapNodeId::Caller(0, 0), 0));
        MapViolation::Stuck { waiting: self.waiting, node, step }
    }

    /// Before a report of a grant: removes the holders of these locks that, by their own clock, know that they have
    /// lost them.
    pub(crate) fn check_lock_rivals(
        &mut self,
        node: MapNodeId,
        report: &NodeReport,
        mut considers_held: impl FnMut(MapNodeId, usize) -> bool,
    ) {
        let (MapNodeId::Caller(application, caller), NodeReport::Finished(id, Ok(Output::Locked { .. }))) =
            (node, report)
        else {
            return;
        };
        let model = &mut self.applications[application];
        if let StepWork::Lock { keys, .. } = model.work(caller, *id) {
            for key in keys {
                if let Some(holder) = model.locks.holder(key)
                    && !considers_held(holder.node, holder.step)
                {
                    model.locks.lose(key);
                }
            }
        }
    }

    /// Checks a report of a host.
    pub(crate) fn check_report(&mut self, node: MapNodeId, report: &NodeReport) -> Result<(), MapViolation> {
        match (node, report) {
            (MapNodeId::Caller(application, caller), NodeReport::Started(id)) => {
                self.applications[application].started(self.now, node, caller, *id)
            }
            (MapNodeId::Caller(application, caller), NodeReport::Cancelled(id)) => {
                let model = &mut self.applications[application];
                let (step, _) = step_of(*id);
                model.enter(node, caller, *id, MapCallState::Cancelled)?;
                if !model.plan.callers[caller].steps[step].may_never_end {
                    self.step_ended(application, caller);
                }
                Ok(())
            }
            (MapNodeId::Caller(application, _), NodeReport::Sent(id, values)) => {
                self.applications[application].gradients.sent(step_of(*id).0, values);
                Ok(())
            }
            (MapNodeId::Caller(application, caller), NodeReport::Finished(id, outcome)) => {
                let model = &mut self.applications[application];
                let (step, release) = step_of(*id);
                model.finished((self.now, node), caller, *id, outcome)?;
                let plan = &model.plan.callers[caller].steps[step];
                if (release || matches!(plan.work, StepWork::Call(_))) && !plan.may_never_end {
                    self.step_ended(application, caller);
                }
                Ok(())
            }
            (MapNodeId::Owner(_), NodeReport::HandledAgain(chunk)) => {
                Err(MapViolation::HandledAgain { node, chunk: *chunk })
            }
            (MapNodeId::Owner(application), NodeReport::Asked(id)) => {
                let application = &mut self.applications[application];
                application.before_queries.insert(*id, application.keys.snapshot());
                Ok(())
            }
            (MapNodeId::Owner(application), NodeReport::Answered(id, outcome)) => {
                let application = &mut self.applications[application];
                let query = id.0;
                let before = application.before_queries.remove(id).ok_or(MapViolation::Unasked { node, query })?;
                let values = match outcome {
                    Ok(values) => values,
                    Err(CallError::DataLoss { .. }) if application.may_lose => return Ok(()),
                    Err(error) => return Err(MapViolation::QueryFailed { node, query, error: error.clone() }),
                };
                let asked = application.plan.queries.get(query as usize).and_then(|query| query.keys.as_deref());
                application.keys.check_query(node, &before, asked, values)
            }
            _ => Ok(()),
        }
    }

    /// Whether the values of an application are queried at the end.
    pub(crate) fn has_values(&self, application: usize) -> bool {
        matches!(self.applications[application].plan.purpose, Purpose::Add | Purpose::AddGet)
    }

    /// Checks the final values. All additions have ended, so the values are exact.
    pub(crate) fn final_values(&mut self, application: usize, values: &[(Key, i64)]) -> Result<(), MapViolation> {
        let model = &mut self.applications[application];
        let node = MapNodeId::Owner(application);
        for ((caller, id), state) in &model.calls {
            if *state == MapCallState::Cancelled {
                let work = &model.plan.callers[*caller].steps[step_of(*id).0].work;
                if let StepWork::Call(operation) = work {
                    model.keys.resolve((self.now, node), operation, values)?;
                }
            }
        }
        let before = model.keys.snapshot();
        model.keys.check_query(node, &before, None, values)
    }

    /// Checks that are possible only when every call has ended.
    pub(crate) fn check_end(&self) -> Result<(), MapViolation> {
        self.applications.iter().try_for_each(|application| match application.plan.purpose {
            Purpose::Count { threshold, to: ForwardTarget::Server } => {
                application.votes.check_end(threshold, application.may_lose)
            }
            _ => Ok(()),
        })
    }
}

impl<'a> Application<'a> {
    fn new(plan: &'a ApplicationPlan, element_fails: bool) -> Self {
        Self {
            plan,
            may_lose: element_fails
                && plan.ack == Ack::Element
                && plan.callers.iter().any(|caller| caller.crash.is_some()),
            may_disagree: false,
            calls: BTreeMap::new(),
            sums: Sums::default(),
            gradients: Gradients::default(),
            keys: KeyLedger::default(),
            before_calls: BTreeMap::new(),
            before_queries: BTreeMap::new(),
            locks: Locks::default(),
            votes: Votes::default(),
        }
    }

    /// Moves a call from open to an ended state.
    fn enter(&mut self, node: MapNodeId, caller: usize, id: CallId, ended: MapCallState) -> Result<(), MapViolation> {
        let (step, report) = (step_of(id).0, ended.name());
        match self.calls.get_mut(&(caller, id)) {
            Some(state @ MapCallState::Open) => {
                *state = ended;
                Ok(())
            }
            Some(state) => Err(MapViolation::OutOfTurn { node, step, report, state: state.name() }),
            None => Err(MapViolation::OutOfTurn { node, step, report, state: "never started" }),
        }
    }

    /// Whether a caller may have had sums that no other worker had; they are lost with caller and element.
    fn may_have_unshared_sums(&self, caller: usize) -> bool {
        self.plan.clear.is_by_element() && self.plan.callers[caller].crash.is_some()
    }

    fn work(&self, caller: usize, id: CallId) -> &'a StepWork {
        &self.plan.callers[caller].steps[step_of(id).0].work
    }

    fn started(&mut self, now: Instant, node: MapNodeId, caller: usize, id: CallId) -> Result<(), MapViolation> {
        if let Some(state) = self.calls.insert((caller, id), MapCallState::Open) {
            let (step, _) = step_of(id);
            return Err(MapViolation::OutOfTurn { node, step, report: "started", state: state.name() });
        }
        match self.work(caller, id) {
            StepWork::Lock { keys, .. } if step_of(id).1 => self.locks.release(node, step_of(id).0, keys),
            StepWork::Call(operation @ Operation::Add { .. }) => {
                self.keys.begin(operation);
                self.before_calls.insert((caller, id), self.keys.snapshot_of(operation));
            }
            StepWork::Call(Operation::Read { keys, read }) => {
                self.before_calls.insert((caller, id), self.keys.snapshot_for(now, keys, *read));
            }
            StepWork::Call(Operation::Count { keys, .. }) => self.votes.begin(node, id, keys, false),
            StepWork::Call(Operation::Clear { keys, .. }) => self.votes.begin(node, id, keys, true),
            StepWork::Lock { .. } | StepWork::Call(_) => {}
        }
        Ok(())
    }

    fn finished(
        &mut self,
        (now, node): (Instant, MapNodeId),
        caller: usize,
        id: CallId,
        outcome: &Result<Output, CallError>,
    ) -> Result<(), MapViolation> {
        self.enter(node, caller, id, MapCallState::Finished)?;
        let (step, release) = step_of(id);
        if let Some(expected_error) = self.plan.expected_error {
            return self.check_expected_error(node, caller, step, expected_error, outcome);
        }
        if let (Err(CallError::Disagree { .. }), true) = (outcome, self.may_disagree) {
            return Ok(());
        }
        if let (StepWork::Call(operation), Err(CallError::Overflow { position })) = (self.work(caller, id), outcome)
            && self.keys.refused(now, operation, *position)
        {
            return Ok(());
        }
        if let (Err(CallError::DataLoss { .. }), true) = (outcome, self.may_lose) {
            return Ok(());
        }
        let output = outcome.as_ref().map_err(|error| {
            let error = error.clone();
            MapViolation::CallFailed { node, step, error }
        })?;
        let unexpected = |expected| MapViolation::Output { node, step, expected, got: brief(output, 100) };
        let aligned = !self.may_disagree && !self.may_have_unshared_sums(caller);
        match (self.work(caller, id), output) {
            (StepWork::Call(Operation::Sum { .. }), Output::Sums(sums)) => match self.plan.gradients {
                Some(format) => self.gradients.check(format.workers, node, step, sums),
                None => self.sums.check(self.plan, node, step, sums, aligned),
            },
            (StepWork::Call(Operation::Sum { .. }), _) => Err(unexpected("sums")),
            (StepWork::Call(operation @ Operation::Add { get, .. }), _) => {
                let before = self.before_calls.remove(&(caller, id)).unwrap_or_default();
                match (get, output) {
                    (true, Output::Values(values)) => {
                        self.keys
                            .check_values(node, &before, operation, values)
                            .ok_or_else(|| unexpected("all values"))??;
                    }
                    (true, _) => return Err(unexpected("values")),
                    (false, Output::Done) => {}
                    (false, _) => return Err(unexpected("done")),
                }
                self.keys.end(now, operation);
                Ok(())
            }
            (StepWork::Call(Operation::Read { keys, .. }), Output::Values(values)) => {
                let before = self.before_calls.remove(&(caller, id)).unwrap_or_default();
                self.keys.check_read(node, &before, keys, values).ok_or_else(|| unexpected("all values"))?
            }
            (StepWork::Call(Operation::Read { .. }), _) => Err(unexpected("values")),
            (StepWork::Call(Operation::Count { keys, threshold, to, .. }), Output::Counted { forwarded }) => {
                if forwarded.len() != keys.len() || *to != ForwardTarget::Server && forwarded.contains(&false) {
                    return Err(unexpected("a value for each key, forwarded"));
                }
                self.votes.counted(node, id, (keys, forwarded), *threshold)
            }
            (StepWork::Call(Operation::Count { .. }), _) => Err(unexpected("a count")),
            (StepWork::Lock { .. }, Output::Done) if release => Ok(()),
            (StepWork::Lock { .. }, _) if release => Err(unexpected("done")),
            (StepWork::Lock { keys, .. }, Output::Locked { tokens, .. }) if tokens.len() == keys.len() => {
                self.locks.grant(node, step, keys, tokens)
            }
            (StepWork::Lock { .. }, _) => Err(unexpected("a granted lock")),
            (StepWork::Call(Operation::Clear { keys, .. }), Output::Done) => {
                self.votes.cleared(node, id, keys);
                Ok(())
            }
            (StepWork::Call(Operation::Clear { .. }), _) => Err(unexpected("done")),
        }
    }
}

#[cfg(test)]
mod tests;
