//! Transport of a shard's messages: flows over a link, or streams.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_endpoint::delegate::MessageOutbox;
use pathcall_endpoint::delegate::shards::PeerShards;
use pathcall_endpoint::messages::{self, Event, Messages, Stats};
use pathcall_wire::delegate::{NodeId, add_wait};
use pathcall_wire::{Instant, TokenKey};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::task::Source;
use super::{NodeConfig, Transport};
use crate::link::Link;
use crate::streams::{EventSink, Streams};

/// Transport of messages.
pub(super) enum MessageTransport {
    Flows(Box<(Link, Messages)>),
    Streams(Streams),
}

/// Outbox of the state machines.
pub(super) struct MachineOutbox<'a> {
    pub(super) transport: &'a mut MessageTransport,
    pub(super) now: Instant,
    pub(super) sent: &'a mut bool,
    pub(super) peer_shards: &'a PeerShards,
}

impl MessageOutbox for MachineOutbox<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        *self.sent = true;
        let to = self.peer_shards.address(to, head);
        match self.transport {
            MessageTransport::Flows(flows) => flows.1.send(self.now, to, head, payload),
            MessageTransport::Streams(streams) => streams.send(to, head, payload),
        }
    }
}

impl MessageTransport {
    /// Binds the socket, on `runtime`; returns the bound address and the source of messages.
    pub(super) async fn start(
        config: &NodeConfig,
        runtime: &Handle,
        (id, seed): (NodeId, [u64; 2]),
    ) -> io::Result<(Self, SocketAddr, Source)> {
        let (forward, incoming) = mpsc::unbounded_channel();
        // The receiver is gone when the node has ended.
        let sink: EventSink = Arc::new(move |event| drop(forward.send(event)));
        let streams = match &config.transport {
            Transport::Flows => {
                let _entered = runtime.enter();
                let link = Link::bind(config.listen)?;
                let (local, source) = (link.local_addr(), Source::Link(link.readiness()));
                let messages = messages::Config::new(id.bits(), seed);
                let messages = messages::Config { key: config.key, wait: Some(add_wait), ..messages };
                return Ok((Self::Flows(Box::new((link, Messages::new(messages)))), local, source));
            }
            Transport::Tcp => Streams::tcp(id.bits(), config.listen, config.key, sink).await?,
            #[cfg(feature = "quic")]
            Transport::Quic(tls) => Streams::quic(id.bits(), config.listen, tls, sink).await?,
        };
        let local = streams.local_addr();
        Ok((Self::Streams(streams), local, Source::Streams(incoming)))
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        match self {
            Self::Flows(flows) => flows.1.next_event(),
            Self::Streams(_) => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Flows(flows) => flows.1.deadline(),
            Self::Streams(_) => None,
        }
    }

    /// Returns whether frames wait for the send buffer.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Self::Flows(flows) if flows.0.is_blocked())
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Flows(flows) => flows.1.stats(),
            Self::Streams(streams) => streams.stats(),
        }
    }

    pub(super) fn set_key(&mut self, now: Instant, key: Option<TokenKey>) {
        match self {
            Self::Flows(flows) => flows.1.set_key(now, key),
            Self::Streams(streams) => streams.set_key(key),
        }
    }

    pub(super) fn key(&self) -> Option<TokenKey> {
        match self {
            Self::Flows(flows) => flows.1.key(),
            Self::Streams(streams) => streams.key(),
        }
    }
}
