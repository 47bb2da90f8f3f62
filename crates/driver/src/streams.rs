//! Message streams by TCP, or by QUIC with TLS, between hosts that plain UDP does not or should not connect.
//!
//! ```text
//! send ─▶ one queue per peer ─▶ its task: connects, writes ──▶ TCP: length, message, length, message, …
//!                                ▲ uses the connection that     QUIC: a stream for each message
//!                                │ the peer has made
//! events ◀── readers ────────────┴──────────────────────────
//! ```
//!
//! The guarantees are those of [`messages`](pathcall_endpoint::messages): a message arrives whole, once or not at all. A message
//! written to a connection that then broke is not written to the next one. A message that was not written uses the next
//! connection, and is returned as undelivered when there is none. QUIC's 0-RTT is off, because replayed 0-RTT packets
//! would deliver a message twice.
//!
//! Each side of a connection first sends a greeting with its node id and the port on which it listens: so answers use
//! the connection of the question, whatever its source port. By TCP, nodes that have a key then prove that they know
//! it, and sign their messages (`pathcall_wire::messages::token`).

mod keys;
#[cfg(feature = "quic")]
pub mod quic;
mod remote;
mod tcp;

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::TokenKey;
use pathcall_wire::messages::{Greeting, GreetingRepr, MessageKind};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::keys::{Handshake, Keys};
use pathcall_endpoint::messages::{Event, MESSAGE_MAX, Stats};

/// Time after which an unused connection is no longer kept for sending.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time to connect to a peer, and to complete the greetings.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that may wait to be written to one peer; a message that would exceed them is returned as undelivered.
const QUEUED_BYTES_MAX: usize = 1 << 30;
/// Time without progress of a write after which the peer counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of the progress events of a long incoming message.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Receiver of the events, called from any thread; it must not block.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// All stream connections of one node.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    node: u64,
    transport: StreamTransport,
    local: SocketAddr,
    sink: EventSink,
    keys: Arc<Keys>,
    /// Time without progress of a write after which a peer counts as gone.
    write_timeout: Duration,
    /// Runtime of the tasks: messages are sent from any thread, and may start tasks.
    runtime: Handle,
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    queues: HashMap<SocketAddr, PeerQueue>,
    tasks: Vec<JoinHandle<()>>,
    closed: bool,
}

/// Queue to one peer's task.
struct PeerQueue {
    to_task: mpsc::UnboundedSender<Outgoing>,
    /// Bytes of messages that wait or are being written.
    bytes: Arc<AtomicUsize>,
}

/// Bytes of a message that is being written, counted in its queue until dropped.
struct PendingBytes {
    len: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.of.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Protocol of the connections.
enum StreamTransport {
    Tcp,
    #[cfg(feature = "quic")]
    Quic(quic::Quic),
}

/// Writing side of a connection.
enum Connection {
    Tcp(tcp::Writer),
    #[cfg(feature = "quic")]
    Quic(quic::Writer),
}

/// Command to a peer's task.
enum Outgoing {
    Message(Bytes, Bytes),
    /// A connection that the peer has made.
    Connection(Connection),
}

impl Streams {
    /// Starts messages by TCP: listens at `addr` and accepts connections; with a key, those of peers that know it.
    ///
    /// # Errors
    /// Errors of the system, `AddrInUse` above all.
    pub async fn tcp(node: u64, addr: SocketAddr, key: Option<TokenKey>, sink: EventSink) -> io::Result<Self> {
        Self::tcp_with_write_timeout(WRITE_TIMEOUT, node, addr, key, sink).await
    }

    /// Starts messages by TCP with another write timeout than the default.
    ///
    /// # Errors
    /// As [`Streams::tcp`].
    pub async fn tcp_with_write_timeout(
        write_timeout: Duration,
        node: u64,
        addr: SocketAddr,
        key: Option<TokenKey>,
        sink: EventSink,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let streams = Self::new(node, StreamTransport::Tcp, listener.local_addr()?, sink, write_timeout);
        streams.set_key(key);
        streams.spawn(tcp::accept(streams.weak(), listener));
        Ok(streams)
    }

