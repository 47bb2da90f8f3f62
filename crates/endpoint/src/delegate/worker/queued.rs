//! Counts of the requests that wait, the memory that they take, and the turns of their calls.
//!
//! Turns are those of start-time fair queueing: the requests of a call have turns in a row, beginning with the one that is
//! being worked on when its first comes, and of two requests that of the earlier turn is next.

use bytes::Bytes;

use super::super::table::ByContext;
use super::execution::{Execution, Phase};

/// The requests that wait for somebody to work on them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Queued {
    pub(super) requests: usize,
    /// Bytes of what they ask.
    pub(super) bytes: usize,
    /// The turn of the last request that was begun, while any waits.
    turn: u64,
    /// Of each call that has any: how many, and the turn of the last.
    calls: ByContext<(usize, u64)>,
}

impl Queued {
    /// A request waits; its turn.
    pub(super) fn enters(&mut self, execution: &Execution) -> u64 {
        self.requests += 1;
        self.bytes += execution.payload.len();
        let (waiting, last) = self.calls.entry(execution.call).or_insert((0, self.turn));
        *waiting += 1;
        *last = (*last).max(self.turn) + 1;
        *last
    }

    /// A request of this turn is begun.
    pub(super) fn begins(&mut self, turn: u64) {
        self.turn = self.turn.max(turn);
    }

    /// A request waits no more, if it did; what it asks.
    pub(super) fn leaves(&mut self, execution: &mut Execution) -> Bytes {
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
            self.turn = 0;
        }
        payload
    }
}
