//! What is right: the software model that every outcome is held against.
//!
//! Reports of hosts come in; the first one that is wrong comes out as a [`Failure`]. The model
//! knows the scenario and nothing of frames: [`sums`] adds arrays in 64 bits, [`keys`] keeps the
//! range that a key's value may be in, [`locks`] who holds what,
//! [`votes`] which ballot has its winner.

mod failure;
mod keys;
mod locks;
mod sums;
mod votes;

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::QueryId;
use pathcall_endpoint::map::{Ack, CallError, ClearPolicy, Key, Operation, Output};
use pathcall_wire::Target;

use crate::caller::{by_key, step_of};
use crate::party::{Node, Report};
use crate::scenario::{ApplicationPlan, Doom, Purpose, Scenario, Work};
pub use failure::Failure;
use keys::{KeyLedger, Snapshot};
use locks::Locks;
use sums::Sums;
use votes::Votes;

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Finished,
    Cancelled,
    /// Its caller's process was killed.
    Killed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
        }
    }
}

/// The model of a run.
pub(crate) struct Judge<'a> {
    applications: Vec<Application<'a>>,
    /// Steps that must end and have not.
    waiting: usize,
    /// Steps that had to end and have, by caller.
    ended: BTreeMap<(usize, usize), usize>,
}

