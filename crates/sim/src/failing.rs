//! The element fails, and the controller sees to it.
//!
//! ```text
//! fails ─► down, all that it held is gone ─► the controller acts: new epoch, tables, owners ─► word to callers
//! ```

use pathcall_wire::Instant;

use crate::element::Element;
use crate::judge::Failure;
use crate::party::{Effects, Node};
use crate::world::{Event, World};

impl World<'_> {
    pub(crate) fn fail(&mut self, index: usize, effects: Effects) -> Result<(), Failure> {
        let failure = self.scenario.failures[index];
        self.effects = effects;
        let (Some(size), true) = (self.scenario.element, self.element_from != Instant(u64::MAX)) else {
            return Ok(());
        };
        self.trace.failed(self.now, failure);
        self.parties.element = Some(Element::blank(size));
        self.element_from = if failure.returns { self.now + failure.down } else { Instant(u64::MAX) };
        self.queue.push(self.now + failure.told_after, Event::Act(index));
        Ok(())
    }

    /// The controller gives every application a new epoch, fills the element's tables if it is back,
    /// and has every owner tell its callers.
    pub(crate) fn act(&mut self, index: usize, mut effects: Effects) -> Result<(), Failure> {
        let failure = self.scenario.failures[index];
        let scenario = self.scenario;
        for (application, plan) in scenario.applications.iter().enumerate() {
            let owner = &mut self.parties.owners[application];
            let epoch = owner.epoch() + 1;
            let element = self.parties.element.as_mut().filter(|_| failure.returns);
            let back = element.is_some();
            if let Some(element) = element {
                element.install(plan, epoch)?;
                let joined = self.parties.callers[application].iter().zip(&plan.callers);
                for (_, caller) in joined.filter(|(state, caller)| state.has_joined() && caller.registered) {
                    element.register(plan, caller)?;
                }
            }
            owner.renew(self.now, back, &mut effects);
            for (number, caller) in plan.callers.iter().enumerate() {
                let Some(renewal) = owner.rejoin(caller) else { continue };
                let last = self.words.entry(Node::Caller(application, number)).or_insert(self.now);
                *last = (self.now + self.random.up_to(failure.word_within)).max(*last);
                self.queue.push(*last, Event::Word(application, number, renewal));
            }
            self.carry_out(Node::Owner(application), std::mem::take(&mut effects))?;
            effects = std::mem::take(&mut self.effects);
        }
        self.effects = effects;
        Ok(())
    }
}
