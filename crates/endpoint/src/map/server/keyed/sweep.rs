//! Sweep: numbered requests to the element, repeated until each has an answer.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use crate::flow::FlowTiming;

/// Maximum number of unanswered requests.
const WINDOW: usize = 64;

/// Requests `0..n`, each idempotent.
pub(in super::super) struct Sweep {
    answered: Vec<bool>,
    /// First unanswered request.
    oldest: usize,
    /// First unsent request.
    next: usize,
    deadline: Instant,
    pause: Duration,
    heard: Instant,
    timing: FlowTiming,
}

impl Sweep {
    pub(in super::super) fn new(requests: usize, now: Instant, timing: FlowTiming) -> Self {
        let answered = vec![false; requests];
        Self { answered, oldest: 0, next: 0, deadline: now, pause: timing.rto_min, heard: now, timing }
    }

    pub(in super::super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(in super::super) fn is_done(&self) -> bool {
        self.oldest == self.answered.len()
    }

    /// Records an answer. Returns false if the request has no answer pending.
    pub(in super::super) fn on_answer(&mut self, now: Instant, request: usize) -> bool {
        if self.answered.get(request) != Some(&false) {
            return false;
        }
        self.answered[request] = true;
        self.heard = now;
        self.pause = self.timing.rto_min;
        while self.answered.get(self.oldest) == Some(&true) {
            self.oldest += 1;
        }
        // The window has room: send the next requests at once.
        self.deadline = if self.next < self.answered.len() { now } else { now + self.pause };
        true
    }

    /// Sends a request again at once, together with all unanswered ones.
    pub(super) fn resend_request(&mut self, now: Instant, request: usize) {
        self.heard = now;
        self.next = self.next.min(request);
        self.deadline = now;
    }

    /// Sends due requests. Returns false if there was no answer for the give-up time.
    pub(in super::super) fn poll(&mut self, now: Instant, mut ask: impl FnMut(usize)) -> bool {
        if now < self.deadline {
            return true;
        }
        // Time in which this process was stopped does not count as silence.
        self.heard = now.min(self.heard + now.since(self.deadline));
        if now.since(self.heard) >= self.timing.give_up {
            return false;
        }
        let fresh = self.next..self.answered.len().min(self.oldest + WINDOW);
        if fresh.is_empty() && !mutant::on(Mutant::ReadOnce) {
            (self.oldest..self.next).filter(|request| !self.answered[*request]).for_each(&mut ask);
            self.pause = (self.pause * 2).min(self.timing.rto_max);
        }
        self.next = self.next.max(fresh.end);
        fresh.for_each(ask);
        self.deadline = now + self.pause;
        true
    }
}
