//! What a coordinator is told, and what it says of itself.

use std::time::Duration;

use pathcall_endpoint::clone::Pool;

/// Who coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// The servers.
    pub pool: Pool,
    /// What frames say that they came by: not 0.
    pub switch_id: u16,
    /// Requests that a server works on at one time.
    pub workers: usize,
    /// Requests that wait at most; others are dropped, and asked again by their callers.
    pub queue_max: usize,
    /// A request that was not answered for so long is taken for lost.
    pub lost_after: Duration,
    /// Servers are drawn from it.
    pub seed: u64,
}

/// What a coordinator has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoordinatorStats {
    /// Requests that came.
    pub requests: u64,
    /// Requests that went to two servers.
    pub cloned: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Requests that there was no room for.
    pub overflowed: u64,
    /// Second answers: they went no further.
    pub redundant: u64,
    /// Requests that were taken for lost.
    pub lost: u64,
    /// Frames of no meaning here.
    pub ignored: u64,
}
