//! What a caller is told and what it tells: configuration, calls, events, counts.

use std::time::Duration;

use bytes::Bytes;

use super::super::{Budget, Options, Pool};

/// Who calls.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerConfig {
    /// This endpoint.
    pub endpoint: u32,
    /// This process's incarnation.
    pub incarnation: u32,
    /// The servers.
    pub pool: Pool,
    /// Drawn at random: groups, filter tables and servers are drawn from it.
    pub seed: u64,
    /// Number of the call before the first. Drawn at random it is harder to guess.
    pub last_call: u32,
    /// Shares of requests that may be sent beyond one for each call; a call says which it is paid from
    /// ([`Options::purse`]). What none is there for is not sent.
    pub budgets: Vec<Budget>,
    /// Shortest time after which a call that nobody answers is sent again; it grows with the latency that is
    /// measured, and doubles with each time.
    pub retry_min: Duration,
    /// Longest such time.
    pub retry_max: Duration,
    /// Filter tables of the element: IDX is drawn below this.
    pub filter_tables: u8,
    /// Requests in a row that nobody answered by way of the element, after which calls go past it.
    pub silent_after: u32,
    /// How often one call tries a silent element again.
    pub probe_every: Duration,
    /// Calls at one time at most.
    pub calls_max: usize,
}

impl CallerConfig {
    /// What suits most callers.
    #[must_use]
    pub fn new(endpoint: u32, incarnation: u32, pool: Pool, seed: u64) -> Self {
        Self {
            endpoint,
            incarnation,
            pool,
            seed,
            last_call: seed as u32,
            budgets: vec![Budget::default()],
            retry_min: Duration::from_millis(2),
            retry_max: Duration::from_secs(1),
            filter_tables: 2,
            silent_after: 3,
            probe_every: Duration::from_millis(100),
            calls_max: 1 << 20,
        }
    }
}

/// A call's number at its caller: the `seq` of its frames. One that has ended may be given to a later call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What is asked, at most [`super::super::MESSAGE_MAX`] bytes.
    pub request: Bytes,
    /// How.
    pub options: Options,
}

/// Why a call can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There are too many.
    #[error("{0} calls are in progress, as many as may be")]
    CallsFull(usize),
    /// The request is too long for frames.
    #[error("the request has {0} bytes, at most {max} travel in frames", max = super::super::MESSAGE_MAX)]
    TooLong(usize),
    /// The pool has no servers.
    #[error("the pool has no servers")]
    NoServers,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// All of it, from one server.
    pub reply: Bytes,
    /// Who answered.
    pub server: u32,
    /// Time since the call was made.
    pub latency: Duration,
    /// Whether the element had cloned the request.
    pub cloned: bool,
    /// Requests that were sent for it, clones included, as far as is known.
    pub requests: u32,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody answered in time.
    #[error("no server answered within {} ms; the request was sent {requests} times", .after.as_millis())]
    Deadline {
        /// The call's deadline.
        after: Duration,
        /// How often it was sent.
        requests: u32,
    },
}

/// What becomes of calls; each ends exactly once, unless it is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call is answered.
    Answered(CallId, Answer),
    /// A call failed.
    Failed(CallId, Failure),
}

/// What a caller has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerStats {
    /// Calls made.
    pub calls: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls whose answer said that the element had cloned them.
    pub cloned: u64,
    /// Second requests of C-Clone.
    pub twice: u64,
    /// Requests sent because nobody answered.
    pub repeated: u64,
    /// Requests sent because the answer took long, or was a failure.
    pub hedged: u64,
    /// Requests that the budget did not allow: they were not sent, or not to be cloned.
    pub refused: u64,
    /// Answers to calls that had one.
    pub redundant: u64,
    /// Failures that another server's answer may be better than.
    pub set_aside: u64,
    /// Times that a server said it was working on a call.
    pub working: u64,
    /// Words to servers that a call was answered by another one, or given up.
    pub cancelled: u64,
    /// Times that calls began to go past an element that was silent.
    pub silent: u64,
    /// Frames of no meaning here: forged, damaged, of another incarnation.
    pub ignored: u64,
    /// Frames sent.
    pub frames: u64,
}
