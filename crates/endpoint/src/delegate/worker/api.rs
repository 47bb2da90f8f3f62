//! Interface of a delegate worker: configuration, requests, events and counters.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
use pathcall_wire::delegate::U24;

use super::super::{ContextId, NodeId, PAYLOAD_MAX, RequestId};

/// Order in which waiting requests are processed (DPC §7.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestOrder {
    /// Fair share among calls: the next request is one of the call with the fewest begun requests, counted since the
    /// call has requests at this server. Within a call: order of arrival.
    #[default]
    FairShare,
    /// Order of arrival.
    Arrival,
    /// Oldest call first.
    OldestCall,
}

/// Configuration of a delegate worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegateWorkerConfig {
    /// Id of this node, new after every start.
    pub node: NodeId,
    /// Address at which this node listens.
    pub address: SocketAddr,
    /// Order of waiting requests.
    pub order: RequestOrder,
    /// Longest time for which a message is held for the manifest.
    pub flush: Duration,
    /// Most servers that a request passes through, which ends cycles.
    pub depth_max: u8,
    /// Most requests in memory, including completed ones that may be asked about.
    pub executions_max: usize,
    /// Most bytes of waiting requests; a request that would exceed them is refused.
    pub queued_max: usize,
    /// Time for which an aborted call is remembered, so that its late requests are not begun.
    pub aborted_for: Duration,
    /// Time of inactivity after which a handler counts as stalled (§4.4.5).
    pub stall: Option<Duration>,
}

impl DelegateWorkerConfig {
    /// Creates a configuration with the usual limits.
    #[must_use]
    pub const fn new(node: NodeId, address: SocketAddr) -> Self {
        Self {
            node,
            address,
            order: RequestOrder::FairShare,
            flush: Duration::from_millis(1),
            depth_max: 64,
            executions_max: 1 << 20,
            queued_max: 1 << 30,
            aborted_for: Duration::from_secs(33),
            stall: None,
        }
    }
}

/// Delegated request for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedRequest {
    /// Context of its execution, which identifies it in all further calls.
    pub execution: ContextId,
    /// Call of the request.
    pub call: ContextId,
    /// Id of the request within the call.
    pub request: RequestId,
    /// Payload of the request.
    pub payload: Bytes,
    /// Deadline of the request.
    pub deadline: Option<Instant>,
    /// Number of servers that it passed through before.
    pub depth: u8,
    /// Whether effect and [`super::record::RequestRecord`] have to become durable together before
    /// [`super::DelegateWorker::release`].
    pub once: bool,
    /// Whether the call is traced.
    pub traced: bool,
}

/// Reason for aborting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// The caller aborted it.
    Caller,
    /// The caller has not asked for it for so long that it must be gone, or have abandoned the call.
    Orphaned,
    /// The deadline has passed.
    Deadline,
    /// The call has ended, or failed.
    Ended,
    /// The caller is unreachable.
    Unreachable,
}

/// Event of a worker for its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A request was aborted: messages that its handler still sends are discarded.
    Aborted {
        /// Execution of the request.
        execution: ContextId,
        /// Reason for the abort.
        reason: AbortReason,
    },
    /// Replies that waited for a grant have left.
    Granted {
        /// Execution of the request.
        execution: ContextId,
    },
    /// The record of a request is obsolete: its call has ended, and so have all earlier calls of its caller. The
    /// application that deletes the record stores the id of the last such call, for
    /// [`super::DelegateWorker::restore_ended`].
    RecordObsolete {
        /// Call of the request.
        call: ContextId,
        /// Id of the request.
        request: RequestId,
    },
}

/// Error of an action of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionError {
    /// The request was aborted, has failed, is finished, or never existed.
    #[error("the request is no longer in progress")]
    Ended,
    /// The call passes through too many servers; it has failed now.
    #[error("the call passed through {0} servers, the most allowed: is there a cycle?")]
    Depth(u8),
    /// A manifest cannot count more messages; the call has failed now.
    #[error("a request leads to at most {} requests and as many replies", U24::MAX)]
    TooMany,
    /// A message of this many bytes does not fit; the call has failed now.
    #[error("a message of {0} bytes is too long, at most {PAYLOAD_MAX} are sent")]
    TooLong(usize),
}

/// Counters of a delegate worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelegateWorkerStats {
    /// Requests accepted.
    pub requests: u64,
    /// Requests that arrived again and were not begun again.
    pub repeats: u64,
    /// Messages refused: from another node than they claim, or invalid.
    pub refused: u64,
    /// Requests not begun because their call was aborted.
    pub late: u64,
    /// Responses without content that were sent.
    pub nulls: u64,
    /// Requests aborted while in progress.
    pub aborted: u64,
    /// Pongs sent.
    pub pongs: u64,
}

impl AddAssign for DelegateWorkerStats {
    fn add_assign(&mut self, other: Self) {
        let Self { requests, repeats, refused, late, nulls, aborted, pongs } = other;
        self.requests += requests;
        self.repeats += repeats;
        self.refused += refused;
        self.late += late;
        self.nulls += nulls;
        self.aborted += aborted;
        self.pongs += pongs;
    }
}
