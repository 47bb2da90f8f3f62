//! The element fails, and the controller sees to it.
//!
//! ```text
//! fails ─► down, all that it held is gone ─► controller: new epoch, tables ─► owners ─► callers
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::map::Renewal;
use pathcall_wire::Instant;

use super::{Event, World};
use crate::element::Element;
use crate::judge::Failure;
use crate::party::Node;
use crate::random::Random;
use crate::scenario::Scenario;

/// What an owner is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerWord {
    epoch: u32,
    /// Whether there is an element.
    element: bool,
    /// Longest way of the owner's word to a caller.
    word_within: Duration,
}

/// What the controller knows, and when its words arrive.
pub(super) struct Controller {
    /// Epochs by application.
    epochs: Vec<u32>,
    /// When the last word comes to a node: words keep their order.
    words: BTreeMap<Node, Instant>,
    random: Random,
}

impl Controller {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let epochs = scenario.applications.iter().map(|plan| plan.epoch).collect();
        Self { epochs, words: BTreeMap::new(), random: Random::new(!scenario.seed) }
    }

    /// When a word that is sent now comes to a node.
    pub(super) fn word(&mut self, now: Instant, to: Node, within: Duration) -> Instant {
        let last = self.words.entry(to).or_insert(now);
        *last = (now + self.random.up_to(within)).max(*last);
        *last
    }
}

impl World<'_> {
    pub(super) fn fail(&mut self, index: usize) {
        let failure = self.scenario.failures[index];
        let (Some(size), true) = (self.scenario.element, self.element_from != Instant(u64::MAX)) else { return };
        self.trace.failed(self.now, failure);
        self.parties.element = Some(Element::blank(size));
        let inbox = &mut self.parties.host(Node::Element).inbox;
        self.in_air -= inbox.len() as u64;
        inbox.clear();
        self.element_from = if failure.returns { self.now + failure.down } else { Instant(u64::MAX) };
        self.queue.push(self.now + failure.told_after, Event::Act(index));
    }

    /// The controller gives every application a new epoch, fills the element's tables if it is back,
    /// and tells every owner.
    pub(super) fn act(&mut self, index: usize) -> Result<(), Failure> {
        let failure = self.scenario.failures[index];
        for (application, plan) in self.scenario.applications.iter().enumerate() {
            self.controller.epochs[application] += 1;
            let epoch = self.controller.epochs[application];
            if let Some(element) = self.parties.element.as_mut().filter(|_| failure.returns) {
                element.install(plan, epoch)?;
                let joined = self.parties.callers[application].iter().zip(&plan.callers);
                for (_, caller) in joined.filter(|(state, caller)| state.is_member() && caller.registered) {
                    element.register(plan, caller)?;
                }
            }
            let word = OwnerWord { epoch, element: failure.returns, word_within: failure.word_within };
            let at = self.controller.word(self.now, Node::Owner(application), failure.word_within);
            self.queue.push(at, Event::Renew(application, word));
        }
        Ok(())
    }

    /// An owner hears of the new epoch, and tells its callers.
    pub(super) fn renew_owner(&mut self, application: usize, word: OwnerWord) -> Result<(), Failure> {
        let node = Node::Owner(application);
        if let Some(later) = self.later(node) {
            self.queue.push(later, Event::Renew(application, word));
            return Ok(());
        }
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        let owner = &mut self.parties.owners[application];
        owner.renew(now, word.epoch, word.element, &mut effects);
        for (number, caller) in self.scenario.applications[application].callers.iter().enumerate() {
            let Some(renewal) = owner.rejoin(caller) else { continue };
            let at = self.controller.word(self.now, Node::Caller(application, number), word.word_within);
            self.queue.push(at, Event::Word(application, number, renewal));
        }
        self.carry_out(node, effects, false)
    }

    /// A caller hears of the new epoch.
    pub(super) fn renew_caller(&mut self, application: usize, number: usize, renewal: Renewal) -> Result<(), Failure> {
        let node = Node::Caller(application, number);
        if let Some(later) = self.later(node) {
            self.queue.push(later, Event::Word(application, number, renewal));
            return Ok(());
        }
        self.windows.renewed(self.scenario.applications[application].callers[number].endpoint);
        self.trace.told(self.now, node, &renewal);
        let now = self.shown(node);
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.callers[application][number].renew(now, &renewal, &mut effects);
        self.carry_out(node, effects, false)
    }
}
