//! What a worker is told and what it tells: its bounds, work, events.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
use pathcall_wire::delegate::U24;

use super::super::{Context, NodeId, RequestId};

/// Which waiting request is worked on next (DPC §7.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// That of the call of which the fewest were begun since it has requests here, so that a call with many leaves a share
    /// to each of the others; of one call the one that came first.
    #[default]
    Share,
    /// The one that came first.
    Arrival,
    /// That of the oldest call.
    OldestCall,
}

/// How a worker works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerConfig {
    /// This node's id, another one after every start.
    pub node: NodeId,
    /// Where this node listens.
    pub address: SocketAddr,
    /// Which request is next.
    pub order: Order,
    /// A message is held for the manifest at most for this long.
    pub flush: Duration,
    /// Servers that a request goes through at most: a cycle ends there.
    pub depth_max: u8,
    /// Requests that are known at one time at most, those included that are done and may be asked about.
    pub executions_max: usize,
    /// Bytes of requests that wait to be worked on at most; what would make it more is refused.
    pub queued_max: usize,
    /// For how long it is remembered that a call was aborted, so that late requests of it are not begun.
    pub aborted_for: Duration,
    /// A handler that does nothing for so long counts as stalled (§4.4.5).
    pub stall: Option<Duration>,
}

impl WorkerConfig {
    /// Usual bounds.
    #[must_use]
    pub const fn new(node: NodeId, address: SocketAddr) -> Self {
        Self {
            node,
            address,
            order: Order::Share,
            flush: Duration::from_millis(1),
            depth_max: 64,
            executions_max: 1 << 20,
            queued_max: 1 << 30,
            aborted_for: Duration::from_secs(33),
            stall: None,
        }
    }
}

/// A request for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Its execution: names it in all that follows.
    pub execution: Context,
    /// The call.
    pub call: Context,
    /// Which request of it.
    pub request: RequestId,
    /// What is asked for.
    pub payload: Bytes,
    /// By when it has to be done.
    pub deadline: Option<Instant>,
    /// Servers that it went through before.
    pub depth: u8,
    /// Whether effect and [`super::record::Record`] have to become durable together before [`super::Worker::release`].
    pub once: bool,
    /// Whether the call is traced.
    pub traced: bool,
}

/// Why work on a request should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// Its caller says so.
    Caller,
    /// Its caller has not asked for it for so long that it must be gone, or have given the call up.
    Orphaned,
    /// The call's time is over.
    Deadline,
    /// The call has ended, or failed.
    Ended,
    /// The caller can't be reached.
    Unreachable,
}

/// What a worker tells its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// Stop working on this: nothing that it sends goes anywhere any more.
    Aborted {
        /// Which.
        execution: Context,
        /// Why.
        reason: AbortReason,
    },
    /// Replies that waited for a grant have left.
    Granted {
        /// Whose.
        execution: Context,
    },
    /// The record of this request will not be needed any more: its call has ended, and all calls of its caller
    /// before it. Who deletes records stores the call's id of the last one, for [`super::Worker::restore_ended`].
    Forget {
        /// The call.
        call: Context,
        /// Which request.
        request: RequestId,
    },
}

/// Why something can't be done for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// It was aborted, has failed, is finished or was never there.
    #[error("the request is not worked on any more")]
    Gone,
    /// The call goes through too many servers; it has failed now.
    #[error("the call went through {0} servers, as many as it may: is there a cycle?")]
    Depth(u8),
    /// No more fit in a manifest; it has failed now.
    #[error("a request leads to at most {} requests and as many replies", U24::MAX)]
    TooMany,
}

/// What a worker has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerStats {
    /// Requests accepted.
    pub requests: u64,
    /// Requests that came again and were not worked on again.
    pub repeats: u64,
    /// Messages that were refused: from another node than they say, or of no meaning here.
    pub refused: u64,
    /// Requests that were not begun because their call was aborted.
    pub late: u64,
    /// Responses without content that were sent.
    pub nulls: u64,
    /// Requests whose work was aborted.
    pub aborted: u64,
    /// Pongs sent.
    pub pongs: u64,
}
