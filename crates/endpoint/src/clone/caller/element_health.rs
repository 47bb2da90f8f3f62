//! Health of the element as a caller sees it: when the element is silent, calls go past it, and some probe it.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// Health of the element.
#[derive(Debug)]
pub(super) struct ElementHealth {
    /// Consecutive unanswered requests after which the element counts as silent.
    silent_after: u32,
    probe_every: Duration,
    /// Requests through the element that timed out since its last answer.
    unanswered: u32,
    /// Time of the next probe, while the element is silent.
    probe_at: Option<Instant>,
}

impl ElementHealth {
    pub(super) const fn new(silent_after: u32, probe_every: Duration) -> Self {
        Self { silent_after, probe_every, unanswered: 0, probe_at: None }
    }

    /// Records a frame that came through the element.
    pub(super) const fn record_answer(&mut self) {
        self.unanswered = 0;
        self.probe_at = None;
    }

    /// Records an unanswered request through the element; returns whether the element became silent.
    pub(super) fn record_timeout(&mut self, now: Instant) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        let silent = self.unanswered >= self.silent_after && self.probe_at.is_none();
        if silent && !mutant::on(Mutant::CloneSilenceUnnoticed) {
            self.probe_at = Some(now + self.probe_every);
        }
        silent
    }

    /// Returns whether a call goes through the element: always while it answers, from time to time while it is silent.
    pub(super) fn should_use(&mut self, now: Instant) -> bool {
        match self.probe_at {
            None => true,
            Some(at) if at <= now && !mutant::on(Mutant::CloneSilenceForEver) => {
                self.probe_at = Some(now + self.probe_every);
                true
            }
            Some(_) => false,
        }
    }

    /// Returns whether the element answers, as far as known.
    pub(super) const fn is_responsive(&self) -> bool {
        self.probe_at.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_element_is_probed_periodically() {
        let mut element = ElementHealth::new(2, Duration::from_nanos(100));
        assert!(!element.record_timeout(Instant(1)) && element.should_use(Instant(1)));
        assert!(element.record_timeout(Instant(2)) && !element.record_timeout(Instant(3)));
        assert!(
            !element.should_use(Instant(50)) && element.should_use(Instant(102)) && !element.should_use(Instant(103))
        );
        element.record_answer();
        assert!(element.should_use(Instant(104)) && element.is_responsive());
    }

    #[test]
    fn answer_resets_timeout_count() {
        let mut element = ElementHealth::new(2, Duration::from_nanos(100));
        for at in [1, 2, 3] {
            assert!(!element.record_timeout(Instant(at)), "the misses are not consecutive");
            element.record_answer();
        }
        assert!(!element.record_timeout(Instant(4)) && element.record_timeout(Instant(5)));
    }
}
