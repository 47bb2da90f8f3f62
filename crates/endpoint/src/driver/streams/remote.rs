//! Who is at the other end of a connection: what it says, where its packets come from.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_wire::messages::{GreetingRepr, MessageFrame};

use crate::messages::{Event, HEAD_MAX};

/// A peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remote {
    pub(super) node: u64,
    pub(super) listens: SocketAddr,
}

impl Remote {
    /// Who says this hello from there.
    pub(super) fn of(hello: &GreetingRepr, from: SocketAddr) -> Option<Self> {
        let port = u16::try_from(hello.key).ok()?;
        Some(Self { node: hello.node, listens: SocketAddr::new(from.ip().to_canonical(), port) })
    }
}

/// What is said first, if it is a hello.
pub(super) fn hello(bytes: &[u8]) -> Option<GreetingRepr> {
    match MessageFrame::parse(bytes) {
        Ok(MessageFrame::Hello(hello)) => Some(hello),
        _ => None,
    }
}

/// A long message gets on, of which this has come.
pub(super) fn underway(remote: Remote, message: &[u8]) -> Event {
    let arriving = Bytes::copy_from_slice(&message[..message.len().min(HEAD_MAX)]);
    Event::Underway { peer: remote.listens, arriving: Some(arriving) }
}
