//! Period of one policy: which of its calls count.

use super::policy::ClonePolicy;

/// Policy of a call, and the period that counts it; 0: none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AssignedPolicy {
    pub(super) policy: ClonePolicy,
    pub(super) period: u32,
}

/// Many calls wait if fewer than this many times as many have ended.
const MANY_WAIT: u32 = 16;

/// Calls of one policy.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PolicyPeriod {
    pub(super) number: u32,
    pub(super) policy: ClonePolicy,
    /// Calls still to start that are not counted, then those that are.
    pub(super) settling: u32,
    pub(super) counting: u32,
    /// Calls that have started since, and how many may start until the end: while many counted calls wait, and while few do.
    pub(super) trailing: u32,
    pub(super) trailing_max: (u32, u32),
    /// Counted calls that have not ended, and those that have.
    pub(super) waiting: u32,
    pub(super) ended: u32,
    /// Whether it belongs to a round.
    pub(super) is_measured: bool,
}

impl PolicyPeriod {
    pub(super) const fn is_over(&self) -> bool {
        let many = self.waiting * MANY_WAIT > self.ended;
        let most = if many { self.trailing_max.0 } else { self.trailing_max.1 };
        self.is_trailing() && (self.waiting == 0 || self.trailing >= most)
    }

    /// Whether it only waits for counted calls; other calls then have the chosen policy again.
    pub(super) const fn is_trailing(&self) -> bool {
        self.settling == 0 && self.counting == 0
    }

    /// Starts a call; returns the number of the period if it counts the call.
    pub(super) const fn start_call(&mut self) -> u32 {
        if self.settling > 0 {
            self.settling -= 1;
        } else if self.counting > 0 {
            self.counting -= 1;
            self.waiting += 1;
            return self.number;
        } else {
            self.trailing += 1;
        }
        0
    }

    /// Ends the period with the calls that have been counted.
    pub(super) const fn stop_counting(&mut self) {
        (self.settling, self.counting, self.waiting) = (0, 0, 0);
    }
}
