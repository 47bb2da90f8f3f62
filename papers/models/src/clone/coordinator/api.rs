//! Configuration and counters of the coordinator.

use std::time::Duration;

use pathcall_endpoint::clone::Pool;

/// Configuration of a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// Servers of the pool.
    pub pool: Pool,
    /// Switch id in the frames that the coordinator sends; not 0.
    pub switch_id: u16,
    /// Requests that a server processes at the same time.
    pub workers: usize,
    /// Maximum queue length. The coordinator drops further requests, and their callers send them again.
    pub queue_max: usize,
    /// Time after which an unanswered request counts as lost.
    pub lost_after: Duration,
    /// Seed of the random choice of servers.
    pub seed: u64,
}

/// Counters of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoordinatorStats {
    /// Requests received.
    pub requests: u64,
    /// Requests sent to two servers.
    pub cloned: u64,
    /// Requests that waited in the queue.
    pub queued: u64,
    /// Requests dropped because the queue was full.
    pub overflowed: u64,
    /// Second answers, which are not forwarded.
    pub redundant: u64,
    /// Requests counted as lost.
    pub lost: u64,
    /// Frames ignored because of their kind or content.
    pub ignored: u64,
}
