//! A caller's process leaves, or is killed and another takes its place.
//!
//! ```text
//! leaves, or is killed ─► its frames still travel ─► the owner counts it as gone ─► the controller takes its slots
//!        back ─► the owner may free what it held in the element; a new process takes the slots
//! ```

use std::time::Duration;

use super::{Event, World};
use crate::judge::Failure;
use crate::party::Node;

/// Longest time that the controller takes for each of its steps.
const RELEASED_WITHIN: Duration = Duration::from_millis(20);

impl World<'_> {
    pub(super) fn kill(&mut self, application: usize, number: usize) {
        let node = Node::Caller(application, number);
        self.trace.killed(self.now, node);
        self.parties.callers[application][number].kill();
        self.judge.killed(application, number);
        if let Some(death) = self.scenario.applications[application].callers[number].dies {
            self.queue.push(self.now + death.noticed_after, Event::Leave(application, number));
        }
    }

    /// A caller has closed, and its process ends.
    pub(super) fn ends(&mut self, application: usize, number: usize) {
        if let Some(heard_after) = self.scenario.applications[application].callers[number].leaves {
            self.queue.push(self.now + heard_after, Event::Leave(application, number));
        }
    }

    /// The owner takes back what it held, as far as the owner has it.
    pub(super) fn leave(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let owner = Node::Owner(application);
        if let Some(later) = self.later(owner) {
            self.queue.push(later, Event::Leave(application, number));
            return Ok(());
        }
        let plan = &self.scenario.applications[application].callers[number];
        if !self.parties.callers[application][number].is_member() {
            return Ok(());
        }
        self.judge.left(application, number);
        let at = self.controller.word(self.now, owner, RELEASED_WITHIN);
        self.queue.push(at, Event::Release(application, number));
        let now = self.shown(owner);
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.owners[application].leave(now, plan, &mut effects);
        self.carry_out(owner, effects, false)
    }

    /// The controller takes its slots back.
    pub(super) fn release(&mut self, application: usize, number: usize) {
        self.parties.callers[application][number].leave();
        for element in &mut self.parties.elements {
            element.release(&self.scenario.applications[application].callers[number]);
        }
        let at = self.controller.word(self.now, Node::Owner(application), RELEASED_WITHIN);
        self.queue.push(at, Event::Gone(application, number));
    }

    /// The owner hears that the element lets in nothing more of it.
    pub(super) fn gone(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let owner = Node::Owner(application);
        if let Some(later) = self.later(owner) {
            self.queue.push(later, Event::Gone(application, number));
            return Ok(());
        }
        let now = self.shown(owner);
        let mut effects = std::mem::take(&mut self.effects);
        let plan = &self.scenario.applications[application].callers[number];
        self.parties.owners[application].gone(now, plan, &mut effects);
        self.carry_out(owner, effects, false)
    }
}
