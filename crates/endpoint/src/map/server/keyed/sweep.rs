//! Numbered questions to the element, asked under loss until each is answered.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

use crate::flow::Timing;

/// Questions asked and not answered yet.
const WINDOW: usize = 64;

/// The questions `0..n`. Each may be asked again: asking changes nothing twice.
pub(in super::super) struct Sweep {
    there: Vec<bool>,
    /// All questions before it are answered.
    oldest: usize,
    /// First question that was not asked.
    next: usize,
    deadline: Instant,
    pause: Duration,
    heard: Instant,
    timing: Timing,
}

impl Sweep {
    pub(in super::super) fn new(questions: usize, now: Instant, timing: Timing) -> Self {
        let there = vec![false; questions];
        Self { there, oldest: 0, next: 0, deadline: now, pause: timing.rto_min, heard: now, timing }
    }

    pub(in super::super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(in super::super) fn is_done(&self) -> bool {
        self.oldest == self.there.len()
    }

    /// Notes an answer; false when it is none that is waited for.
    pub(in super::super) fn answered(&mut self, now: Instant, question: usize) -> bool {
        if self.there.get(question) != Some(&false) {
            return false;
        }
        self.there[question] = true;
        self.heard = now;
        self.pause = self.timing.rto_min;
        while self.there.get(self.oldest) == Some(&true) {
            self.oldest += 1;
        }
        // Room in the window: ask on at once.
        self.deadline = if self.next < self.there.len() { now } else { now + self.pause };
        true
    }

    /// A question is to be asked anew, at once, together with all that are not answered.
    pub(super) fn ask_again(&mut self, now: Instant, question: usize) {
        self.heard = now;
        self.next = self.next.min(question);
        self.deadline = now;
    }

    /// Asks what is due; false when nothing was answered for the give-up time.
    pub(in super::super) fn poll(&mut self, now: Instant, mut ask: impl FnMut(usize)) -> bool {
        if now < self.deadline {
            return true;
        }
        // Whoever stood still itself has neither asked nor heard.
        self.heard = now.min(self.heard + now.since(self.deadline));
        if now.since(self.heard) >= self.timing.give_up {
            return false;
        }
        let fresh = self.next..self.there.len().min(self.oldest + WINDOW);
        if fresh.is_empty() && !mutant::on(Mutant::ReadOnce) {
            (self.oldest..self.next).filter(|question| !self.there[*question]).for_each(&mut ask);
            self.pause = (self.pause * 2).min(self.timing.rto_max);
        }
        self.next = self.next.max(fresh.end);
        fresh.for_each(ask);
        self.deadline = now + self.pause;
        true
    }
}
