//! Node: makes delegated calls and processes requests that others delegate to it. This is the asynchronous base API of
//! *delegate* (DPC Fig. 3.1).
//!
//! ```text
//! Node::call ─▶ NodeCall: send, receive ───────┐          ┌── messages by flows over UDP, or
//!                                              ├─ State ──┤   by TCP or QUIC
//! NodeRequests::receive ─▶ NodeRequest: reply, ┘          └── task: waits for messages and deadlines
//!                      delegate, finish
//! ```
//!
//! A command runs in the calling thread, up to the system call that sends; a task receives. A [`NodeRequest`] that is
//! dropped before it is finished fails its call: so the request of a handler that panics or is cancelled never counts
//! as done. A [`NodeCall`] that is dropped is aborted.
//!
//! A node may have several `shards`, each with a state and a task of its own.

mod arrivals;
mod call;
mod request;
mod shards;
mod state;
mod task;
mod transport;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
pub use call::{NodeCall, NodeReply};
use pathcall_wire::TokenKey;
use pathcall_wire::delegate::NodeId;
pub use request::{NodeRequest, NodeRequests, ObsoleteRecords, PreparedRequest};
use shards::NodeShards;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::random;
#[cfg(feature = "quic")]
use super::streams::quic::Tls;
use pathcall_endpoint::delegate::ContextId;
use pathcall_endpoint::delegate::caller::{CallOptions, DelegateCallerConfig, DelegateCallerStats, SendRequestError};
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{DelegateWorkerStats, RequestOrder};
use pathcall_endpoint::messages;

/// Transport of messages (DPC §4.6).
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

/// Configuration of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Address to listen at; port 0 takes a free port. Not an unspecified address unless `advertised` is set.
    pub listen: SocketAddr,
    /// Address at which others reach the node, if it is not `listen`. Port 0: the port at which the node listens.
    pub advertised: Option<SocketAddr>,
    /// Transport of messages.
    pub transport: Transport,
    /// Order in which waiting requests are processed.
    pub order: RequestOrder,
    /// See [`DelegateWorkerConfig::flush`](pathcall_endpoint::delegate::worker::DelegateWorkerConfig::flush).
    pub flush: Duration,
    /// Most servers that a request passes through.
    pub depth_max: u8,
    /// Most open requests of one of this node's calls.
    pub requests_max: u32,
    /// Time without a reply, a delegation or a sign of progress after which a handler counts as stalled.
    pub stall: Option<Duration>,
    /// Key that signs messages, the same for all nodes that pass calls to each other: see [`Node::set_key`].
    pub key: Option<TokenKey>,
    /// Time after each message for which the node keeps its runtime from sleeping; zero, the default: it does not. A
    /// message is then found without the wake-up of a thread, at the price of one processor. Give the node a runtime
    /// of one thread (`new_current_thread`), and make calls from its tasks.
    pub busy_poll: Duration,
    /// Parts of the node that work on different processors at a time, 1 to 64; several only by UDP. Each has a port of
    /// its own: shard `n` takes the `n`th port after that of `listen`, and of `advertised`, unless the port is 0. Limits
    /// hold for each shard.
    pub shards: usize,
}

/// Setters, one for each field.
impl NodeConfig {
    /// Sets [`Self::listen`].
    #[must_use]
    pub fn listen(mut self, listen: SocketAddr) -> Self {
        self.listen = listen;
        self
    }

    /// Sets [`Self::advertised`].
    #[must_use]
    pub fn advertised(mut self, advertised: Option<SocketAddr>) -> Self {
        self.advertised = advertised;
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
    pub fn order(mut self, order: RequestOrder) -> Self {
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

    /// Sets [`Self::requests_max`].
    #[must_use]
    pub fn requests_max(mut self, requests_max: u32) -> Self {
        self.requests_max = requests_max;
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

    /// Sets [`Self::busy_poll`].
    #[must_use]
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = time;
        self
    }

    /// Sets [`Self::shards`].
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }
}

impl Default for NodeConfig {
    /// A free port of the loopback address, messages by flows.
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertised: None,
            transport: Transport::Flows,
            order: RequestOrder::Arrival,
            flush: Duration::from_millis(1),
            depth_max: 64,
            requests_max: DelegateCallerConfig::REQUESTS_MAX,
            stall: None,
            key: None,
            busy_poll: Duration::ZERO,
            shards: 1,
        }
    }
}

/// Counters of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Counters of the calls.
    pub caller: DelegateCallerStats,
    /// Counters of the requests.
    pub worker: DelegateWorkerStats,
    /// Counters of the messages, if flows carry them; otherwise only of unauthenticated ones.
    pub messages: messages::Stats,
    /// Calls in memory: in progress, being stopped, or waiting for their traces.
    pub calls_known: usize,
    /// Requests in memory: in progress, or done and perhaps asked about.
    pub requests_known: usize,
    /// Messages that a shard received for another one; few, once senders know the shards.
    pub handed_over: u64,
}

impl AddAssign for NodeStats {
    fn add_assign(&mut self, other: Self) {
        let Self { caller, worker, messages, calls_known, requests_known, handed_over } = other;
        self.caller += caller;
        self.worker += worker;
        self.messages += messages;
        self.calls_known += calls_known;
        self.requests_known += requests_known;
        self.handed_over += handed_over;
    }
}

