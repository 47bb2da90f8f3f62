//! Caller of the map simulation: a [`MapClient`] with the script of calls that it makes.

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::{CallId, ClientConfig, ClientStats, MapClient, NewOwner};
use pathcall_endpoint::map::gradient::GradientFormat;
use pathcall_endpoint::map::{CallError, EpochChange, Operation, Output};
use pathcall_wire::{Instant, TokenKey};

use super::gradients::{Gradients, NextSum};
use super::node::{Effects, FrameDecision, NodeReport, SimulatedNode};
use super::scenario::{MapCallerPlan, StepWork};

/// Call id of a step: of its call, or of the release of its locks.
pub(crate) fn call_id(step: usize, release: bool) -> CallId {
    CallId(step as u64 * 2 + u64::from(release))
}

/// Step that a call belongs to, and whether the call is the release of locks.
pub(crate) fn step_of(call: CallId) -> (usize, bool) {
    ((call.0 / 2) as usize, call.0 % 2 == 1)
}

/// Scheduled action of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Begin the next step.
    Next,
    /// Cancel the call of a step.
    Cancel(usize),
    /// Release the locks of a step.
    Release(usize),
}

/// Caller of one application.
pub(crate) struct Caller<'a> {
    plan: &'a MapCallerPlan,
    client: Option<MapClient>,
    next_step: usize,
    /// Calls without an outcome.
    open: Vec<CallId>,
    tasks: BTreeMap<(Instant, u64), Task>,
    tasks_made: u64,
    /// Whether it has joined and not left.
    member: bool,
    killed: bool,
    /// Whether it closes, as no further call comes.
    closes: bool,
    /// Statistics at the time when it left.
    left: Option<ClientStats>,
    /// Held locks by step: the session, and the tokens in the order of the step's keys.
    held: BTreeMap<usize, (Option<u32>, Vec<u64>)>,
    /// Number of the owner that it has joined, or continued with.
    pub(crate) owner: u32,
    /// Whether its stream to the owner is broken.
    suspended: bool,
    /// Element that it sends through.
    element: Option<usize>,
    /// Its gradients, if it sums such.
    gradients: Option<Gradients>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(plan: &'a MapCallerPlan, gradients: Option<GradientFormat>) -> Self {
        Self {
            gradients: gradients.map(Gradients::new),
            plan,
            client: None,
            next_step: 0,
            open: Vec::new(),
            tasks: BTreeMap::new(),
            tasks_made: 0,
            member: false,
            killed: false,
            closes: false,
            left: None,
            held: BTreeMap::new(),
            owner: 0,
            suspended: false,
            element: None,
        }
    }

    /// Joins the application and begins with step `first`.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        config: ClientConfig,
        key: Option<TokenKey>,
        element: Option<usize>,
        first: usize,
        effects: &mut Effects,
    ) {
        let client = self.client.insert(MapClient::new(config).authenticate(key));
        client.greet();
        (self.member, self.element, self.next_step) = (true, element, first);
        for _ in 0..self.plan.outstanding.max(1) {
            self.schedule(now, Task::Next);
        }
        self.wake(now, effects);
    }

    /// Whether controller and owner count it as joined.
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Kills its process.
    pub(crate) fn kill(&mut self) {
        self.client = None;
        self.tasks.clear();
        self.killed = true;
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed
    }

    /// Ends its membership.
    pub(crate) fn leave(&mut self) {
        self.member = false;
    }

    /// Element that it sends through.
    pub(crate) fn element(&self) -> Option<usize> {
        self.element
    }

    /// Takes a change of the epoch.
    pub(crate) fn renew(&mut self, now: Instant, renewal: &EpochChange, element: Option<usize>, effects: &mut Effects) {
        self.element = element;
        if let Some(client) = &mut self.client {
            client.renew(now, renewal);
        }
        self.poll_until_idle(now, effects);
    }

    /// Learns that its stream to the owner is broken.
    pub(crate) fn suspend(&mut self) {
        if let Some(client) = &mut self.client {
            client.suspend();
            self.suspended = true;
        }
    }

    /// Epoch that it knows, if it waits for an owner.
    pub(crate) fn suspended_epoch(&self) -> Option<u32> {
        self.client.as_ref().filter(|_| self.suspended).map(MapClient::epoch)
    }

    /// Continues with another owner, without an element.
    pub(crate) fn resume(&mut self, now: Instant, owner: &NewOwner, change: &EpochChange, effects: &mut Effects) {
        (self.suspended, self.element) = (false, None);
        if let Some(client) = &mut self.client {
            client.resume(now, owner, change);
        }
        self.poll_until_idle(now, effects);
    }

    /// Whether the caller, by its own clock, considers itself the holder of a step's locks.
    pub(crate) fn holds(&self, now: Instant, step: usize) -> bool {
        let session = self.client.as_ref().and_then(|client| client.session(now));
        session.is_some() && self.held.get(&step).is_some_and(|(granted, _)| *granted == session)
    }

    pub(crate) fn stats(&self) -> ClientStats {
        self.client.as_ref().map(MapClient::stats).or(self.left).unwrap_or_default()
    }

    /// Whether no call is in progress, cancelled calls included.
    pub(crate) fn is_idle(&self) -> bool {
        self.killed
            || self.left.is_some()
            || self.tasks.is_empty() && self.client.as_ref().is_some_and(MapClient::is_idle)
    }

    fn schedule(&mut self, when: Instant, task: Task) {
        self.tasks_made += 1;
        self.tasks.insert((when, self.tasks_made), task);
    }

    fn perform(&mut self, now: Instant, task: Task, effects: &mut Effects) {
        match task {
            Task::Next => {
                let Some(step) = self.plan.steps.get(self.next_step) else { return };
                let index = self.next_step;
                self.next_step += 1;
                if let Some(after) = step.cancel_after {
                    self.schedule(now + after, Task::Cancel(index));
                }
                self.start(now, call_id(index, false), step.work.operation(), effects);
            }
            Task::Cancel(step) => {
                let id = call_id(step, false);
                if let Some(open) = self.open.iter().position(|open| *open == id) {
                    self.open.swap_remove(open);
                    effects.reports.push(NodeReport::Cancelled(id));
                    if let Some(client) = &mut self.client {
                        client.cancel(now, id);
                    }
                    self.schedule(now + self.plan.steps[step].pause, Task::Next);
                }
            }
            Task::Release(step) => {
                if let StepWork::Lock { keys, .. } = &self.plan.steps[step].work {
                    let (_, tokens) = self.held.remove(&step).unwrap_or_default();
                    let operation = Operation::Clear { keys: keys.clone(), tokens };
                    self.start(now, call_id(step, true), operation, effects);
                }
            }
        }
    }

    fn start(&mut self, now: Instant, id: CallId, operation: Operation, effects: &mut Effects) {
        effects.reports.push(NodeReport::Started(id));
        self.open.push(id);
        let first = self.gradients.as_mut().and_then(|gradients| gradients.begin(id, &operation));
        if let Some(client) = &mut self.client {
            client.start(now, id, first.unwrap_or(operation));
        }
    }

    /// Polls the client and takes its events after every input, as a driver must, until nothing is left to do.
    fn poll_until_idle(&mut self, now: Instant, effects: &mut Effects) {
        loop {
            let mut sums_again = false;
            if let Some(client) = &mut self.client {
                client.poll(now, effects);
                let finished: Vec<_> = std::iter::from_fn(|| client.next_event()).collect();
                for (id, mut outcome) in finished {
                    if let (Some(gradients), Some(client)) = (&mut self.gradients, &mut self.client) {
                        match gradients.next(id, outcome, effects) {
                            NextSum::Sum(operation) => {
                                client.start(now, id, operation);
                                sums_again = true;
                                continue;
                            }
                            NextSum::Done(of_gradient) => outcome = of_gradient,
                        }
                    }
                    self.finished(now, id, &outcome);
                    effects.reports.push(NodeReport::Finished(id, outcome));
                }
            }
            if sums_again {
                continue;
            }
            let Some(due) = self.tasks.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let task = due.remove();
            self.perform(now, task, effects);
        }
        if self.plan.leaves.is_some() {
            self.close(now, effects);
        }
    }

    /// Closes when all steps are done, and leaves when no cancelled call is left.
    fn close(&mut self, now: Instant, effects: &mut Effects) {
        let done = self.tasks.is_empty() && self.open.is_empty() && self.next_step >= self.plan.steps.len();
        let Some(client) = self.client.as_mut().filter(|_| done) else { return };
        if !std::mem::replace(&mut self.closes, true) {
            client.close(now);
            client.poll(now, effects);
        }
        if client.is_idle() {
            self.left = self.client.take().map(|client| client.stats());
            effects.reports.push(NodeReport::Leaves);
        }
    }

    fn finished(&mut self, now: Instant, id: CallId, outcome: &Result<Output, CallError>) {
        // The checker reports outcomes of unknown calls.
        let Some(open) = self.open.iter().position(|open| *open == id) else { return };
        self.open.swap_remove(open);
        let (index, release) = step_of(id);
        let step = &self.plan.steps[index];
        match (&step.work, outcome) {
            (StepWork::Lock { keys, hold }, Ok(outcome)) if !release => {
                if let Output::Locked { tokens, .. } = outcome {
                    let session = self.client.as_ref().and_then(|client| client.session(now));
                    self.held.insert(index, (session, tokens.clone()));
                }
                self.schedule(now + *hold, Task::Release(index));
            }
            _ => self.schedule(now + step.pause, Task::Next),
        }
    }
}

impl SimulatedNode for Caller<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        if let Some(client) = &mut self.client {
            let ignored = client.stats().frames_ignored;
            match marked {
                true => client.handle_marked(now, frame),
                false => client.handle(now, frame),
            }
            effects.decision = Some(decision(client.stats().frames_ignored == ignored));
        }
        self.poll_until_idle(now, effects);
    }

    fn wake(&mut self, now: Instant, effects: &mut Effects) {
        self.poll_until_idle(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let client = self.client.as_ref().and_then(MapClient::deadline);
        [task, client].into_iter().flatten().min()
    }
}

pub(crate) fn decision(taken: bool) -> FrameDecision {
    if taken { FrameDecision::Taken } else { FrameDecision::Ignored }
}
