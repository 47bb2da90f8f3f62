//! Thread of a host that processes one frame after the other.

use std::time::Duration;

use pathcall_wire::Instant;

/// Thread that processes one frame after the other; the value is the time at which the thread is idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SerialThread(pub(super) Instant);

impl SerialThread {
    /// Adds a frame that arrives at `at`; returns the time at which the thread has processed it.
    pub(super) fn schedule(&mut self, at: Instant, cost: Duration) -> Instant {
        self.0 = self.0.max(at) + cost;
        self.0
    }
}
