//! End of callers' processes: leaving, death and replacement.
//!
//! ```text
//! leaves, or is killed ─► its frames still travel ─► the owner removes it ─► the controller takes its slots
//!        back ─► the owner may free its locks in the element; a new process takes the slots
//! ```

use std::time::Duration;

use super::{MapEvent, MapWorld};
use crate::map::checker::MapViolation;
use crate::map::node::MapNodeId;

/// Limit on the time that the controller takes for each of its steps.
const RELEASED_WITHIN: Duration = Duration::from_millis(20);

impl MapWorld<'_> {
    pub(super) fn kill(&mut self, application: usize, number: usize) {
        let node = MapNodeId::Caller(application, number);
        self.time.node_line(node, || "KILLED".to_owned());
        self.nodes.callers[application][number].kill();
        self.checker.killed(application, number);
        if let Some(death) = self.scenario.applications[application].callers[number].crash {
            self.time.after(death.detected_after, MapEvent::Leave(application, number));
        }
    }

    /// Schedules the removal of a caller that has closed.
    pub(super) fn ends(&mut self, application: usize, number: usize) {
        if let Some(element_notified_after) = self.scenario.applications[application].callers[number].leaves {
            self.time.after(element_notified_after, MapEvent::Leave(application, number));
        }
    }

    /// Removes a caller at the owner, which frees its locks as far as it holds them itself.
    pub(super) fn leave(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let owner = MapNodeId::Owner(application);
        let plan = &self.scenario.applications[application].callers[number];
        if !self.nodes.callers[application][number].is_member() {
            return Ok(());
        }
        self.checker.record_departure(application, number);
        let at = self.controller.arrival(self.time.now, owner, RELEASED_WITHIN);
        self.time.push(at, MapEvent::Release(application, number));
        self.on_owner(application, |owner, now, effects| owner.leave(now, plan, effects))
    }

    /// Takes the slots of a caller back, at the controller.
    pub(super) fn release(&mut self, application: usize, number: usize) {
        self.nodes.callers[application][number].leave();
        for element in &mut self.nodes.elements {
            element.release(&self.scenario.applications[application].callers[number]);
        }
        let at = self.controller.arrival(self.time.now, MapNodeId::Owner(application), RELEASED_WITHIN);
        self.time.push(at, MapEvent::Gone(application, number));
    }

    /// Informs the owner that the element admits no more frames of the caller.
    pub(super) fn report_departure(&mut self, application: usize, number: usize) -> Result<(), MapViolation> {
        let plan = &self.scenario.applications[application].callers[number];
        self.on_owner(application, |owner, now, effects| owner.finish_departure(now, plan, effects))
    }
}