/// Event of a server that requests of this node go to, its own or passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEvent {
    /// A request certainly did not reach the server.
    Unreachable(SocketAddr),
    /// The server reports how many requests wait or run.
    Load(SocketAddr, u32),
}

/// Observer of the servers that a node's requests go to. It is called under a lock of the node, so it must not call the
/// node.
pub trait ServerObserver: Send + Sync {
    /// Handles an event.
    fn on_server_event(&self, event: ServerEvent);
}

/// Durable records of exactly-once requests from earlier processes (DPC §3.5.3).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RecordHistory {
    /// Records of completed requests.
    pub records: Vec<RequestRecord>,
    /// For each caller of whose calls records were deleted, the last such call.
    pub ended: Vec<ContextId>,
}

/// Handle to a node. When the last one is dropped, with all of its calls and requests, the node stops.
#[derive(Clone)]
pub struct Node(Arc<NodeShards>);

impl Node {
    /// Starts a node on the current tokio runtime; returns a handle and the incoming requests.
    ///
    /// # Errors
    /// Errors of the system, `AddrInUse` above all; `InvalidInput` when the node's address is unreachable for others,
    /// or the certificates are invalid.
    pub async fn start(config: &NodeConfig) -> io::Result<(Self, NodeRequests)> {
        Self::start_on(config, &[Handle::current()]).await
    }

    /// Starts a node as [`start`](Self::start) does, with its shards on the given runtimes in turn. If these are several,
    /// a call that is begun on the thread of a shard belongs to this shard: with a runtime of one thread for each shard,
    /// and requests that are received [there](NodeRequests::by_shard), processors share almost nothing.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(config: &NodeConfig, runtimes: &[Handle]) -> io::Result<(Self, NodeRequests)> {
        let shards = NodeShards::start(config, runtimes, RecordHistory::default(), None).await?;
        let requests = NodeRequests::of(&shards);
        Ok((Self(shards), requests))
    }

    /// Starts a node as [`start`](Self::start) does, with the records of an earlier process: requests that were
    /// completed are not run again. A node that records, but has no records yet, starts with an empty history.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn resume(
        config: &NodeConfig,
        history: RecordHistory,
    ) -> io::Result<(Self, NodeRequests, ObsoleteRecords)> {
        Self::resume_on(config, &[Handle::current()], history).await
    }

    /// Starts a node as [`resume`](Self::resume) does, with its shards on the given runtimes in turn.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn resume_on(
        config: &NodeConfig,
        runtimes: &[Handle],
        history: RecordHistory,
    ) -> io::Result<(Self, NodeRequests, ObsoleteRecords)> {
        let (obsolete, obsolete_receiver) = mpsc::unbounded_channel();
        let shards = NodeShards::start(config, runtimes, history, Some(obsolete)).await?;
        let requests = NodeRequests::of(&shards);
        Ok((Self(shards), requests, ObsoleteRecords(obsolete_receiver)))
    }

    /// Id of the node, drawn anew at each start. Further shards have ids of their own.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.first().id
    }

    /// Address at which others reach the node.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.first().address
    }

    /// Sets the key: messages are signed with it from now on, and others are dropped and counted; without a key, signed
    /// messages are dropped. Messages in flight during the change may be lost. TLS authenticates messages by QUIC, with
    /// or without a key.
    pub fn set_key(&self, key: Option<TokenKey>) {
        self.0.all().iter().for_each(|shard| shard.set_key(key));
    }

    /// Key that signs messages.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.0.first().key()
    }

    /// Starts a call with the given requests, each to a server. More may follow while it is in progress.
    ///
    /// # Errors
    /// [`SendRequestError`].
    pub fn call(
        &self,
        options: CallOptions,
        requests: impl IntoIterator<Item = (SocketAddr, Bytes)>,
    ) -> Result<NodeCall, SendRequestError> {
        NodeCall::begin(self.0.shard_for_call(), options, requests)
    }

    /// Adds an observer of the servers that requests go to, unless it is there, as long as it exists.
    pub fn add_observer(&self, observer: Weak<impl ServerObserver + 'static>) {
        let observer: Weak<dyn ServerObserver> = observer;
        for shard in self.0.all() {
            shard.with_state(|state| {
                state.observers.retain(|known| known.strong_count() > 0);
                if !state.observers.iter().any(|known| Weak::ptr_eq(known, &observer)) {
                    state.observers.push(Weak::clone(&observer));
                }
            });
        }
    }

    /// Counters of this node.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.0.stats()
    }

    /// Returns whether no state of any call or request is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a handle that does not keep the node running.
    #[must_use]
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }
}

/// Handle to a node that does not keep it running.
#[derive(Debug, Clone)]
pub struct WeakNode(Weak<NodeShards>);

impl WeakNode {
    /// Returns the node, if it still runs.
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

/// Draws a random node id, and the seed of its sessions.
fn identity() -> io::Result<(NodeId, [u64; 2])> {
    Ok((NodeId::new(random()?), [random()?, random()?]))
}

/// Address at which others reach the node.
fn advertised_address(config: &NodeConfig, local: SocketAddr) -> io::Result<SocketAddr> {
    let address = config.advertised.unwrap_or(local);
    let port = if address.port() == 0 { local.port() } else { address.port() };
    if address.ip().is_unspecified() {
        let message = format!("unspecified address {address}: set the address at which other nodes reach this one");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(SocketAddr::new(address.ip(), port))
}
