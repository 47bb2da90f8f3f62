//! End of callers' processes: leaving, death and replacement.
//!
//! ```text
//! leaves, or is killed ─► its frames still travel ─► the owner removes it ─► the controller takes its slots
//!        back ─► the owner may free its locks in the element; a new process takes the slots
//! ```

use std::time::Duration;

use super::{Event, MapWorld};
use crate::checker::MapViolation;
use crate::node::MapNodeId;

/// Limit on the time that the controller takes for each of its steps.
const RELEASED_WITHIN: Duration = Duration::from_millis(20);

impl MapWorld<'_> {
    pub(super) fn kill(&mut self, application: usize, number: usize) {
        let node = MapNodeId::Caller(application, number);
        self.trace.killed(self.now, node);
        self.nodes.callers[application][number].kill();
        self.checker.killed(application, number);
        if let Some(death) = self.scenario.applications[application].callers[number].crash {
            self.queue.push(self.now + death.detected_after, Event::Leave(application, number));
        }
    }

    /// Schedules the removal of a caller that has closed.
    pub(super) fn ends(&mut self, application: usize, number: usize) {
        if let Some(element_notified_after) = self.scenario.applications[application].callers[number].leaves {
            self.queue.push(self.now + element_notified_after, Event::Leave(application, number));
        }
    }

    /// Removes a caller at the owner, which frees its locks as far as it holds them itself.
    pub(super) fn leave(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let owner = MapNodeId::Owner(application);
        if let Some(later) = self.later(owner) {
            self.queue.push(later, Event::Leave(application, number));
            return Ok(());
        }
        let plan = &self.scenario.applications[application].callers[number];
        if !self.nodes.callers[application][number].is_member() {
            return Ok(());
        }
        self.checker.record_departure(application, number);
        let at = self.controller.arrival(self.now, owner, RELEASED_WITHIN);
        self.queue.push(at, Event::Release(application, number));
        let now = self.local_time(owner);
        let mut effects = std::mem::take(&mut self.effects);
        self.nodes.owners[application].leave(now, plan, &mut effects);
        self.carry_out(owner, effects, false)
    }

    /// Takes the slots of a caller back, at the controller.
    pub(super) fn release(&mut self, application: usize, number: usize) {
        self.nodes.callers[application][number].leave();
        for element in &mut self.nodes.elements {
            element.release(&self.scenario.applications[application].callers[number]);
        }
        let at = self.controller.arrival(self.now, MapNodeId::Owner(application), RELEASED_WITHIN);
        self.queue.push(at, Event::Gone(application, number));
    }

    /// Informs the owner that the element admits no more frames of the caller.
    pub(super) fn report_departure(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let owner = MapNodeId::Owner(application);
        if let Some(later) = self.later(owner) {
            self.queue.push(later, Event::Gone(application, number));
            return Ok(());
        }
        let now = self.local_time(owner);
        let mut effects = std::mem::take(&mut self.effects);
        let plan = &self.scenario.applications[application].callers[number];
        self.nodes.owners[application].finish_departure(now, plan, &mut effects);
        self.carry_out(owner, effects, false)
    }
}
