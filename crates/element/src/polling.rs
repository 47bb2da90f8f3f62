//! How long the data thread looks for frames before it waits for them.
//!
//! To wake a thread takes longer than to work on a batch of frames. So after a batch the thread looks
//! for the next one for a moment: as long as most looks find something, and nobody else needs the
//! processor.

use std::time::{Duration, Instant};

/// Longest look without a frame: a few wake-ups long, or a caller that waits for each answer would
/// always find the thread asleep.
const LOOK_MAX: Duration = Duration::from_micros(50);
/// Looks in vain, less those that found something, after which the thread waits at once.
const CREDIT_MAX: u32 = 8;
/// Time between two looks that tells that somebody else had the processor.
const INTERRUPTED: Duration = Duration::from_micros(100);
/// How long a busy machine is left alone.
const RESPITE: Duration = Duration::from_millis(10);

/// When to look and when to wait.
#[derive(Debug)]
pub(crate) struct Polling {
    always: bool,
    credit: u32,
    /// When there was a frame last.
    found: Instant,
    looked: Instant,
    /// When the last wait began.
    waiting: Instant,
    /// There is no looking before then.
    respite: Instant,
}

impl Polling {
    /// One that never waits, if `always`.
    pub(crate) fn new(now: Instant, always: bool) -> Self {
        Self { always, credit: CREDIT_MAX, found: now, looked: now, waiting: now, respite: now }
    }

    /// The thread was woken, by a frame or by something else.
    pub(crate) fn woken(&mut self, now: Instant, by_frame: bool) {
        self.looked = now;
        if by_frame {
            self.found = now;
            if self.found - self.waiting < LOOK_MAX {
                self.credit = CREDIT_MAX.min(self.credit + 1);
            }
        }
    }

    /// A look found a frame.
    pub(crate) fn found(&mut self, now: Instant) {
        self.credit = CREDIT_MAX.min(self.credit + 1);
        (self.found, self.looked) = (now, now);
    }

    /// Whether nothing came for so long that somebody else may have the processor for a moment.
    pub(crate) fn is_late(&self) -> bool {
        self.looked - self.found > LOOK_MAX
    }

    /// Whether to look (again) or to wait.
    pub(crate) fn looks(&mut self, now: Instant) -> bool {
        if self.always {
            self.looked = now;
            return true;
        }
        if now - self.looked > INTERRUPTED {
            self.respite = now + RESPITE;
        } else if now - self.found > LOOK_MAX {
            self.credit = self.credit.saturating_sub(1);
        }
        let looks = now >= self.respite && now - self.found <= LOOK_MAX && self.credit > 0;
        (self.looked, self.waiting) = (now, now);
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    #[test]
    fn a_thread_looks_for_a_moment_and_then_waits() {
        let now = Instant::now();
        let mut polling = Polling::new(now, false);
        polling.woken(now, true);
        assert!(polling.looks(now));
        assert!(polling.looks(now + LOOK_MAX));
        assert!(!polling.looks(now + LOOK_MAX + SHORT));
    }

    #[test]
    fn looks_in_vain_end_the_looking_and_short_waits_begin_it_again() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        for _ in 0..CREDIT_MAX {
            polling.woken(now, true);
            assert!(polling.looks(now));
            now += LOOK_MAX + SHORT;
            assert!(!polling.looks(now));
            now += Duration::from_secs(1);
        }
        polling.woken(now, true);
        assert!(!polling.looks(now), "nothing comes soon");
        polling.woken(now, true);
        assert!(polling.looks(now), "it came at once");
    }

    #[test]
    fn a_command_says_nothing_about_the_machine() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        now += Duration::from_secs(1);
        polling.woken(now, false);
        assert!(!polling.looks(now));
        polling.woken(now, true);
        assert!(polling.looks(now));
    }

    #[test]
    fn a_busy_machine_is_left_alone() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        polling.woken(now, true);
        now += INTERRUPTED + SHORT;
        assert!(!polling.looks(now));
        polling.woken(now, true);
        assert!(!polling.looks(now));
        now += RESPITE;
        polling.woken(now, true);
        assert!(polling.looks(now));
    }

    #[test]
    fn a_busy_polling_thread_never_waits() {
        let now = Instant::now();
        let mut polling = Polling::new(now, true);
        assert!(polling.looks(now + Duration::from_secs(1)));
    }
}
