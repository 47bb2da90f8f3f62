//! State machines of *delegate* on hosts: servers delegate requests to further servers, and replies go to the caller
//! directly (DPC ch. 4).
//!
//! ```text
//!               requests                 delegated requests
//! DelegateCaller ─────────────▶ DelegateWorker ─────────────▶ DelegateWorker ─▶ …
//!    ▲ ◀── responses, manifests ──┴──────────────────────────────┘
//!    └ pings ─▶ all servers of the call ─▶ pongs
//! ```
//!
//! [`caller::DelegateCaller`] holds the calls of one node: manifests show when all replies have arrived, and pongs show
//! whether the remaining requests are in progress. [`worker::DelegateWorker`] holds the requests that a node processes.
//! Both take whole messages and `now`, and return messages (to a [`MessageOutbox`]), events and the next deadline. A
//! node that both calls and serves passes each message to the one that [`is_for_caller`] selects.
//!
//! The transport below delivers each message at most once, whole, and names the node that sent it (§4.6). It need not
//! keep the order, and may lose messages; one that certainly was not delivered is returned by `undelivered`.
//!
//! [`servers::ServerStates`] chooses a replica for a request to a service, by loads ([`load`]) and failures.
//! [`attempts::CallAttempts`] decides whether a failed call is made again. A node may have several callers and workers,
//! its [`shards`].

pub mod attempts;
pub mod caller;
pub mod context_map;
pub mod load;
mod number_set;
mod server_health;
pub mod servers;
pub mod shards;
pub mod worker;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
pub use pathcall_wire::delegate::{ContextId, NodeId, RequestId};

use crate::messages::MESSAGE_MAX;
use pathcall_wire::delegate::{DelegateKind, Encoded, HEAD_MAX, RequestFailure};

/// Sender of a message, as the transport's session identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerNode {
    /// Id of the node: messages under another id are refused.
    pub node: NodeId,
    /// Address at which it listens.
    pub address: SocketAddr,
}

/// Outbox for messages: a transport, or the simulator's network.
pub trait MessageOutbox {
    /// Sends a message: its head, then its payload.
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes);
}

/// Status of a failed call or request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Status code of gRPC, see [`Status::INTERNAL`] and others; never 0.
    pub code: u8,
    /// Error message for people.
    pub message: String,
    /// The application's details of the error, of which 8 KiB travel at most.
    pub details: Bytes,
}

impl Status {
    /// The caller cancelled the call.
    pub const CANCELLED: u8 = 1;
    /// The call exceeded its deadline.
    pub const DEADLINE_EXCEEDED: u8 = 4;
    /// A limit was exceeded.
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    /// The request was delegated too often.
    pub const FAILED_PRECONDITION: u8 = 9;
    /// A server aborted the request.
    pub const ABORTED: u8 = 10;
    /// The handler failed.
    pub const INTERNAL: u8 = 13;
    /// A server is not reachable.
    pub const UNAVAILABLE: u8 = 14;

    /// Creates a status; code 0, which is no failure, becomes [`Status::INTERNAL`].
    #[must_use]
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code: if code == 0 { Self::INTERNAL } else { code }, message: message.into(), details: Bytes::new() }
    }
}

/// Bytes of responses that the application has not taken, from which on a server waits for a grant. A response that
/// crosses this limit is sent.
const CREDIT_BYTES: usize = 512 << 10;
/// Bytes of taken responses after which the caller grants more. Half of [`CREDIT_BYTES`]: a server that waits has sent
/// enough for a grant.
const GRANT_BYTES: usize = CREDIT_BYTES / 2;

/// Longest payload of a request or a response, bytes: with any head, a message of the transport holds it.
pub const PAYLOAD_MAX: usize = MESSAGE_MAX - HEAD_MAX;

/// Returns whether a message is for the caller of the node that received it, rather than for its worker.
#[must_use]
pub fn is_for_caller(message: &[u8]) -> bool {
    use DelegateKind::{Fault, Pong, Response, Span};
    matches!(DelegateKind::of(message), Some(Response | Fault | Pong | Span))
}

/// Most bytes of an error message that are sent.
const STATUS_TEXT_MAX: usize = 1024;

/// Most bytes of a status's details; longer ones are left out by either side.
pub const STATUS_DETAILS_MAX: usize = 8 << 10;

/// Failure message of a request: its head, and its payload. `unreachable`: server that a request did not reach, if this is
/// the cause.
fn failure(call: ContextId, request: RequestId, status: &Status, unreachable: Option<SocketAddr>) -> (Encoded, Bytes) {
    let text = status_text(&status.message);
    let failure = RequestFailure { call, request, code: status.code, text: text.len() as u16, unreachable };
    let details = Some(&status.details).filter(|details| !details.is_empty() && details.len() <= STATUS_DETAILS_MAX);
    let payload = details.map(|details| [&text[..], &details[..]].concat().into());
    (failure.encode(), payload.unwrap_or(text))
}

/// Status of a failure message.
fn status_of(failure: &RequestFailure, payload: &Bytes) -> Status {
    let text = usize::from(failure.text).min(payload.len());
    let message = String::from_utf8_lossy(&payload[..text]);
    let details = payload.slice(text..);
    let details = if details.len() <= STATUS_DETAILS_MAX { details } else { Bytes::new() };
    Status { details, ..Status::new(failure.code, message) }
}

/// Text of an error or a label as it is sent.
fn status_text(message: &str) -> Bytes {
    let end = (0..=STATUS_TEXT_MAX.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    Bytes::copy_from_slice(&message.as_bytes()[..end])
}

/// Earlier of two times. It is computed after every message: an iterator over both, with the search for each inlined,
/// took a thousand instructions more.
#[inline]
#[must_use]
pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Microseconds from one time to another, as they are sent.
fn micros(from: Instant, to: Instant) -> u32 {
    u32::try_from(to.0.saturating_sub(from.0) / 1000).unwrap_or(u32::MAX)
}

/// Time for which a server remembers a request, by its code.
fn gc_time(code: u8) -> Duration {
    Duration::from_millis(1 << code.min(15))
}
