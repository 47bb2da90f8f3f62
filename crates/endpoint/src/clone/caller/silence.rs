//! Whether the element answers: when it does not, calls go past it, and one tries it now and then.

use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// What is known of the element.
#[derive(Debug)]
pub(super) struct Silence {
    /// Requests in a row after which it is taken for silent.
    after: u32,
    probe_every: Duration,
    /// Requests by way of it that nobody answered since anything came that way.
    unanswered: u32,
    /// When it is tried next, while it is silent.
    probe_at: Option<Instant>,
}

impl Silence {
    pub(super) const fn new(after: u32, probe_every: Duration) -> Self {
        Self { after, probe_every, unanswered: 0, probe_at: None }
    }

    /// Something has come by way of it.
    pub(super) const fn heard(&mut self) {
        self.unanswered = 0;
        self.probe_at = None;
    }

    /// Nobody answered a request by way of it; whether that makes it silent.
    pub(super) fn missed(&mut self, now: Instant) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        let silent = self.unanswered >= self.after && self.probe_at.is_none();
        if silent && !mutant::on(Mutant::CloneSilenceUnnoticed) {
            self.probe_at = Some(now + self.probe_every);
        }
        silent
    }

    /// Whether a call goes by way of it: always while it answers, now and then when it does not.
    pub(super) fn passes(&mut self, now: Instant) -> bool {
        match self.probe_at {
            None => true,
            Some(at) if at <= now && !mutant::on(Mutant::CloneSilenceForEver) => {
                self.probe_at = Some(now + self.probe_every);
                true
            }
            Some(_) => false,
        }
    }

    /// Whether it answers, as far as is known.
    pub(super) const fn answers(&self) -> bool {
        self.probe_at.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_element_is_tried_now_and_then() {
        let mut silence = Silence::new(2, Duration::from_nanos(100));
        assert!(!silence.missed(Instant(1)) && silence.passes(Instant(1)));
        assert!(silence.missed(Instant(2)) && !silence.missed(Instant(3)));
        assert!(!silence.passes(Instant(50)) && silence.passes(Instant(102)) && !silence.passes(Instant(103)));
        silence.heard();
        assert!(silence.passes(Instant(104)) && silence.answers());
    }

    #[test]
    fn answer_begins_the_count_of_misses_anew() {
        let mut silence = Silence::new(2, Duration::from_nanos(100));
        for at in [1, 2, 3] {
            assert!(!silence.missed(Instant(at)), "not two in a row");
            silence.heard();
        }
        assert!(!silence.missed(Instant(4)) && silence.missed(Instant(5)));
    }
}
