//! How many requests wait, and how much memory they take.

use bytes::Bytes;

use super::execution::{Execution, Phase};

/// The requests that wait for somebody to work on them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) requests: usize,
    /// Bytes of what they ask.
    pub(super) bytes: usize,
}

impl Queued {
    /// A request waits.
    pub(super) fn enters(&mut self, execution: &Execution) {
        self.requests += 1;
        self.bytes += execution.payload.len();
    }

    /// A request waits no more, if it did; what it asks.
    pub(super) fn leaves(&mut self, execution: &mut Execution) -> Bytes {
        if execution.phase != Phase::Queued {
            return Bytes::new();
        }
        let payload = std::mem::take(&mut execution.payload);
        self.requests -= 1;
        self.bytes -= payload.len();
        payload
    }
}
