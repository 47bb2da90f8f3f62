//! What a server's queue is told and what it tells.

use std::time::Duration;

use bytes::Bytes;

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The application.
    pub gaid: u32,
    /// This endpoint.
    pub endpoint: u32,
    /// This process's incarnation.
    pub incarnation: u32,
    /// This server's place in the pool.
    pub sid: u16,
    /// Requests worked on at one time for which it counts as idle: who is beyond counts as one that waits.
    pub workers: usize,
    /// Requests worked on at one time at most, `workers` or more.
    pub begun_max: usize,
    /// Requests that wait at most; others are dropped, and asked again by their callers.
    pub queue_max: usize,
    /// Requests that have come in part at most; the oldest gives way.
    pub partial_max: usize,
    /// Bytes of requests that wait or have come in part, at most.
    pub memory_max: usize,
    /// A request that has come in part is forgotten after this time.
    pub partial_for: Duration,
    /// Requests of the past that are remembered: a late copy of one is not worked on again.
    pub remembered: usize,
}

impl WorkerConfig {
    /// What suits most servers.
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

/// A request that is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// A request to be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// For [`super::Worker::finish`].
    pub id: WorkId,
    /// Who asks.
    pub caller: u32,
    /// Time it has waited.
    pub waited: Duration,
    /// What is asked.
    pub request: Bytes,
}

/// What a server's queue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerStats {
    /// Requests that came whole and were queued.
    pub queued: u64,
    /// Of them, clones.
    pub clones: u64,
    /// Clones that found others waiting and were dropped (NetClone §3.4).
    pub clones_dropped: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Of them, those that could not be done, and that another server may do.
    pub failed: u64,
    /// Answers that said that nobody waits (NetClone §5.6.1).
    pub idle: u64,
    /// Copies of requests that were there or had been.
    pub repeats: u64,
    /// Requests that were cancelled before they were begun.
    pub cancelled: u64,
    /// Times that a caller was told that its request is worked on.
    pub working: u64,
    /// Requests that there was no room for.
    pub overflowed: u64,
    /// Requests that came in part and were forgotten.
    pub expired: u64,
    /// Frames of no meaning here: forged, damaged, of another incarnation.
    pub ignored: u64,
}

/// What a failure says of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Nothing: the request is what is wrong. Another server's answer is better if one is on its way, that is, if the
    /// request was cloned; nobody else is asked for one.
    Request,
    /// Nothing, and the method's policy leaves the call to others all the same (gRPC A6, `nonFatalStatusCodes`).
    Policy,
    /// It is the server that could not do it. However soon it says so, it is not taken for idle.
    Server,
}

/// Why a request can't be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// It is not worked on, or not any more.
    #[error("nobody works on request {}", .0.0)]
    Unknown(WorkId),
    /// The answer is too long for frames.
    #[error("the answer has {0} bytes, at most {max} travel in frames", max = super::super::MESSAGE_MAX)]
    TooLong(usize),
}
