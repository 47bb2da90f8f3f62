//! Identity of the peer of a connection: node id from its greeting, address from its packets.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::messages::{GreetingRepr, MessageFrame};

use pathcall_endpoint::messages::{Event, HEAD_MAX};

/// Peer of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remote {
    pub(super) node: u64,
    pub(super) listens: SocketAddr,
}

impl Remote {
    /// Identifies the sender of a hello that came from `from`.
    pub(super) fn new(hello: &GreetingRepr, from: SocketAddr) -> Option<Self> {
        let port = u16::try_from(hello.key).ok()?;
        Some(Self { node: hello.node, listens: SocketAddr::new(from.ip().to_canonical(), port) })
    }
}

/// Parses a greeting; `None` if it is not a hello.
pub(super) fn hello(bytes: &[u8]) -> Option<GreetingRepr> {
    match MessageFrame::parse(bytes) {
        Ok(MessageFrame::Hello(hello)) => Some(hello),
        _ => None,
    }
}

/// Progress event of a long message, of which `message` has arrived.
pub(super) fn progress_event(remote: Remote, message: &[u8]) -> Event {
    let arriving = Bytes::copy_from_slice(&message[..message.len().min(HEAD_MAX)]);
    Event::Progress { peer: remote.listens, arriving: Some(arriving) }
}
