//! Elements fail or are lost, memory moves, and the controller sees to it.
//!
//! ```text
//! fails ─► down, all that it held is gone ─┐
//! lost to the controller, works on ────────┼─► controller: new epoch, tables ─► owners ─► callers
//! an application's memory moves ───────────┤        └─► the element that it was on, some time or never
//! silent, says an owner, and goes on ──────┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_endpoint::map::Renewal;
use pathcall_wire::Instant;

use super::{Event, World};
use crate::judge::Failure;
use crate::party::Node;
use crate::random::Random;
use crate::scenario::{ApplicationPlan, Memory, Move, Scenario};

/// Longest time that an owner goes on without an element that was silent.
const SUSPENSION: Duration = Duration::from_secs(1);

/// What an owner is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnerWord {
    pub(crate) epoch: u32,
    pub(crate) memory: Option<Memory>,
    /// The element that it works by; `None`: there is none.
    pub(crate) element: Option<usize>,
    /// Longest way of the owner's word to a caller.
    word_within: Duration,
}

/// What the controller has given an application.
#[derive(Debug, Clone, Copy)]
struct Given {
    epoch: u32,
    memory: Option<Memory>,
    /// The element that knows it, with memory or without.
    element: usize,
}

/// What holds for a caller from now on, and the element to send by.
type CallerWord = (Renewal, Option<usize>);

/// What the controller knows, and when its words arrive.
pub(super) struct Controller {
    /// By application.
    given: Vec<Given>,
    /// Elements that it has given up.
    gone: BTreeSet<usize>,
    /// When the last word comes to a node: words keep their order.
    words: BTreeMap<Node, Instant>,
    /// What is on its way: to owners, by application; to callers, what holds and the element to send by.
    to_owners: BTreeMap<usize, VecDeque<OwnerWord>>,
    to_callers: BTreeMap<(usize, usize), VecDeque<CallerWord>>,
    random: Random,
}

impl Controller {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let given = |plan: &ApplicationPlan| Given { epoch: plan.epoch, memory: plan.memory, element: plan.element() };
        Self {
            given: scenario.applications.iter().map(given).collect(),
            gone: BTreeSet::new(),
            words: BTreeMap::new(),
            to_owners: BTreeMap::new(),
            to_callers: BTreeMap::new(),
            random: Random::new(!scenario.seed),
        }
    }

    /// When a word that is sent now comes to a node.
    pub(super) fn word(&mut self, now: Instant, to: Node, within: Duration) -> Instant {
        let last = self.words.entry(to).or_insert(now);
        *last = (now + self.random.up_to(within)).max(*last);
        *last
    }
}

