//! The host's end of *delegate*: a server passes a call on to others, and what they reply goes to the caller
//! (DPC ch. 4).
//!
//! ```text
//!               requests                 delegated requests
//! Caller ─────────────────────▶ Worker ─────────────────────▶ Worker ─▶ …
//!    ▲ ◀── responses, manifests ──┴──────────────────────────────┘
//!    └ pings ─▶ all that work on it ─▶ pongs
//! ```
//!
//! [`caller::Caller`] has the calls of one node: it knows from manifests when all replies are there, and from
//! pongs whether the rest is still worked on. [`worker::Worker`] has the requests that a node works on. Both
//! take whole messages and `now`, and give messages (to an [`Outbox`]), events and the next deadline; neither
//! does I/O or reads a clock. A node that calls and works gives each message to the one that
//! [`for_caller`] names.
//!
//! Below is any transport that gives each message at most once, whole, and says which node sent it (§4.6). Order
//! does not matter and messages may be lost; a transport that knows for sure that it did not deliver one gives
//! it back by `undelivered`.

pub mod caller;
mod numbers;
pub(crate) mod table;
pub mod worker;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::Instant;
use pathcall_wire::delegate::Kind;
pub use pathcall_wire::delegate::{Context, NodeId, RequestId};

/// Who a message came from, as the transport's session says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The node's id: what it says under another's is refused.
    pub node: NodeId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Where messages are put: a transport, or the simulator's network.
pub trait Outbox {
    /// Takes a message: its head, then its payload.
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes);
}

/// Why a call or a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// A status code of gRPC, see [`Status::INTERNAL`] and others; never 0.
    pub code: u8,
    /// For people.
    pub message: String,
}

impl Status {
    /// Its caller gave it up.
    pub const CANCELLED: u8 = 1;
    /// It took longer than it may.
    pub const DEADLINE_EXCEEDED: u8 = 4;
    /// There is no room for it.
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    /// It was passed on too often.
    pub const FAILED_PRECONDITION: u8 = 9;
    /// A server gave it up.
    pub const ABORTED: u8 = 10;
    /// The handler failed.
    pub const INTERNAL: u8 = 13;
    /// A server is not there, or not any more.
    pub const UNAVAILABLE: u8 = 14;

    /// A status; code 0, which is no failure, becomes [`Status::INTERNAL`].
    #[must_use]
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code: if code == 0 { Self::INTERNAL } else { code }, message: message.into() }
    }
}

/// Whether a message is for the caller of the node that it came to, rather than for its worker.
#[must_use]
pub fn for_caller(message: &[u8]) -> bool {
    const OF_CALLER: [u8; 4] = [Kind::Response as u8, Kind::Fault as u8, Kind::Pong as u8, Kind::Span as u8];
    message.get(1).is_some_and(|kind| OF_CALLER.contains(kind))
}

/// Bytes of an error's text that travel at most.
const TEXT_MAX: usize = 1024;

/// The text of a status as it travels.
fn text(message: &str) -> Bytes {
    let end = (0..=TEXT_MAX.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    Bytes::copy_from_slice(&message.as_bytes()[..end])
}

/// The earlier of two times. Asked for after every message: an iterator over both, with the search for each inlined,
/// took a thousand instructions more.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Microseconds from one time to another, as they travel.
fn micros(from: Instant, to: Instant) -> u32 {
    u32::try_from(to.0.saturating_sub(from.0) / 1000).unwrap_or(u32::MAX)
}

/// For how long a server keeps what it knows of a request, by its code.
fn gc_time(code: u8) -> Duration {
    Duration::from_millis(1 << code.min(15))
}
