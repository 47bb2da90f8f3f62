//! Adaptive polling: decides whether a call polls the socket once before it waits.
//!
//! An element in the kernel of the same machine answers within the system call that sends the frame: then one poll
//! finds the answer. Elsewhere a poll costs a system call for nothing. So calls poll as long as polls succeed, and
//! occasionally afterwards, to detect that they succeed again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Calls without a poll after [`FAILED_POLLS_MAX`] failed polls.
const PAUSE_CALLS: u32 = 63;
/// Consecutive failed polls before a pause.
const FAILED_POLLS_MAX: u32 = 4;

/// Polling state of a caller, shared by all its calls. A race between calls costs at most one poll too many.
#[derive(Debug, Default)]
pub(super) struct EagerPoll {
    /// Failed polls since the last successful one.
    failed_polls: AtomicU32,
    /// Remaining calls that do not poll.
    skipped_calls: AtomicU32,
}

impl EagerPoll {
    /// Returns whether this call polls.
    pub(super) fn should_poll(&self) -> bool {
        let skipped_calls = self.skipped_calls.load(Ordering::Relaxed);
        if skipped_calls > 0 {
            self.skipped_calls.store(skipped_calls - 1, Ordering::Relaxed);
        }
        skipped_calls == 0
    }

    /// Records whether the poll found the answer.
    pub(super) fn record_result(&self, found: bool) {
        let failed_polls = if found { 0 } else { self.failed_polls.load(Ordering::Relaxed).saturating_add(1) };
        self.failed_polls.store(failed_polls, Ordering::Relaxed);
        if failed_polls >= FAILED_POLLS_MAX {
            self.skipped_calls.store(PAUSE_CALLS, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls, of `calls`, that poll.
    fn polls(eager: &EagerPoll, calls: u32, found: bool) -> u32 {
        let poll = |_: &u32| {
            let polls = eager.should_poll();
            if polls {
                eager.record_result(found);
            }
            polls
        };
        (0..calls).filter(poll).count() as u32
    }

    #[test]
    fn calls_poll_while_polls_find_answers() {
        let eager = EagerPoll::default();
        assert_eq!(polls(&eager, 1000, true), 1000);
        assert_eq!(polls(&eager, FAILED_POLLS_MAX, false), FAILED_POLLS_MAX);
        assert_eq!(polls(&eager, PAUSE_CALLS, false), 0);
        assert_eq!(polls(&eager, 2 * (PAUSE_CALLS + 1), false), 2, "one poll after each pause");
        assert_eq!(polls(&eager, 1000, true), 1000, "polls succeed again");
    }
}