impl World<'_> {
    /// An element loses what it holds, or the controller can't reach it any more.
    pub(super) fn fail(&mut self, index: usize) {
        let failure = self.scenario.failures[index];
        let number = failure.element;
        if self.controller.gone.contains(&number) || self.element_from[number] == Instant(u64::MAX) {
            return;
        }
        self.trace.failed(self.now, failure);
        if failure.forgets {
            self.parties.elements[number].forget(self.scenario.elements[number]);
            let inbox = &mut self.parties.host(Node::Element(number)).inbox;
            self.in_air -= inbox.len() as u64;
            inbox.clear();
            self.element_from[number] = if failure.returns { self.now + failure.down } else { Instant(u64::MAX) };
        }
        self.queue.push(self.now + failure.told_after, Event::Act(index));
    }

    /// The controller gives every application of an element a new epoch, fills the element's tables if
    /// it can, and tells every owner.
    pub(super) fn act(&mut self, index: usize) -> Result<(), Failure> {
        let failure = self.scenario.failures[index];
        if self.controller.gone.contains(&failure.element) {
            return Ok(());
        }
        if !failure.returns {
            self.controller.gone.insert(failure.element);
        }
        for application in 0..self.controller.given.len() {
            let given = &mut self.controller.given[application];
            let withdrawn = given.memory.is_none() && self.scenario.applications[application].memory.is_some();
            if given.element != failure.element || withdrawn {
                continue;
            }
            given.memory = given.memory.filter(|_| failure.returns);
            self.install(application, failure.returns, failure.word_within)?;
        }
        Ok(())
    }

    /// The controller gives an application other memory.
    pub(super) fn move_memory(&mut self, index: usize) -> Result<(), Failure> {
        let change = self.scenario.moves[index];
        let Move { application, heard_after, word_within, .. } = change;
        let memory = change.memory.filter(|memory| !self.controller.gone.contains(&memory.element));
        let given = &mut self.controller.given[application];
        let before = std::mem::replace(&mut given.memory, memory);
        if before.is_none() && memory.is_none() {
            return Ok(());
        }
        let left = given.element;
        given.element = memory.map_or(left, |memory| memory.element);
        self.trace.moved(self.now, Node::Owner(application), memory);
        if let Some(after) = heard_after {
            self.queue.push(self.now + after, Event::Remove(application, left));
        }
        self.install(application, memory.is_some(), word_within)
    }

    /// Gives an application a new epoch on its element, if it has one that serves, and tells its owner.
    fn install(&mut self, application: usize, serves: bool, word_within: Duration) -> Result<(), Failure> {
        let plan = &self.scenario.applications[application];
        let given = &mut self.controller.given[application];
        given.epoch += 1;
        let Given { epoch, memory, element: number } = *given;
        if serves {
            let element = &mut self.parties.elements[number];
            element.install(plan, memory, epoch)?;
            let joined = self.parties.callers[application].iter().zip(&plan.callers);
            for (_, caller) in joined.filter(|(state, caller)| state.is_member() && caller.registered) {
                element.register(plan, memory, caller)?;
            }
        }
        let word = OwnerWord { epoch, memory, element: serves.then_some(number), word_within };
        let at = self.controller.word(self.now, Node::Owner(application), word_within);
        self.controller.to_owners.entry(application).or_default().push_back(word);
        self.queue.push(at, Event::Renew(application));
        Ok(())
    }

    /// An owner whose element is silent goes on without it, and asks for memory again later.
    pub(super) fn suspend(&mut self, application: usize) -> Result<(), Failure> {
        let Some(epoch) = self.parties.owners[application].epoch_with_memory() else { return Ok(()) };
        self.trace.suspended(self.now, Node::Owner(application));
        self.judge.suspended(application);
        self.tally.suspended += 1;
        let again = self.now + self.controller.random.up_to(SUSPENSION);
        self.queue.push(again, Event::AskAnew(application));
        let word = OwnerWord { epoch, memory: None, element: None, word_within: Duration::from_millis(1) };
        self.controller.to_owners.entry(application).or_default().push_back(word);
        self.renew_owner(application)
    }

    /// The controller gives an owner that asks for it the memory that it has, under another epoch: nobody
    /// knows what the element has done meanwhile.
    pub(super) fn ask_anew(&mut self, application: usize) -> Result<(), Failure> {
        let Given { memory, element, .. } = self.controller.given[application];
        if memory.is_none() || self.controller.gone.contains(&element) {
            return Ok(());
        }
        self.install(application, true, Duration::from_millis(1))
    }

    /// The element that an application has left hears of it, unless it is back.
    pub(super) fn remove(&mut self, application: usize, element: usize) {
        let given = self.controller.given[application];
        if given.memory.is_none() || given.element != element {
            self.parties.elements[element].remove(&self.scenario.applications[application]);
        }
    }

    /// The controller lets an element know a caller that joins.
    pub(super) fn register(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let plan = &self.scenario.applications[application];
        let Given { memory, element, .. } = self.controller.given[application];
        let reached = !self.controller.gone.contains(&element);
        if let (true, Some(element)) = (reached, self.parties.elements.get_mut(element)) {
            element.register(plan, memory, &plan.callers[number])?;
        }
        Ok(())
    }

    /// An owner hears of what it has now, and tells its callers.
    pub(super) fn renew_owner(&mut self, application: usize) -> Result<(), Failure> {
        let node = Node::Owner(application);
        if let Some(later) = self.later(node) {
            self.queue.push(later, Event::Renew(application));
            return Ok(());
        }
        let waiting = self.controller.to_owners.get_mut(&application);
        let Some(word) = waiting.and_then(VecDeque::pop_front) else { return Ok(()) };
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        let owner = &mut self.parties.owners[application];
        owner.renew(now, &word, &mut effects);
        for (number, caller) in self.scenario.applications[application].callers.iter().enumerate() {
            let Some(renewal) = owner.rejoin(caller) else { continue };
            let at = self.controller.word(self.now, Node::Caller(application, number), word.word_within);
            let waiting = self.controller.to_callers.entry((application, number)).or_default();
            waiting.push_back((renewal, word.element));
            self.queue.push(at, Event::Word(application, number));
        }
        self.carry_out(node, effects, false)
    }

    /// A caller hears of the new epoch.
    pub(super) fn renew_caller(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let node = Node::Caller(application, number);
        if let Some(later) = self.later(node) {
            self.queue.push(later, Event::Word(application, number));
            return Ok(());
        }
        let waiting = self.controller.to_callers.get_mut(&(application, number));
        let Some((renewal, element)) = waiting.and_then(VecDeque::pop_front) else { return Ok(()) };
        self.windows.renewed(self.scenario.applications[application].callers[number].endpoint);
        self.trace.told(self.now, node, &renewal);
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.callers[application][number].renew(now, &renewal, element, &mut effects);
        self.carry_out(node, effects, false)
    }
}
