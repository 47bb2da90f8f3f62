//! Interface of a delegate caller: options, events, failures and counters.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::delegate::U24;

use super::super::shards::shard_of_call;
use super::super::{ContextId, NodeId, PAYLOAD_MAX, Status, gc_time};
use super::trace::CallTree;

/// Configuration of a delegate caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegateCallerConfig {
    /// Id of this node, new after every start.
    pub node: NodeId,
    /// Address at which this node listens and gets replies (DPC §4.2).
    pub address: SocketAddr,
    /// Most calls in progress.
    pub calls_max: usize,
    /// Most incomplete requests of one call, and most servers known of one.
    pub requests_max: u32,
    /// Index of this shard of the node, and number of shards: the calls get ids that belong to this shard, see
    /// [`shard_of_call`].
    pub shard: (usize, usize),
}

impl DelegateCallerConfig {
    /// Usual [`Self::requests_max`].
    pub const REQUESTS_MAX: u32 = 1 << 14;

    /// Creates a configuration with the usual limits.
    #[must_use]
    pub const fn new(node: NodeId, address: SocketAddr) -> Self {
        Self { node, address, calls_max: 1 << 20, requests_max: Self::REQUESTS_MAX, shard: (0, 1) }
    }

    /// Returns whether a call with this id belongs to the shard.
    pub(super) fn is_of_shard(&self, call: ContextId) -> bool {
        let (shard, shards) = self.shard;
        shard_of_call(call, shards) == shard
    }
}

/// Options of a delegated call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// Pause before the first round of pings, and between two rounds. Most calls should take less (DPC §4.4.3).
    pub ping_period: Duration,
    /// Time without confirmation of a request after which the call fails; several ping periods, at most
    /// [`CallOptions::TIMEOUT_MAX`].
    pub timeout: Duration,
    /// Time after which the call fails.
    pub deadline: Option<Duration>,
    /// Replies that each server may send before the application takes any; a power of two, at most 2^15.
    pub credit: u32,
    /// Whether servers report spans for a trace (§3.5.2).
    pub traced: bool,
    /// Whether servers record their part, so that the call can be repeated until it is complete (§3.5.3).
    pub once: bool,
}

impl CallOptions {
    /// Longest timeout: servers remember requests for at least 1.5 timeouts, and 2^15 ms at most.
    pub const TIMEOUT_MAX: Duration = Duration::from_millis((1 << 15) * 2 / 3);

    /// Code of the time for which servers remember requests: 1.5 timeouts, to allow for clocks that differ
    /// (DPC §4.4.4).
    pub(super) fn gc_code(&self) -> u8 {
        let time = self.timeout.saturating_mul(3) / 2;
        (0..15).find(|code| gc_time(*code) >= time).unwrap_or(15)
    }

    pub(super) fn credit_code(&self) -> u8 {
        self.credit.clamp(1, 1 << 15).ilog2() as u8
    }
}

/// Setters, one for each field.
impl CallOptions {
    /// Creates options with the defaults.
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

/// Failure of a delegated call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// A server reported a failure.
    #[error("{}", .0.message)]
    Server(Status),
    /// A request was not confirmed to be in progress.
    #[error(
        "{} did not confirm a request for {millis} ms: has it or the connection to it failed?", server_name(*.server)
    )]
    Unconfirmed {
        /// Server of the request, if it is known.
        server: Option<SocketAddr>,
        /// Timeout of the call.
        millis: u64,
    },
    /// A request is done, but one of its messages did not arrive.
    #[error("a reply of {} has not arrived for {millis} ms: has the connection to it failed?", server_name(*.server))]
    Lost {
        /// Server that sent the reply, if it is known.
        server: Option<SocketAddr>,
        /// Timeout of the call.
        millis: u64,
    },
    /// The first server is unreachable.
    #[error("nothing listens at {0}")]
    Unreachable(SocketAddr),
    /// A server delegated a request to a server that is unreachable.
    #[error("the call was delegated to {0}, where nothing listens")]
    DelegatedNowhere(SocketAddr),
    /// The call exceeded its deadline.
    #[error("the call exceeded its deadline")]
    Deadline,
    /// A manifest announces more requests than a call may have.
    #[error("the call has more than {0} unfinished requests")]
    TooLarge(u32),
}

