//! A node: it calls, and works on what others pass to it; the bare, asynchronous API of *delegate*
//! (DPC Fig. 3.1).
//!
//! ```text
//! Node::call ─▶ Call: send, receive ───┐          ┌── messages by flows over UDP, or
//!                                      ├─ State ──┤   by TCP or QUIC
//! Requests::receive ─▶ Request: reply, ┘          └── a task: waits for what comes and for time to pass
//!                      delegate, finish
//! ```
//!
//! What is commanded runs in the thread that commands it, up to the system call that sends; a task receives.
//! A [`Request`] that is dropped before it is finished fails its call, whatever the reason: a handler that
//! panics, or is cancelled, is never taken for one that is done. A [`Call`] that is dropped is aborted.

mod call;
mod request;
mod state;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
pub use call::{Call, Reply};
use pathcall_wire::TokenKey;
use pathcall_wire::delegate::NodeId;
pub use request::{Forgotten, Request, Requests, Sealed};
use state::Shared;
use tokio::sync::mpsc;

use super::random;
#[cfg(feature = "quic")]
use super::streams::quic::Tls;
use crate::delegate::Context;
use crate::delegate::caller::{CallOptions, CallerStats, SendError};
use crate::delegate::worker::record::Record;
use crate::delegate::worker::{Order, WorkerStats};
use crate::messages;

/// What carries messages (DPC §4.6).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Flows over UDP.
    #[default]
    Flows,
    /// TCP.
    Tcp,
    /// QUIC with TLS.
    #[cfg(feature = "quic")]
    Quic(Tls),
}

/// How a node is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Where it listens; port 0 takes a free one. Not an unspecified address unless `reached` says where it is.
    pub listen: SocketAddr,
    /// Where others reach it, if that is not where it listens. Port 0: the one that it listens at.
    pub reached: Option<SocketAddr>,
    /// What carries messages.
    pub transport: Transport,
    /// Which waiting request is next.
    pub order: Order,
    /// See [`WorkerConfig::flush`](crate::delegate::worker::WorkerConfig::flush).
    pub flush: Duration,
    /// Servers that a request goes through at most.
    pub depth_max: u8,
    /// A handler that neither replies nor delegates nor says that it gets on for so long counts as stalled.
    pub stall: Option<Duration>,
    /// What messages are signed with, the same for all nodes that pass calls to each other: see [`Node::set_key`].
    pub key: Option<TokenKey>,
}

/// Each field by a method.
impl NodeConfig {
    /// Sets [`Self::listen`].
    #[must_use]
    pub fn listen(mut self, listen: SocketAddr) -> Self {
        self.listen = listen;
        self
    }

    /// Sets [`Self::reached`].
    #[must_use]
    pub fn reached(mut self, reached: Option<SocketAddr>) -> Self {
        self.reached = reached;
        self
    }

    /// Sets [`Self::transport`].
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets [`Self::order`].
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets [`Self::flush`].
    #[must_use]
    pub fn flush(mut self, flush: Duration) -> Self {
        self.flush = flush;
        self
    }

    /// Sets [`Self::depth_max`].
    #[must_use]
    pub fn depth_max(mut self, depth_max: u8) -> Self {
        self.depth_max = depth_max;
        self
    }

    /// Sets [`Self::stall`].
    #[must_use]
    pub fn stall(mut self, stall: Option<Duration>) -> Self {
        self.stall = stall;
        self
    }

    /// Sets [`Self::key`].
    #[must_use]
    pub fn key(mut self, key: Option<TokenKey>) -> Self {
        self.key = key;
        self
    }
}

impl Default for NodeConfig {
    /// On a free port of the loopback, by flows.
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            reached: None,
            transport: Transport::Flows,
            order: Order::Arrival,
            flush: Duration::from_millis(1),
            depth_max: 64,
            stall: None,
            key: None,
        }
    }
}

/// What a node has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Of calls.
    pub caller: CallerStats,
    /// Of requests.
    pub worker: WorkerStats,
    /// Of messages, where flows carry them; of others, those that were not authenticated.
    pub messages: messages::Stats,
    /// Calls that it knows of now: in progress, being stopped, or waiting for their traces.
    pub calls_known: usize,
    /// Requests that it knows of now: worked on, or done and perhaps asked about.
    pub requests_known: usize,
}

/// What requests that are done exactly once left in durable memory (DPC §3.5.3).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct History {
    /// Records of what was done.
    pub records: Vec<Record>,
    /// Of each caller of whose calls records were deleted, the last such call.
    pub ended: Vec<Context>,
}

/// A handle to a node. When the last one is dropped, with all of its calls and requests, the node stops.
#[derive(Clone)]
pub struct Node(Arc<Shared>);

impl Node {
    /// Starts a node on the current tokio runtime: a handle, and what comes to it.
    ///
    /// # Errors
    /// What the system says, `AddrInUse` above all; `InvalidInput` when nobody could reach it where it says
    /// that it is, or certificates are none.
    pub async fn start(config: &NodeConfig) -> io::Result<(Self, Requests)> {
        let shared = Shared::start(config, identity()?, History::default(), None).await?;
        Ok((Self(Arc::clone(&shared)), Requests(shared)))
    }

    /// As [`start`](Self::start), with what a process before it has left: requests that are done are not done again,
    /// from the first message on. Whoever records, and there is nothing yet, starts with an empty history.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn resume(config: &NodeConfig, history: History) -> io::Result<(Self, Requests, Forgotten)> {
        let (forget, forgotten) = mpsc::unbounded_channel();
        let shared = Shared::start(config, identity()?, history, Some(forget)).await?;
        Ok((Self(Arc::clone(&shared)), Requests(shared), Forgotten(forgotten)))
    }

    /// Its id, another one at each start.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.id
    }

    /// Where others reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Signs messages with this key from now on, and drops and counts what is not signed with it; with none, what is
    /// signed. What is on its way just then may be lost. Messages by QUIC are authenticated by TLS, with or without.
    pub fn set_key(&self, key: Option<TokenKey>) {
        self.0.set_key(key);
    }

    /// What messages are signed with.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.0.key()
    }

    /// Begins a call with these requests, each to a server. More may follow while it is in progress.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn call(
        &self,
        options: CallOptions,
        requests: impl IntoIterator<Item = (SocketAddr, Bytes)>,
    ) -> Result<Call, SendError> {
        Call::begin(&self.0, options, requests)
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.0.stats()
    }

    /// Whether nothing is left of any call or request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A handle that does not keep the node.
    #[must_use]
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }
}

/// A handle to a node that lives as long as others have it.
#[derive(Debug, Clone)]
pub struct WeakNode(Weak<Shared>);

impl WeakNode {
    /// The node, if it lives.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("address", &self.address()).finish()
    }
}

/// Drawn at random: an id, and what sessions are made of.
fn identity() -> io::Result<(NodeId, [u64; 2])> {
    Ok((NodeId::new(random()?), [random()?, random()?]))
}
