//! Acknowledgements of a node that busy-polls: they wait for a message to their peer, and leave with it in one system
//! call.

use std::time::Duration;

use pathcall_endpoint::messages::Messages;
use pathcall_wire::Instant;

use super::link::Link;

/// Longest time for which acknowledgements wait.
const DELAY: Duration = Duration::from_micros(100);

/// Whether acknowledgements wait, and until when.
#[derive(Debug, Default)]
pub struct HeldAcks {
    /// Whether the node busy-polls. One that waits for the system would be woken for its acknowledgements.
    polls: bool,
    due: Option<Instant>,
}

impl HeldAcks {
    /// Acknowledgements of a node with this [`busy_poll`](crate::node::NodeConfig::busy_poll).
    #[must_use]
    pub fn new(busy_poll: Duration) -> Self {
        Self { polls: !busy_poll.is_zero(), due: None }
    }

    /// Lets acknowledgements wait after frames were `received`, unless a sender waits for them.
    pub fn hold(&mut self, now: Instant, received: bool, messages: &Messages) {
        if !self.polls || !messages.can_hold_acks() {
            self.due = None;
        } else if received {
            self.due.get_or_insert(now + DELAY);
        }
    }

    /// Returns whether acknowledgements wait.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.due.is_some()
    }

    /// Returns whether acknowledgements leave now: their time is over, or the task no longer polls (`polls`).
    #[must_use = "they wait no longer"]
    pub fn take_due(&mut self, now: Instant, polls: bool) -> bool {
        self.due.take_if(|due| *due <= now || !polls).is_some()
    }

    /// Sends the frames that are due, unless there are events to handle first; returns whether there are.
    pub fn send_frames(&self, now: Instant, messages: &mut Messages, link: &mut Link) -> bool {
        let mut queue = |to, frame: &[u8]| link.queue(to, frame);
        match self.due {
            Some(_) => messages.send_due(now, &mut queue),
            None => messages.poll(now, &mut queue),
        }
        let has_events = messages.has_events();
        if !has_events {
            link.flush();
        }
        has_events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_acks_are_due_after_their_time_or_when_polling_ends() {
        let at = |ns| Instant(ns);
        let mut acks = HeldAcks { polls: true, due: Some(at(100)) };
        assert!(!acks.take_due(at(99), true));
        assert!(acks.take_due(at(100), true) && !acks.take_due(at(101), false), "once");
        acks.due = Some(at(100));
        assert!(acks.take_due(at(1), false));
    }
}
