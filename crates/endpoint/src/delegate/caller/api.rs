//! What a caller is told and what it tells: options, events, failures.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::U24;

use super::super::{Context, NodeId, Status, gc_time};
use super::trace::Tree;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerConfig {
    /// This node's id, another one after every start.
    pub node: NodeId,
    /// Where this node listens: replies go there (DPC §4.2).
    pub address: SocketAddr,
    /// Calls at one time at most.
    pub calls_max: usize,
    /// Incomplete requests of one call at most, and servers that are known of one.
    pub requests_max: u32,
}

impl CallerConfig {
    /// Usual bounds.
    #[must_use]
    pub const fn new(node: NodeId, address: SocketAddr) -> Self {
        Self { node, address, calls_max: 1 << 20, requests_max: 1 << 18 }
    }
}

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// Pause between two rounds of pings, and before the first. Most calls should need less (DPC §4.4.3).
    pub ping_period: Duration,
    /// A request that nobody confirmed for so long fails the call; several ping periods, at most
    /// [`CallOptions::TIMEOUT_MAX`].
    pub timeout: Duration,
    /// The call fails after this time.
    pub deadline: Option<Duration>,
    /// Replies that each server may send before the application takes any; a power of two, at most 2^15.
    pub credit: u32,
    /// Whether servers tell what they did and when (§3.5.2).
    pub traced: bool,
    /// Whether servers record what they did, so that the call can be made again until it is complete (§3.5.3).
    pub once: bool,
}

impl CallOptions {
    /// The longest time-out: servers keep what they know for half as long again at least, and 2^15 ms at most.
    pub const TIMEOUT_MAX: Duration = Duration::from_millis((1 << 15) * 2 / 3);

    /// The code of the time for which servers keep what they know: half as long again as the time-out, for
    /// clocks that differ (DPC §4.4.4).
    pub(super) fn gc_code(&self) -> u8 {
        let time = self.timeout.saturating_mul(3) / 2;
        (0..15).find(|code| gc_time(*code) >= time).unwrap_or(15)
    }

    pub(super) fn credit_code(&self) -> u8 {
        self.credit.clamp(1, 1 << 15).ilog2() as u8
    }
}

/// Each field by a method.
impl CallOptions {
    /// Those of most calls.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ping_period: Duration::from_millis(200),
            timeout: Duration::from_secs(1),
            deadline: None,
            credit: 32,
            traced: false,
            once: false,
        }
    }

    /// Sets [`Self::ping_period`].
    #[must_use]
    pub const fn ping_period(mut self, ping_period: Duration) -> Self {
        self.ping_period = ping_period;
        self
    }

    /// Sets [`Self::timeout`].
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`Self::deadline`].
    #[must_use]
    pub const fn deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets [`Self::credit`].
    #[must_use]
    pub const fn credit(mut self, credit: u32) -> Self {
        self.credit = credit;
        self
    }

    /// Sets [`Self::traced`].
    #[must_use]
    pub const fn traced(mut self, traced: bool) -> Self {
        self.traced = traced;
        self
    }

    /// Sets [`Self::once`].
    #[must_use]
    pub const fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// A server said so.
    #[error("{}", .0.message)]
    Server(Status),
    /// Nobody confirmed that a request is worked on.
    #[error(
        "a request was not confirmed to be in progress for {millis} ms: has a server or the connection to it failed?"
    )]
    Unconfirmed {
        /// The call's time-out.
        millis: u64,
    },
    /// A request is done but what it led to did not come.
    #[error("a reply was sent but has not come for {millis} ms: has a connection failed?")]
    Lost {
        /// The call's time-out.
        millis: u64,
    },
    /// The first server is not there.
    #[error("nobody is at {0}")]
    Unreachable(SocketAddr),
    /// It took too long.
    #[error("the call took longer than it may")]
    Deadline,
    /// A manifest announces more than a call may have.
    #[error("the call has more than {0} requests that are not done")]
    TooLarge(u32),
}

impl CallFailure {
    /// The failure as a status of gRPC.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Server(status) => return status.clone(),
            Self::Unconfirmed { .. } | Self::Lost { .. } | Self::Unreachable(_) => Status::UNAVAILABLE,
            Self::Deadline => Status::DEADLINE_EXCEEDED,
            Self::TooLarge(_) => Status::RESOURCE_EXHAUSTED,
        };
        Status::new(code, self.to_string())
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All requests are done, and all their replies are there.
    Complete,
    /// It failed. Servers that still work on it are told to stop.
    Failed(CallFailure),
    /// It was aborted by [`Caller::abort`](super::Caller::abort). `confirmed`: every server has said that it has
    /// stopped.
    Aborted {
        /// Whether no server works on it any more, for sure.
        confirmed: bool,
    },
}

/// Fig. 3.1's status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Replies are missing, or it is not known whether there are any.
    InProgress,
    /// The call has ended, and its end was an event; or it was never opened.
    Ended,
}

/// What the caller tells its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerEvent {
    /// A reply.
    Reply {
        /// Of which call.
        call: Context,
        /// Who sent it, for [`Caller::consumed`](super::Caller::consumed).
        from: Option<Context>,
        /// The item.
        item: Bytes,
    },
    /// The call's end; nothing comes after it, but its trace.
    Ended {
        /// Which call.
        call: Context,
        /// How.
        outcome: Outcome,
    },
    /// What servers did for a traced call.
    Trace {
        /// Which call.
        call: Context,
        /// Who did what, when.
        tree: Tree,
    },
}

/// Why a request can't be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The call has ended.
    #[error("the call has ended")]
    Ended,
    /// There are too many calls.
    #[error("{0} calls are in progress, as many as may be")]
    CallsFull(usize),
    /// The call has too many requests.
    #[error("a call has at most {} requests of its caller", U24::MAX)]
    TooMany,
}

/// What a caller has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerStats {
    /// Calls that ended complete.
    pub complete: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were aborted.
    pub aborted: u64,
    /// Pings sent.
    pub pings: u64,
    /// Messages of no meaning here: of calls that have ended, repeats, forged ones.
    pub ignored: u64,
}
