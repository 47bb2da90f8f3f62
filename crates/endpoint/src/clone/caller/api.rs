//! Interface of a clone caller: configuration, calls, events and counters.

use std::time::Duration;

use bytes::Bytes;

use super::super::{CloneOptions, HedgeBudgetConfig, KnownLoads, Pool};

/// Configuration of a clone caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CloneCallerConfig {
    /// Endpoint of the caller.
    pub endpoint: u32,
    /// Incarnation of this process.
    pub incarnation: u32,
    /// Pool of servers.
    pub pool: Pool,
    /// Random seed for the choice of groups, filter tables and servers.
    pub seed: u64,
    /// Sequence number of the last call before the first one. A random number is harder to guess.
    pub last_call: u32,
    /// Budgets of extra requests; each call names one by its index ([`CloneOptions::budget`]). Without a budget no
    /// extra requests are sent.
    pub budgets: Vec<HedgeBudgetConfig>,
    /// Shortest time after which an unanswered call is repeated; it grows with the measured latency, and doubles with
    /// each repeat.
    pub retry_min: Duration,
    /// Longest time after which an unanswered call is repeated.
    pub retry_max: Duration,
    /// Filter tables of the element: IDX is drawn below this number.
    pub filter_tables: u8,
    /// Consecutive unanswered requests through the element after which calls go past it.
    pub silent_after: u32,
    /// Interval at which one call probes a silent element.
    pub probe_every: Duration,
    /// What the caller knows of the servers' loads.
    pub known_loads: KnownLoads,
    /// Age from which on a server's report of its load counts no longer.
    pub report_age_max: Duration,
    /// Whether clones and hedges are sent while all servers are slow. Other systems do so; comparisons need it.
    pub extra_while_slow: bool,
    /// Least number of calls with one policy that are measured together, of automatic calls.
    pub policy_period: u32,
    /// Whether the element holds hedges: it sends a request to another server after the delay that the request names.
    pub element_holds: bool,
    /// Most calls in progress.
    pub calls_max: usize,
}

impl CloneCallerConfig {
    /// Creates a configuration with defaults that suit most callers.
    #[must_use]
    pub fn new(endpoint: u32, incarnation: u32, pool: Pool, seed: u64) -> Self {
        Self {
            endpoint,
            incarnation,
            pool,
            seed,
            last_call: seed as u32,
            budgets: vec![HedgeBudgetConfig::default()],
            retry_min: Duration::from_millis(2),
            retry_max: Duration::from_secs(1),
            filter_tables: 2,
            silent_after: 3,
            probe_every: Duration::from_millis(100),
            known_loads: KnownLoads::default(),
            report_age_max: Duration::from_millis(100),
            extra_while_slow: false,
            policy_period: 400,
            element_holds: false,
            calls_max: 1 << 20,
        }
    }
}

/// Number of a call at its caller: the `seq` of its frames. A later call may reuse the number of an ended one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloneCallId(pub u32);

/// Call to start.
#[derive(Debug, Clone)]
pub struct CloneCall {
    /// Request, at most [`super::super::MESSAGE_MAX`] bytes.
    pub request: Bytes,
    /// Options of the call.
    pub options: CloneOptions,
}

/// Error of starting a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Too many calls are in progress.
    #[error("too many calls in progress: {0}, the most allowed")]
    CallsFull(usize),
    /// The request is too long for frames.
    #[error("the request has {0} bytes, at most {max} travel in frames", max = super::super::MESSAGE_MAX)]
    TooLong(usize),
    /// The pool has no servers.
    #[error("the pool has no servers")]
    NoServers,
}

/// Answer of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneAnswer {
    /// Complete reply of one server.
    pub reply: Bytes,
    /// Endpoint of the server that answered.
    pub server: u32,
    /// Time since the call was started.
    pub latency: Duration,
    /// Whether the element cloned the request.
    pub cloned: bool,
    /// Requests sent for the call, clones included, as far as the caller knows.
    pub requests: u32,
}

/// Failure of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloneFailure {
    /// No server answered before the deadline.
    #[error("no server answered within {} ms; the request was sent {requests} times", .after.as_millis())]
    Deadline {
        /// Deadline of the call.
        after: Duration,
        /// Number of requests sent.
        requests: u32,
    },
}

/// End of a call; each call ends exactly once, unless it is cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The call is answered.
    Answered(CloneCallId, CloneAnswer),
    /// The call failed.
    Failed(CloneCallId, CloneFailure),
}

/// Extra requests that a clone caller did not send, or did not allow to be cloned, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefusedExtra {
    /// The hedge budget was spent.
    pub budget: u64,
    /// The hedge budget had less than the cost of the call left.
    pub dear: u64,
    /// All servers were slow together.
    pub outage: u64,
    /// A server whose answer was a failed answer wished no further attempt of the call (`grpc-retry-pushback-ms`).
    pub pushback: u64,
    /// The element sent the request to one server: the other was busy, or there was none.
    pub busy: u64,
    /// The call is not idempotent. Counts the calls whose options ask for extra requests.
    pub not_idempotent: u64,
}

impl RefusedExtra {
    /// Number of refused extra requests.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.budget + self.dear + self.outage + self.pushback + self.busy + self.not_idempotent
    }
}

impl std::ops::Add for RefusedExtra {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            budget: self.budget + other.budget,
            dear: self.dear + other.dear,
            outage: self.outage + other.outage,
            pushback: self.pushback + other.pushback,
            busy: self.busy + other.busy,
            not_idempotent: self.not_idempotent + other.not_idempotent,
        }
    }
}

/// Counters of a clone caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneCallerStats {
    /// Calls started.
    pub calls: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls failed.
    pub failed: u64,
    /// Calls whose answer reported a clone by the element, sent at once.
    pub cloned: u64,
    /// Second requests of C-Clone.
    pub second_requests: u64,
    /// Requests repeated because no answer came, to another server.
    pub repeated: u64,
    /// Requests repeated to a server that works on the call: it executes the call once.
    pub reminded: u64,
    /// Requests sent because the answer took long.
    pub hedged: u64,
    /// Requests that the element held, and sent because the answer took long; calls whose answer reported one.
    pub hedged_by_element: u64,
    /// Requests sent because of a failed answer.
    pub after_failed: u64,
    /// Extra requests that were not sent, or not allowed to be cloned.
    pub refused: RefusedExtra,
    /// Answers to calls that were answered already.
    pub redundant: u64,
    /// Failures that were set aside for a better answer of another server.
    pub set_aside: u64,
    /// Reports of servers that they work on a call.
    pub working: u64,
    /// Cancellations sent because a call was answered by another server, or cancelled.
    pub cancelled: u64,
    /// Times that the element was found silent and calls began to go past it.
    pub silent: u64,
    /// Invalid frames: forged, damaged, or of another incarnation.
    pub ignored: u64,
    /// Frames sent.
    pub frames: u64,
}

impl CloneCallerStats {
    /// Number of extra requests: sent by the caller beyond one for each call, or made by the element.
    #[must_use]
    pub const fn extra(&self) -> u64 {
        self.cloned
            + self.second_requests
            + self.repeated
            + self.reminded
            + self.hedged
            + self.hedged_by_element
            + self.after_failed
    }
}