impl CallFailure {
    /// Server that the failure names, if it names one.
    pub fn server_mut(&mut self) -> Option<&mut SocketAddr> {
        match self {
            Self::Unreachable(server) | Self::DelegatedNowhere(server) => Some(server),
            Self::Unconfirmed { server, .. } | Self::Lost { server, .. } => server.as_mut(),
            Self::Server(_) | Self::Deadline | Self::TooLarge(_) => None,
        }
    }

    /// Status of gRPC for this failure.
    #[must_use]
    pub fn status(&self) -> Status {
        let code = match self {
            Self::Server(status) => return status.clone(),
            Self::Unconfirmed { .. } | Self::Lost { .. } | Self::Unreachable(_) | Self::DelegatedNowhere(_) => {
                Status::UNAVAILABLE
            }
            Self::Deadline => Status::DEADLINE_EXCEEDED,
            Self::TooLarge(_) => Status::RESOURCE_EXHAUSTED,
        };
        Status::new(code, self.to_string())
    }

    /// Server that did not answer; `None` if it is not known or if no server is at fault.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Unconfirmed { server, .. } | Self::Lost { server, .. } => *server,
            Self::Unreachable(server) | Self::DelegatedNowhere(server) => Some(*server),
            Self::Server(_) | Self::Deadline | Self::TooLarge(_) => None,
        }
    }
}

fn server_name(server: Option<SocketAddr>) -> String {
    server.map_or_else(|| "a server".to_owned(), |address| format!("the server at {address}"))
}

/// Outcome of a delegated call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// All requests are done, and all replies have arrived.
    Complete,
    /// The call failed. Servers that still work on the call are stopped.
    Failed(CallFailure),
    /// The call was aborted by [`DelegateCaller::abort`](super::DelegateCaller::abort).
    Aborted {
        /// Whether every server has confirmed that it stopped.
        confirmed: bool,
    },
}

/// Status of a call (DPC Fig. 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Replies are missing, or may be missing.
    InProgress,
    /// The call has ended, which was reported by an event; or it was never opened.
    Ended,
}

/// Event of a caller for its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerEvent {
    /// A reply arrived.
    Reply {
        /// Call of the reply.
        call: ContextId,
        /// Context of the sender, for [`DelegateCaller::record_consumed`](super::DelegateCaller::record_consumed).
        from: Option<ContextId>,
        /// Payload of the reply.
        item: Bytes,
    },
    /// A call ended; only its trace may follow.
    Ended {
        /// Call that ended.
        call: ContextId,
        /// Outcome of the call.
        outcome: CallOutcome,
    },
    /// The trace of a call is complete.
    Trace {
        /// Traced call.
        call: ContextId,
        /// Spans of the call.
        tree: CallTree,
    },
}

/// Error of opening a call or sending a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendRequestError {
    /// The call has ended.
    #[error("the call has ended")]
    Ended,
    /// Too many calls are in progress.
    #[error("too many calls in progress: {0}, the most allowed")]
    CallsFull(usize),
    /// The call has too many requests.
    #[error("a caller sends at most {} requests in one call", U24::MAX)]
    TooMany,
    /// The request has more bytes than a message may have.
    #[error("a request of {0} bytes is too long, at most {PAYLOAD_MAX} are sent")]
    TooLong(usize),
}

/// Counters of a delegate caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelegateCallerStats {
    /// Calls that completed.
    pub complete: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were aborted.
    pub aborted: u64,
    /// Pings sent.
    pub pings: u64,
    /// Messages ignored: of ended calls, repeated, or forged.
    pub ignored: u64,
}

impl AddAssign for DelegateCallerStats {
    fn add_assign(&mut self, other: Self) {
        let Self { complete, failed, aborted, pings, ignored } = other;
        self.complete += complete;
        self.failed += failed;
        self.aborted += aborted;
        self.pings += pings;
        self.ignored += ignored;
    }
}
