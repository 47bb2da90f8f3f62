//! A caller: a [`MapClient`] and the script of calls that it is handed.

use std::collections::BTreeMap;

use pathcall_endpoint::map::client::{CallId, ClientConfig, ClientStats, MapClient};
use pathcall_endpoint::map::{CallError, Key, Operation, Output, Renewal};
use pathcall_wire::{Instant, TokenKey};

use crate::party::{Decision, Effects, Party, Report};
use crate::scenario::{CallerPlan, Work};

/// What a step's calls are named: the first, and for a lock the release.
pub(crate) fn call_id(step: usize, release: bool) -> CallId {
    CallId(step as u64 * 2 + u64::from(release))
}

/// The step that a call belongs to, and whether it is its release.
pub(crate) fn step_of(call: CallId) -> (usize, bool) {
    ((call.0 / 2) as usize, call.0 % 2 == 1)
}

/// What a caller does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Begins the next step.
    Next,
    /// Stops waiting for a step's first call.
    Cancel(usize),
    /// Gives the keys of a lock back.
    Release(usize),
}

/// A caller of one application.
pub(crate) struct Caller<'a> {
    plan: &'a CallerPlan,
    client: Option<MapClient>,
    next_step: usize,
    /// Calls whose outcome is waited for.
    open: Vec<CallId>,
    tasks: BTreeMap<(Instant, u64), Task>,
    tasks_made: u64,
    /// It was let in, and has not left.
    member: bool,
    killed: bool,
    /// It has done all, and no further call comes.
    closes: bool,
    /// What it had done when it left.
    left: Option<ClientStats>,
    /// Of locks that are held, by step: the session, and the tokens in the order of the step's keys.
    held: BTreeMap<usize, (Option<u32>, Vec<u64>)>,
    /// The element that it sends by.
    element: Option<usize>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(plan: &'a CallerPlan) -> Self {
        Self {
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
            element: None,
        }
    }

    /// It has joined its application and may call; it begins with step `first`.
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
            self.at(now, Task::Next);
        }
        self.wake(now, effects);
    }

    /// Whether the controller and the owner take it for one that has joined.
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Its process is killed.
    pub(crate) fn kill(&mut self) {
        self.client = None;
        self.tasks.clear();
        self.killed = true;
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed
    }

    /// It counts as gone.
    pub(crate) fn leave(&mut self) {
        self.member = false;
    }

    /// The element that it sends by.
    pub(crate) fn element(&self) -> Option<usize> {
        self.element
    }

    /// The epoch has changed.
    pub(crate) fn renew(&mut self, now: Instant, renewal: &Renewal, element: Option<usize>, effects: &mut Effects) {
        self.element = element;
        if let Some(client) = &mut self.client {
            client.renew(now, renewal);
        }
        self.settle(now, effects);
    }

    /// Whether it believes, by its own clock, that it holds the locks of a step.
    pub(crate) fn holds(&self, now: Instant, step: usize) -> bool {
        let session = self.client.as_ref().and_then(|client| client.session(now));
        session.is_some() && self.held.get(&step).is_some_and(|(granted, _)| *granted == session)
    }

    pub(crate) fn stats(&self) -> ClientStats {
        self.client.as_ref().map(MapClient::stats).or(self.left).unwrap_or_default()
    }

    /// Whether nothing is under way, calls that were cancelled included.
    pub(crate) fn is_idle(&self) -> bool {
        self.killed
            || self.left.is_some()
            || self.tasks.is_empty() && self.client.as_ref().is_some_and(MapClient::is_idle)
    }

    fn at(&mut self, when: Instant, task: Task) {
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
                    self.at(now + after, Task::Cancel(index));
                }
                self.start(now, call_id(index, false), step.work.operation(), effects);
            }
            Task::Cancel(step) => {
                let id = call_id(step, false);
                if let Some(open) = self.open.iter().position(|open| *open == id) {
                    self.open.swap_remove(open);
                    effects.reports.push(Report::Cancelled(id));
                    if let Some(client) = &mut self.client {
                        client.cancel(now, id);
                    }
                    self.at(now + self.plan.steps[step].pause, Task::Next);
                }
            }
            Task::Release(step) => {
                if let Work::Lock { keys, .. } = &self.plan.steps[step].work {
                    let (_, tokens) = self.held.remove(&step).unwrap_or_default();
                    let operation = Operation::Clear { keys: keys.clone(), tokens };
                    self.start(now, call_id(step, true), operation, effects);
                }
            }
        }
    }

    fn start(&mut self, now: Instant, id: CallId, operation: Operation, effects: &mut Effects) {
        effects.reports.push(Report::Started(id));
        self.open.push(id);
        if let Some(client) = &mut self.client {
            client.start(now, id, operation);
        }
    }

    /// The driver's law: after each input poll, then take what has finished; until there is nothing.
    fn settle(&mut self, now: Instant, effects: &mut Effects) {
        loop {
            if let Some(client) = &mut self.client {
                client.poll(now, effects);
                let finished: Vec<_> = std::iter::from_fn(|| client.next_event()).collect();
                for (id, outcome) in finished {
                    self.finished(now, id, &outcome);
                    effects.reports.push(Report::Finished(id, outcome));
                }
            }
            let Some(due) = self.tasks.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let task = due.remove();
            self.perform(now, task, effects);
        }
        if self.plan.leaves.is_some() {
            self.close(now, effects);
        }
    }

    /// Closes when all is done, cancelled calls apart, and leaves when nothing of it is left behind.
    fn close(&mut self, now: Instant, effects: &mut Effects) {
        let done = self.tasks.is_empty() && self.open.is_empty() && self.next_step >= self.plan.steps.len();
        let Some(client) = self.client.as_mut().filter(|_| done) else { return };
        if !std::mem::replace(&mut self.closes, true) {
            client.close(now);
            client.poll(now, effects);
        }
        if client.is_idle() {
            self.left = self.client.take().map(|client| client.stats());
            effects.reports.push(Report::Leaves);
        }
    }

    fn finished(&mut self, now: Instant, id: CallId, outcome: &Result<Output, CallError>) {
        // What was not asked for is the judge's to see.
        let Some(open) = self.open.iter().position(|open| *open == id) else { return };
        self.open.swap_remove(open);
        let (index, release) = step_of(id);
        let step = &self.plan.steps[index];
        match (&step.work, outcome) {
            (Work::Lock { keys, hold }, Ok(outcome)) if !release => {
                if let Output::Locked { tokens, .. } = outcome {
                    let session = self.client.as_ref().and_then(|client| client.session(now));
                    self.held.insert(index, (session, by_key(keys, tokens)));
                }
                self.at(now + *hold, Task::Release(index));
            }
            _ => self.at(now + step.pause, Task::Next),
        }
    }
}

impl Party for Caller<'_> {
    fn handle(&mut self, now: Instant, frame: &mut [u8], marked: bool, effects: &mut Effects) {
        if let Some(client) = &mut self.client {
            let ignored = client.stats().frames_ignored;
            match marked {
                true => client.handle_marked(now, frame, effects),
                false => client.handle(now, frame, effects),
            }
            effects.decision = Some(decision(client.stats().frames_ignored == ignored));
        }
        self.settle(now, effects);
    }

    fn wake(&mut self, now: Instant, effects: &mut Effects) {
        self.settle(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let client = self.client.as_ref().and_then(MapClient::deadline);
        [task, client].into_iter().flatten().min()
    }
}

/// Tokens that came in the order of the keys, in the order in which the keys were named.
pub(crate) fn by_key(keys: &[Key], tokens: &[u64]) -> Vec<u64> {
    let mut sorted: Vec<&Key> = keys.iter().collect();
    sorted.sort();
    let token = |key: &Key| sorted.iter().position(|other| *other == key).and_then(|at| tokens.get(at));
    keys.iter().filter_map(|key| token(key).copied()).collect()
}

pub(crate) fn decision(taken: bool) -> Decision {
    if taken { Decision::Taken } else { Decision::Ignored }
}
