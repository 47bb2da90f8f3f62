//! A caller's process is killed, and another takes its place.
//!
//! ```text
//! killed ─► its frames still travel ─► counts as gone: element, owner ─► a new process takes its slots
//! ```

use super::{Event, World};
use crate::judge::Failure;
use crate::party::Node;

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

    /// The controller takes its slots back, and the owner what it held.
    pub(super) fn leave(&mut self, application: usize, number: usize) -> Result<(), Failure> {
        let owner = Node::Owner(application);
        if let Some(later) = self.later(owner) {
            self.queue.push(later, Event::Leave(application, number));
            return Ok(());
        }
        let plan = &self.scenario.applications[application].callers[number];
        let caller = &mut self.parties.callers[application][number];
        if !caller.is_member() {
            return Ok(());
        }
        caller.leave();
        if let Some(element) = &mut self.parties.element {
            element.release(plan);
        }
        self.judge.left(application, number);
        let now = self.shown(owner);
        let mut effects = std::mem::take(&mut self.effects);
        self.parties.owners[application].leave(now, plan, &mut effects);
        self.carry_out(owner, effects, false)
    }
}
