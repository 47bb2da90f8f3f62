//! Accounting of waiting requests: their number, memory and fair shares.
//!
//! Shares follow start-time fair queueing: the requests of a call get consecutive virtual times, beginning with the
//! current one when its first request arrives; the request with the earliest virtual time is next.

use bytes::Bytes;

use super::super::context_map::ContextMap;
use super::execution::{Execution, Phase};

/// Accounting of the requests that wait to be processed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct QueueAccounting {
    pub(super) requests: usize,
    /// Bytes of their payloads.
    pub(super) bytes: usize,
    /// Virtual time of the last request that was begun, while any waits.
    virtual_time: u64,
    /// Number of waiting requests of each call, and the virtual time of its last one.
    calls: ContextMap<(usize, u64)>,
}

impl QueueAccounting {
    /// Adds a waiting request; returns its virtual time.
    pub(super) fn add(&mut self, execution: &Execution) -> u64 {
        self.requests += 1;
        self.bytes += execution.payload.len();
        let (waiting, last) = self.calls.entry(execution.call).or_insert((0, self.virtual_time));
        *waiting += 1;
        *last = (*last).max(self.virtual_time) + 1;
        *last
    }

    /// Advances the virtual time to that of a request that is begun.
    pub(super) fn advance_to(&mut self, virtual_time: u64) {
        self.virtual_time = self.virtual_time.max(virtual_time);
    }

    /// Removes a request if it waits; returns its payload.
    pub(super) fn remove(&mut self, execution: &mut Execution) -> Bytes {
        if execution.phase != Phase::Queued {
            return Bytes::new();
        }
        let payload = std::mem::take(&mut execution.payload);
        self.requests -= 1;
        self.bytes -= payload.len();
        if let Some((waiting, _)) = self.calls.get_mut(&execution.call) {
            *waiting -= 1;
            if *waiting == 0 {
                self.calls.remove(&execution.call);
            }
        }
        if self.requests == 0 {
            self.virtual_time = 0;
        }
        payload
    }
}