/// The model of an application.
struct Application<'a> {
    plan: &'a ApplicationPlan,
    calls: BTreeMap<(usize, CallId), State>,
    sums: Sums,
    keys: KeyLedger<'a>,
    /// What was done before an open call or query started.
    before_calls: BTreeMap<(usize, CallId), Snapshot>,
    before_queries: BTreeMap<QueryId, Snapshot>,
    locks: Locks,
    votes: Votes,
    /// Both a caller and the element are lost: values may be, and that is said, unless the server acknowledges.
    may_lose: bool,
    /// A worker began anew in the middle of the others' array: all may be told that they disagree.
    may_disagree: bool,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let steps = scenario.applications.iter().flat_map(|a| &a.callers).flat_map(|caller| &caller.steps);
        Self {
            waiting: steps.filter(|step| !step.may_starve).count(),
            ended: BTreeMap::new(),
            applications: scenario
                .applications
                .iter()
                .map(|plan| Application::new(plan, !scenario.failures.is_empty() || !scenario.moves.is_empty()))
                .collect(),
        }
    }

    /// A caller's process was killed: what it had begun may have taken effect, once, or not.
    pub(crate) fn killed(&mut self, application: usize, caller: usize) {
        let model = &mut self.applications[application];
        let must = model.plan.callers[caller].steps.iter().filter(|step| !step.may_starve).count();
        let ended = self.ended.get(&(application, caller)).copied().unwrap_or(0);
        self.waiting -= must - ended;
        for ((of, _), state) in &mut model.calls {
            // One that was cancelled is not driven to its end any more.
            if *of == caller && *state != State::Finished {
                *state = State::Killed;
            }
        }
    }

    /// A caller takes the place of one that was killed, and joins with this chunk: the step that it
    /// begins with.
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
        // What is over, others have ended with the one before.
        self.waiting -= first;
        first
    }

    /// The owner goes on without an element that is silent: what a caller that left had there is lost.
    pub(crate) fn suspended(&mut self, application: usize) {
        let model = &mut self.applications[application];
        model.may_lose = model.plan.callers.iter().any(|caller| caller.dies.is_some());
    }

    /// A killed caller counts as gone.
    pub(crate) fn left(&mut self, application: usize, caller: usize) {
        self.applications[application].locks.release_all(Node::Caller(application, caller));
    }

    /// Notes that a step that must end has.
    fn step_ended(&mut self, application: usize, caller: usize) {
        self.waiting -= 1;
        *self.ended.entry((application, caller)).or_default() += 1;
    }

    /// Whether every step that must end has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.waiting == 0
    }

    /// The steps that have not ended, as a failure.
    pub(crate) fn stuck(&self) -> Failure {
        let open = self.applications.iter().enumerate().find_map(|(index, application)| {
            let mut open = application.calls.iter().filter(|(_, state)| **state == State::Open);
            open.next().map(|((caller, id), _)| (Node::Caller(index, *caller), step_of(*id).0))
        });
        let (node, step) = open.unwrap_or((Node::Caller(0, 0), 0));
        Failure::Stuck { waiting: self.waiting, node, step }
    }

    /// Before a report is heard: who holds a lock that it says was granted now. Whoever of them does not
    /// believe it any more, has lost it.
    pub(crate) fn look_at_rivals(
        &mut self,
        node: Node,
        report: &Report,
        mut believes: impl FnMut(Node, usize) -> bool,
    ) {
        let (Node::Caller(application, caller), Report::Finished(id, Ok(Output::Locked { .. }))) = (node, report)
        else {
            return;
        };
        let model = &mut self.applications[application];
        if let Work::Lock { keys, .. } = model.work(caller, *id) {
            for key in keys {
                if let Some(holder) = model.locks.holder(key)
                    && !believes(holder.node, holder.step)
                {
                    model.locks.lose(key);
                }
            }
        }
    }

    /// Takes what a host reports.
    pub(crate) fn hear(&mut self, node: Node, report: &Report) -> Result<(), Failure> {
        match (node, report) {
            (Node::Caller(application, caller), Report::Started(id)) => {
                self.applications[application].started(node, caller, *id)
            }
            (Node::Caller(application, caller), Report::Cancelled(id)) => {
                let model = &mut self.applications[application];
                let (step, _) = step_of(*id);
                model.enter(node, caller, *id, State::Cancelled)?;
                if !model.plan.callers[caller].steps[step].may_starve {
                    self.step_ended(application, caller);
                }
                Ok(())
            }
            (Node::Caller(application, caller), Report::Finished(id, outcome)) => {
                let model = &mut self.applications[application];
                let (step, release) = step_of(*id);
                model.finished(node, caller, *id, outcome)?;
                let plan = &model.plan.callers[caller].steps[step];
                if (release || matches!(plan.work, Work::Call(_))) && !plan.may_starve {
                    self.step_ended(application, caller);
                }
                Ok(())
            }
            (Node::Owner(application), Report::Asked(id)) => {
                let application = &mut self.applications[application];
                application.before_queries.insert(*id, application.keys.snapshot());
                Ok(())
            }
            (Node::Owner(application), Report::Answered(id, outcome)) => {
                let application = &mut self.applications[application];
                let query = id.0;
                let before = application.before_queries.remove(id).ok_or(Failure::Unasked { node, query })?;
                let values = match outcome {
                    Ok(values) => values,
                    Err(CallError::DataLoss { .. }) if application.may_lose => return Ok(()),
                    Err(error) => return Err(Failure::QueryFailed { node, query, error: error.clone() }),
                };
                let asked = application.plan.queries.get(query as usize).and_then(|query| query.keys.as_deref());
                application.keys.check_query(node, &before, asked, values)
            }
            _ => Ok(()),
        }
    }

    /// Whether the values of an application are worth asking for at the end.
    pub(crate) fn has_values(&self, application: usize) -> bool {
        matches!(self.applications[application].plan.purpose, Purpose::Add | Purpose::AddGet)
    }

    /// Takes the values at the end, when all that takes effect has: they are exact.
    pub(crate) fn final_values(&mut self, application: usize, values: &[(Key, i64)]) -> Result<(), Failure> {
        let model = &mut self.applications[application];
        let node = Node::Owner(application);
        for ((caller, id), state) in &model.calls {
            if *state == State::Cancelled {
                let work = &model.plan.callers[*caller].steps[step_of(*id).0].work;
                if let Work::Call(operation) = work {
                    model.keys.resolve(node, operation, values)?;
                }
            }
        }
        let before = model.keys.snapshot();
        model.keys.check_query(node, &before, None, values)
    }

    /// What can be said only when every call has ended.
    pub(crate) fn at_end(&self) -> Result<(), Failure> {
        self.applications.iter().try_for_each(|application| match application.plan.purpose {
            Purpose::Count { threshold, to: Target::Server } => {
                application.votes.at_end(threshold, application.may_lose)
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
                && plan.callers.iter().any(|caller| caller.dies.is_some()),
            may_disagree: false,
            calls: BTreeMap::new(),
            sums: Sums::default(),
            keys: KeyLedger::default(),
            before_calls: BTreeMap::new(),
            before_queries: BTreeMap::new(),
            locks: Locks::default(),
            votes: Votes::default(),
        }
    }

    /// Moves a call from open to ended.
    fn enter(&mut self, node: Node, caller: usize, id: CallId, ended: State) -> Result<(), Failure> {
        let (step, report) = (step_of(id).0, ended.name());
        match self.calls.get_mut(&(caller, id)) {
            Some(state @ State::Open) => {
                *state = ended;
                Ok(())
            }
            Some(state) => Err(Failure::OutOfTurn { node, step, report, state: state.name() }),
            None => Err(Failure::OutOfTurn { node, step, report, state: "never started" }),
        }
    }

    /// Whether a caller may have had sums that nobody else had: the element's, and both are lost then.
    fn may_know_alone(&self, caller: usize) -> bool {
        self.plan.clear == ClearPolicy::Shadow && self.plan.callers[caller].dies.is_some()
    }

    fn work(&self, caller: usize, id: CallId) -> &'a Work {
        &self.plan.callers[caller].steps[step_of(id).0].work
    }

    fn started(&mut self, node: Node, caller: usize, id: CallId) -> Result<(), Failure> {
        if let Some(state) = self.calls.insert((caller, id), State::Open) {
            let (step, _) = step_of(id);
            return Err(Failure::OutOfTurn { node, step, report: "started", state: state.name() });
        }
        match self.work(caller, id) {
            Work::Lock { keys, .. } if step_of(id).1 => self.locks.release(node, step_of(id).0, keys),
            Work::Call(operation @ Operation::Add { .. }) => {
                self.keys.begin(operation);
                self.before_calls.insert((caller, id), self.keys.snapshot_of(operation));
            }
            Work::Call(Operation::Count { keys, .. }) => self.votes.begin(node, id, keys, false),
            Work::Call(Operation::Clear { keys, .. }) => self.votes.begin(node, id, keys, true),
            Work::Lock { .. } | Work::Call(_) => {}
        }
        Ok(())
    }

    fn finished(
        &mut self,
        node: Node,
        caller: usize,
        id: CallId,
        outcome: &Result<Output, CallError>,
    ) -> Result<(), Failure> {
        self.enter(node, caller, id, State::Finished)?;
        let (step, release) = step_of(id);
        if let Some(doom) = self.plan.doom {
            return self.doomed(node, caller, step, doom, outcome);
        }
        if let (Err(CallError::Disagree { .. }), true) = (outcome, self.may_disagree) {
            return Ok(());
        }
        if let (Work::Call(operation), Err(CallError::Overflow { position })) = (self.work(caller, id), outcome)
            && self.keys.refused(operation, *position)
        {
            return Ok(());
        }
        let output = outcome.as_ref().map_err(|error| {
            let error = error.clone();
            Failure::CallFailed { node, step, error }
        })?;
        let wrong = |expected| Failure::Output { node, step, expected, got: brief(output) };
        match (self.work(caller, id), output) {
            (Work::Call(Operation::Sum { .. }), Output::Sums(sums)) => {
                self.sums.check(self.plan, node, step, sums, !self.may_disagree && !self.may_know_alone(caller))
            }
            (Work::Call(Operation::Sum { .. }), _) => Err(wrong("sums")),
            (Work::Call(operation @ Operation::Add { get, .. }), _) => {
                let before = self.before_calls.remove(&(caller, id)).unwrap_or_default();
                match (get, output) {
                    (true, Output::Values(values)) => {
                        self.keys
                            .check_values(node, &before, operation, values)
                            .ok_or_else(|| wrong("all values"))??;
                    }
                    (true, _) => return Err(wrong("values")),
                    (false, Output::Done) => {}
                    (false, _) => return Err(wrong("done")),
                }
                self.keys.end(operation);
                Ok(())
            }
            (Work::Call(Operation::Count { keys, threshold, to }), Output::Counted { forwarded }) => {
                if *to != Target::Server && !forwarded {
                    return Err(wrong("forwarded"));
                }
                self.votes.counted(node, id, keys, (*threshold, *forwarded))
            }
            (Work::Call(Operation::Count { .. }), _) => Err(wrong("a count")),
            (Work::Lock { .. }, Output::Done) if release => Ok(()),
            (Work::Lock { .. }, _) if release => Err(wrong("done")),
            (Work::Lock { keys, .. }, Output::Locked { tokens, .. }) if tokens.len() == keys.len() => {
                self.locks.grant(node, step, keys, &by_key(keys, tokens))
            }
            (Work::Lock { .. }, _) => Err(wrong("a granted lock")),
            (Work::Call(Operation::Clear { keys, .. }), Output::Done) => {
                self.votes.cleared(node, id, keys);
                Ok(())
            }
            (Work::Call(Operation::Clear { .. }), _) => Err(wrong("done")),
        }
    }

    /// An end in an application whose last calls can't be done: right sums before them, if any, and
    /// nothing but the error for them.
    fn doomed(
        &mut self,
        node: Node,
        caller: usize,
        step: usize,
        doom: Doom,
        outcome: &Result<Output, CallError>,
    ) -> Result<(), Failure> {
        let last = step + 1 == self.plan.callers[caller].steps.len();
        let output = |expected| Failure::Output { node, step, expected, got: brief(outcome) };
        match (doom, outcome) {
            (Doom::Disagree, Err(CallError::Disagree { .. })) | (Doom::Overflow, Err(CallError::Overflow { .. })) => {
                Ok(())
            }
            (_, Ok(Output::Sums(sums))) if !last => self.sums.check(self.plan, node, step, sums, !self.may_disagree),
            (Doom::Disagree, _) => Err(output("to hear that the workers disagree")),
            (Doom::Overflow, _) => Err(output("to hear that a sum leaves 64 bits")),
        }
    }
}

/// What something looks like, cut off where nobody reads on.
fn brief(what: &impl std::fmt::Debug) -> String {
    let mut text = format!("{what:?}");
    if let Some((end, _)) = text.char_indices().nth(100) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