    /// Starts messages by QUIC: listens at `addr` and accepts connections of peers whose certificates `tls` trusts.
    ///
    /// # Errors
    /// Errors of the system, `AddrInUse` above all; `InvalidInput` when the certificates or the key are unusable.
    #[cfg(feature = "quic")]
    pub async fn quic(node: u64, addr: SocketAddr, tls: &quic::Tls, sink: EventSink) -> io::Result<Self> {
        let quic = quic::Quic::bind(addr, tls)?;
        let (local, accepting) = (quic.local_addr()?, quic.endpoint());
        let streams = Self::new(node, StreamTransport::Quic(quic), local, sink, WRITE_TIMEOUT);
        streams.spawn(quic::accept(streams.weak(), accepting));
        Ok(streams)
    }

    fn new(node: u64, transport: StreamTransport, local: SocketAddr, sink: EventSink, write_timeout: Duration) -> Self {
        let (keys, runtime, peers) = (Arc::default(), Handle::current(), Mutex::default());
        Self(Arc::new(Inner { node, transport, local, sink, keys, write_timeout, runtime, peers }))
    }

    /// Sets the key of TCP connections; connections with another key end.
    pub fn set_key(&self, key: Option<TokenKey>) {
        self.0.keys.set(key);
    }

    /// Key of TCP connections.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.0.keys.get()
    }

    /// Message counters; only the count of unauthenticated connections is kept.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { unauthenticated: self.0.keys.unauthenticated(), ..Stats::default() }
    }

    /// Address at which it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Sends a message: its head, then its payload. If it certainly cannot arrive, an event returns it as undelivered.
    pub fn send(&self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        let head = Bytes::copy_from_slice(head);
        if head.len().saturating_add(payload.len()) > MESSAGE_MAX {
            (self.0.sink)(Event::Undelivered { to, head });
            return;
        }
        self.enqueue(to, Outgoing::Message(head, payload.clone()));
    }

    /// Ends all connections and accepts no more; then the port is free. Unwritten messages are not sent.
    pub async fn close(&self) {
        let tasks = {
            let mut peers = self.0.peers();
            peers.closed = true;
            peers.queues.clear();
            std::mem::take(&mut peers.tasks)
        };
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            // The task was aborted.
            let _ = task.await;
        }
    }

    fn enqueue(&self, to: SocketAddr, outgoing: Outgoing) {
        let mut peers = self.0.peers();
        if peers.closed {
            return;
        }
        let queue = peers.queues.entry(to).or_insert_with(|| self.open_queue(to));
        if let Outgoing::Message(head, payload) = &outgoing {
            let len = head.len() + payload.len();
            // Bytes are added under the lock only.
            if queue.bytes.load(Ordering::Relaxed) + len > QUEUED_BYTES_MAX {
                let head = head.clone();
                drop(peers);
                (self.0.sink)(Event::Undelivered { to, head });
                return;
            }
            queue.bytes.fetch_add(len, Ordering::Relaxed);
        }
        // A task that is about to end closes its queue under this lock, and hands over the queue's contents.
        let _ = queue.to_task.send(outgoing);
    }

    fn open_queue(&self, to: SocketAddr) -> PeerQueue {
        let ((to_task, waiting), bytes) = (mpsc::unbounded_channel(), Arc::default());
        self.0.runtime.spawn(peer(self.weak(), to, waiting, Arc::clone(&bytes)));
        PeerQueue { to_task, bytes }
    }

    /// Spawns a task that is aborted when the streams are dropped or closed.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.0.runtime.spawn(task);
        let mut peers = self.0.peers();
        peers.tasks.retain(|task| !task.is_finished());
        match peers.closed {
            true => handle.abort(),
            false => peers.tasks.push(handle),
        }
    }

    fn weak(&self) -> Weak {
        Weak(Arc::downgrade(&self.0))
    }

    /// Greeting of a connection; `session` is 0 unless both sides have a key.
    fn hello(&self, session: u64) -> [u8; Greeting::LEN] {
        GreetingRepr::new(MessageKind::Hello, self.0.node, session, self.0.local.port().into()).bytes()
    }

    /// Prepares the handshake of a connection, with the current key.
    fn start_handshake(&self) -> io::Result<Handshake> {
        self.0.keys.start_handshake(|session| self.hello(session))
    }
}

/// Weak handle for the tasks: they end when the last owner of the streams is gone.
#[derive(Clone)]
struct Weak(std::sync::Weak<Inner>);

impl Weak {
    fn get(&self) -> Option<Streams> {
        self.0.upgrade().map(Streams)
    }
}

impl Inner {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let peers = self.peers.get_mut().unwrap_or_else(PoisonError::into_inner);
        peers.tasks.drain(..).for_each(|task| task.abort());
    }
}

