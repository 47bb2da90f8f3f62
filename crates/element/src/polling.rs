//! Polling policy of the data thread: time for which it polls for frames before it waits.
//!
//! Waking a thread takes longer than processing a batch of frames. So after a batch the thread polls for a moment, as
//! long as most polls find a frame and no other thread needs the processor.

use std::time::{Duration, Instant};

/// Longest polling without a frame: a few wake-ups long. A shorter time would put the thread to sleep before a caller
/// that waits for each answer sends its next frame.
const POLL_MAX: Duration = Duration::from_micros(50);
/// Vain polls, less the successful ones, after which the thread waits at once.
const CREDIT_MAX: u32 = 8;
/// Gap between two polls that shows that another thread had the processor.
const INTERRUPTED: Duration = Duration::from_micros(100);
/// Pause of polling on a busy machine.
const PAUSE: Duration = Duration::from_millis(10);

/// Decides between polling and waiting.
#[derive(Debug)]
pub(crate) struct Polling {
    always: bool,
    credit: u32,
    /// Time of the last frame.
    found: Instant,
    last_poll: Instant,
    /// Time at which the last wait began.
    waiting: Instant,
    /// No polling before this time.
    paused_until: Instant,
}

impl Polling {
    /// Creates the policy. With `always`, the thread never waits.
    pub(crate) fn new(now: Instant, always: bool) -> Self {
        Self { always, credit: CREDIT_MAX, found: now, last_poll: now, waiting: now, paused_until: now }
    }

    /// Records the end of a wait, by a frame or by something else.
    pub(crate) fn woken(&mut self, now: Instant, by_frame: bool) {
        self.last_poll = now;
        if by_frame {
            self.found = now;
            if self.found - self.waiting < POLL_MAX {
                self.credit = CREDIT_MAX.min(self.credit + 1);
            }
        }
    }

    /// Records that a poll found a frame.
    pub(crate) fn found(&mut self, now: Instant) {
        self.credit = CREDIT_MAX.min(self.credit + 1);
        (self.found, self.last_poll) = (now, now);
    }

    /// True if no frame came for so long that another thread may have the processor for a moment.
    pub(crate) fn is_late(&self) -> bool {
        self.last_poll - self.found > POLL_MAX
    }

    /// True to poll (again), false to wait.
    pub(crate) fn should_poll(&mut self, now: Instant) -> bool {
        if self.always {
            self.last_poll = now;
            return true;
        }
        if now - self.last_poll > INTERRUPTED {
            self.paused_until = now + PAUSE;
        } else if now - self.found > POLL_MAX {
            self.credit = self.credit.saturating_sub(1);
        }
        let polls = now >= self.paused_until && now - self.found <= POLL_MAX && self.credit > 0;
        (self.last_poll, self.waiting) = (now, now);
        polls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    #[test]
    fn thread_polls_briefly_then_waits() {
        let now = Instant::now();
        let mut polling = Polling::new(now, false);
        polling.woken(now, true);
        assert!(polling.should_poll(now));
        assert!(polling.should_poll(now + POLL_MAX));
        assert!(!polling.should_poll(now + POLL_MAX + SHORT));
    }

    #[test]
    fn vain_polls_stop_polling_and_short_wait_restarts() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        for _ in 0..CREDIT_MAX {
            polling.woken(now, true);
            assert!(polling.should_poll(now));
            now += POLL_MAX + SHORT;
            assert!(!polling.should_poll(now));
            now += Duration::from_secs(1);
        }
        polling.woken(now, true);
        assert!(!polling.should_poll(now), "polling ends after vain polls");
        polling.woken(now, true);
        assert!(polling.should_poll(now), "a short wait starts polling again");
    }

    #[test]
    fn command_wakeup_leaves_policy_unchanged() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        now += Duration::from_secs(1);
        polling.woken(now, false);
        assert!(!polling.should_poll(now));
        polling.woken(now, true);
        assert!(polling.should_poll(now));
    }

    #[test]
    fn busy_machine_pauses_polling() {
        let mut now = Instant::now();
        let mut polling = Polling::new(now, false);
        polling.woken(now, true);
        now += INTERRUPTED + SHORT;
        assert!(!polling.should_poll(now));
        polling.woken(now, true);
        assert!(!polling.should_poll(now));
        now += PAUSE;
        polling.woken(now, true);
        assert!(polling.should_poll(now));
    }

    #[test]
    fn busy_polling_thread_never_waits() {
        let now = Instant::now();
        let mut polling = Polling::new(now, true);
        assert!(polling.should_poll(now + Duration::from_secs(1)));
    }
}
