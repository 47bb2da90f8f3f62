//! Interface of a server's request queue: configuration, requests and counters.

use std::time::Duration;

use bytes::Bytes;

/// Configuration of a server's request queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneWorkerConfig {
    /// Id of the application.
    pub gaid: u32,
    /// Endpoint of the server.
    pub endpoint: u32,
    /// Incarnation of this process.
    pub incarnation: u32,
    /// Index of this server in the pool.
    pub sid: u16,
    /// Requests in progress up to which the server counts as idle; those beyond count as waiting.
    pub workers: usize,
    /// Most requests in progress, at least `workers`.
    pub begun_max: usize,
    /// Most waiting requests; further ones are dropped, and repeated by their callers.
    pub queue_max: usize,
    /// Most partial requests; another one evicts the oldest.
    pub partial_max: usize,
    /// Most bytes of waiting and partial requests.
    pub memory_max: usize,
    /// Time after which a partial request is dropped.
    pub partial_for: Duration,
    /// Completed requests that are remembered: their late copies are ignored.
    pub remembered: usize,
}

impl CloneWorkerConfig {
    /// Creates a configuration with defaults that suit most servers.
    #[must_use]
    pub const fn new(gaid: u32, endpoint: u32, incarnation: u32, sid: u16, workers: usize) -> Self {
        Self {
            gaid,
            endpoint,
            incarnation,
            sid,
            workers,
            begun_max: workers,
            queue_max: 1 << 14,
            partial_max: 1 << 10,
            memory_max: 256 << 20,
            partial_for: Duration::from_secs(1),
            remembered: 1 << 12,
        }
    }
}

/// Id of a request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolRequestId(pub u64);

/// Request to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRequest {
    /// Id for [`super::CloneWorker::finish`].
    pub id: PoolRequestId,
    /// Endpoint of the caller.
    pub caller: u32,
    /// Time that the request waited.
    pub waited: Duration,
    /// Payload of the request.
    pub request: Bytes,
}

/// Counters of a server's request queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneWorkerStats {
    /// Complete requests that were queued.
    pub queued: u64,
    /// Clones among the queued requests.
    pub clones: u64,
    /// Clones dropped because other requests waited (NetClone §3.4).
    pub clones_dropped: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests answered with a failure that another server may avoid.
    pub failed: u64,
    /// Answers that reported an empty queue (NetClone §5.6.1).
    pub idle: u64,
    /// Copies of requests that are in progress or completed.
    pub repeats: u64,
    /// Requests cancelled before they began.
    pub cancelled: u64,
    /// Reports to callers that their request is in progress.
    pub working: u64,
    /// Requests dropped because the queue or its memory was full.
    pub overflowed: u64,
    /// Partial requests dropped.
    pub expired: u64,
    /// Invalid frames: forged, damaged, or of another incarnation.
    pub ignored: u64,
}

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The request is invalid. Another server's answer is preferred if the request was cloned; no further server is
    /// asked.
    Request,
    /// The method's policy lets other servers try (gRPC A6, `nonFatalStatusCodes`), although this server is healthy.
    Policy,
    /// The server could not process the request. It does not count as idle, however soon it failed.
    Server,
}

/// Error of answering a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// The request is not in progress.
    #[error("request {} is not in progress", .0.0)]
    Unknown(PoolRequestId),
    /// The answer is too long for frames.
    #[error("the answer has {0} bytes, at most {max} travel in frames", max = super::super::MESSAGE_MAX)]
    TooLong(usize),
}