/// Writes the messages to one peer; `bytes` counts those that wait.
async fn peer(streams: Weak, to: SocketAddr, mut queue: mpsc::UnboundedReceiver<Outgoing>, bytes: Arc<AtomicUsize>) {
    let mut connection: Option<Connection> = None;
    loop {
        let outgoing = tokio::select! {
            outgoing = timeout(IDLE_TIMEOUT, queue.recv()) => outgoing,
            () = closed(&connection) => {
                connection = keep_if_open(connection).await;
                continue;
            }
        };
        let outgoing = match outgoing {
            Ok(Some(outgoing)) => outgoing,
            Ok(None) => return,
            Err(_) => break,
        };
        let (head, payload) = match outgoing {
            Outgoing::Message(head, payload) => (head, payload),
            Outgoing::Connection(made) => {
                let mut open = keep_if_open(connection).await.unwrap_or(made);
                // The message before it was not flushed, because this command was waiting.
                connection = open.flush().await.is_ok().then_some(open);
                continue;
            }
        };
        connection = keep_if_open(connection).await;
        if connection.is_none() {
            let Some(streams) = streams.get() else { return };
            connection = timeout(CONNECT_TIMEOUT, dial(&streams, to)).await.ok().and_then(Result::ok);
        }
        let Some(open) = &mut connection else {
            return_undelivered(&streams, to, head, &mut queue);
            break;
        };
        let written = PendingBytes { len: head.len() + payload.len(), of: Arc::clone(&bytes) };
        // A message that a broken connection had begun is not sent again.
        if open.write(&head, &payload, queue.is_empty(), written).await.is_err() {
            connection = None;
        }
    }
    // From here on nothing is added to this queue; its remaining messages go to a new one.
    let Some(streams) = streams.get() else { return };
    let left: Vec<Outgoing> = {
        let mut peers = streams.0.peers();
        queue.close();
        peers.queues.remove(&to);
        std::iter::from_fn(|| queue.try_recv().ok()).collect()
    };
    left.into_iter().for_each(|outgoing| streams.enqueue(to, outgoing));
}

/// Returns the connection if it is open. A closed connection is flushed first: its peer sends nothing more on it, and
/// may still receive.
async fn keep_if_open(connection: Option<Connection>) -> Option<Connection> {
    let mut connection = connection?;
    if connection.is_open() {
        return Some(connection);
    }
    // A peer that no longer receives has ended the connection in both directions.
    let _ = connection.flush().await;
    None
}

/// Waits until the connection ends, if there is one.
async fn closed(connection: &Option<Connection>) {
    match connection {
        Some(Connection::Tcp(writer)) => writer.closed().await,
        #[cfg(feature = "quic")]
        Some(Connection::Quic(writer)) => writer.closed().await,
        None => pending().await,
    }
}

async fn dial(streams: &Streams, to: SocketAddr) -> io::Result<Connection> {
    match &streams.0.transport {
        StreamTransport::Tcp => tcp::dial(streams, to).await.map(Connection::Tcp),
        #[cfg(feature = "quic")]
        StreamTransport::Quic(quic) => quic.dial(streams, to).await.map(Connection::Quic),
    }
}

/// Returns all waiting messages as undelivered, because the peer accepts no connection.
fn return_undelivered(streams: &Weak, to: SocketAddr, head: Bytes, queue: &mut mpsc::UnboundedReceiver<Outgoing>) {
    let Some(streams) = streams.get() else { return };
    (streams.0.sink)(Event::Undelivered { to, head });
    while let Ok(Outgoing::Message(head, _)) = queue.try_recv() {
        (streams.0.sink)(Event::Undelivered { to, head });
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        match self {
            Self::Tcp(writer) => writer.is_open(),
            #[cfg(feature = "quic")]
            Self::Quic(writer) => writer.is_open(),
        }
    }

    /// Sends the buffered bytes.
    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(writer) => writer.flush().await,
            // QUIC streams send without a flush.
            #[cfg(feature = "quic")]
            Self::Quic(_) => Ok(()),
        }
    }

    /// Writes a message; `last`: no other message waits. When `written` is dropped, the message has left or never will.
    async fn write(&mut self, head: &Bytes, payload: &Bytes, last: bool, written: PendingBytes) -> io::Result<()> {
        match self {
            Self::Tcp(writer) => {
                let done = writer.write(head, payload, last).await;
                drop(written);
                done
            }
            #[cfg(feature = "quic")]
            Self::Quic(writer) => writer.write(head, payload, written).await,
        }
    }
}

#[cfg(test)]
mod tests;
