//! Idle applications: elements are asked when they last admitted a frame of each application (NetRPC §5.2.2, the first
//! of two timeouts; the second one, for values that no caller wants, would be the owner's).

use std::time::Duration;

use super::{Application, ControllerState, Output};

impl ControllerState {
    /// Asks elements with applications for the times of their last frames.
    pub(super) fn poll_last_frames(&mut self) {
        for (&id, element) in &mut self.elements {
            if element.poll_at.is_none_or(|at| at > self.now) {
                continue;
            }
            let is_used = element.serving && element.rows.used() > 0;
            element.poll_at = is_used.then(|| self.now + self.policy.poll_interval());
            if is_used {
                self.outputs.push(Output::AskLastFrames { element: id, boot_id: element.record.boot_id });
            }
        }
    }

    /// Begins to ask an element for the times of last frames, unless it is asked already.
    pub(super) fn begin_polling(&mut self, id: u32) {
        if let Some(element) = self.elements.get_mut(&id) {
            element.poll_at.get_or_insert(self.now + self.policy.poll_interval());
        }
    }

    /// Handles the answer of an element: the time since the last admitted frame of each application that had one.
    pub(super) fn on_last_frames(&mut self, id: u32, boot_id: u64, ages: &[(u32, Duration)]) {
        if self.elements.get(&id).is_none_or(|element| element.record.boot_id != boot_id) {
            return;
        }
        let on = |a: &Application| a.record.memory.is_some_and(|memory| memory.element == id);
        for (gaid, application) in self.applications.iter_mut().filter(|(_, application)| on(application)) {
            // The answer may be older than the grant.
            let since_grant = self.now.since(application.granted_at);
            let age = ages.iter().find(|(of, _)| of == gaid).map(|(_, age)| *age);
            application.idle = age.map_or(since_grant, |age| age.min(since_grant));
        }
        if self.applications.values().any(|application| on(application) && application.idle >= self.policy.idle) {
            self.note_memory_change();
        }
    }
}
