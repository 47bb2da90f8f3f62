//! Messages by TCP, or by QUIC with TLS: between hosts that plain UDP does not connect, or should not.
//!
//! ```text
//! send ─▶ one line a peer ─▶ its task: dials, writes ──▶ TCP: length, message, length, message, …
//!                             ▲ goes by a connection       QUIC: a stream for each message
//!                             │ that the peer has made
//! events ◀── readers ─────────┴──────────────────────────
//! ```
//!
//! The same promises as [`messages`](crate::messages): a message arrives whole, once or not at all. One that
//! was written to a connection which then broke is not written to the next; one that was not goes by that, and
//! is given back when there is none. QUIC's 0-RTT is off: who repeats its first packets would have a message
//! arrive twice.
//!
//! The first thing that each side of a connection says is its node's id and the port that it listens at: so
//! answers find the connection that the question came by, whatever port that was dialled from. By TCP, nodes that have
//! a key then prove that, and sign what they say (`pathcall_wire::messages::token`).

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

use self::keys::{Beginning, Keys};
use crate::messages::{Event, MESSAGE_MAX, Stats};

/// A connection that nothing is sent by for so long is no longer held for that.
const IDLE: Duration = Duration::from_secs(60);
/// A peer that does not take a connection for so long does not take any.
const DIAL: Duration = Duration::from_secs(5);
/// Bytes that may wait to be written to one peer; a message that would make it more is given back.
const QUEUE_MAX: usize = 1 << 30;
/// A peer that takes nothing of what is written to it for so long is gone.
const STUCK: Duration = Duration::from_secs(10);
/// A long message that gets on is told of so often.
const UNDERWAY: Duration = Duration::from_millis(50);

/// Takes what happens, from any thread; it must not wait.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// All connections of one node.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    node: u64,
    road: Road,
    local: SocketAddr,
    sink: Sink,
    keys: Arc<Keys>,
    /// A peer that takes nothing for so long of what is written to it is gone.
    stuck: Duration,
    /// Messages come from any thread, and tasks begin with them.
    runtime: Handle,
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    lines: HashMap<SocketAddr, Line>,
    tasks: Vec<JoinHandle<()>>,
    closed: bool,
}

/// The way to one peer's task.
struct Line {
    to_task: mpsc::UnboundedSender<Outgoing>,
    /// Bytes of messages that wait or are being written.
    bytes: Arc<AtomicUsize>,
}

/// The bytes of a message that is being written: they count until this is dropped.
struct Written {
    len: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.of.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// What connections are made of.
enum Road {
    Tcp,
    #[cfg(feature = "quic")]
    Quic(quic::Quic),
}

/// The writing side of a connection.
enum Connection {
    Tcp(tcp::Writer),
    #[cfg(feature = "quic")]
    Quic(quic::Writer),
}

/// What a peer's task is asked to do.
enum Outgoing {
    Message(Bytes, Bytes),
    /// The peer has made a connection.
    Use(Connection),
}

impl Streams {
    /// Messages by TCP: listens at `addr` and takes connections, with a key those of peers that have it.
    ///
    /// # Errors
    /// What the system says; `AddrInUse` above all.
    pub async fn tcp(node: u64, addr: SocketAddr, key: Option<TokenKey>, sink: Sink) -> io::Result<Self> {
        Self::tcp_stuck_after(STUCK, node, addr, key, sink).await
    }

    /// The same, and a peer is gone that takes nothing for `stuck` of what is written to it.
    ///
    /// # Errors
    /// As [`Streams::tcp`].
    pub async fn tcp_stuck_after(
        stuck: Duration,
        node: u64,
        addr: SocketAddr,
        key: Option<TokenKey>,
        sink: Sink,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let streams = Self::new(node, Road::Tcp, listener.local_addr()?, sink, stuck);
        streams.set_key(key);
        streams.spawn(tcp::accept(streams.weak(), listener));
        Ok(streams)
    }

    /// Messages by QUIC: listens at `addr` and takes connections of peers whose certificates `tls` trusts.
    ///
    /// # Errors
    /// What the system says, `AddrInUse` above all; `InvalidInput` when certificates or key can't be used.
    #[cfg(feature = "quic")]
    pub async fn quic(node: u64, addr: SocketAddr, tls: &quic::Tls, sink: Sink) -> io::Result<Self> {
        let quic = quic::Quic::bind(addr, tls)?;
        let (local, accepting) = (quic.local_addr()?, quic.endpoint());
        let streams = Self::new(node, Road::Quic(quic), local, sink, STUCK);
        streams.spawn(quic::accept(streams.weak(), accepting));
        Ok(streams)
    }

    fn new(node: u64, road: Road, local: SocketAddr, sink: Sink, stuck: Duration) -> Self {
        let (keys, runtime, peers) = (Arc::default(), Handle::current(), Mutex::default());
        Self(Arc::new(Inner { node, road, local, sink, keys, stuck, runtime, peers }))
    }

    /// Connections by TCP are made and taken with this key from now on; those with another end.
    pub fn set_key(&self, key: Option<TokenKey>) {
        self.0.keys.set(key);
    }

    /// What connections by TCP are made with.
    #[must_use]
    pub fn key(&self) -> Option<TokenKey> {
        self.0.keys.get()
    }

    /// Of what is counted: those whom it did not believe.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { unauthenticated: self.0.keys.refused(), ..Stats::default() }
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Sends a message: its head, then its payload. What is known not to arrive is given back as an event.
    pub fn send(&self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        let head = Bytes::copy_from_slice(head);
        if head.len().saturating_add(payload.len()) > MESSAGE_MAX {
            (self.0.sink)(Event::Undelivered { to, head });
            return;
        }
        self.line_up(to, Outgoing::Message(head, payload.clone()));
    }

    /// Ends all connections and takes no more; then its port is free. What was not written yet is not sent.
    pub async fn close(&self) {
        let tasks = {
            let mut peers = self.0.peers();
            peers.closed = true;
            peers.lines.clear();
            std::mem::take(&mut peers.tasks)
        };
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            // It was told to end.
            let _ = task.await;
        }
    }

    fn line_up(&self, to: SocketAddr, outgoing: Outgoing) {
        let mut peers = self.0.peers();
        if peers.closed {
            return;
        }
        let line = peers.lines.entry(to).or_insert_with(|| self.open_line(to));
        if let Outgoing::Message(head, payload) = &outgoing {
            let len = head.len() + payload.len();
            // Nobody else adds to it meanwhile.
            if line.bytes.load(Ordering::Relaxed) + len > QUEUE_MAX {
                let head = head.clone();
                drop(peers);
                (self.0.sink)(Event::Undelivered { to, head });
                return;
            }
            line.bytes.fetch_add(len, Ordering::Relaxed);
        }
        // A task that is about to end closes its line under this lock, and takes what is in it along.
        let _ = line.to_task.send(outgoing);
    }

    fn open_line(&self, to: SocketAddr) -> Line {
        let ((to_task, waiting), bytes) = (mpsc::unbounded_channel(), Arc::default());
        self.0.runtime.spawn(peer(self.weak(), to, waiting, Arc::clone(&bytes)));
        Line { to_task, bytes }
    }

    /// Keeps a task that lives as long as this.
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

    /// What is said first on each connection; the number is 0 unless both sides have a key.
    fn hello(&self, session: u64) -> [u8; Greeting::LEN] {
        GreetingRepr::new(MessageKind::Hello, self.0.node, session, self.0.local.port().into()).bytes()
    }

    /// Begins a connection, with the key of now.
    fn begin(&self) -> io::Result<Beginning> {
        self.0.keys.begin(|session| self.hello(session))
    }
}

/// What tasks hold: they end when nobody else has the streams.
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

/// Writes what is for one peer: what waits has so many `bytes`.
async fn peer(streams: Weak, to: SocketAddr, mut line: mpsc::UnboundedReceiver<Outgoing>, bytes: Arc<AtomicUsize>) {
    let mut connection: Option<Connection> = None;
    loop {
        let outgoing = tokio::select! {
            outgoing = timeout(IDLE, line.recv()) => outgoing,
            () = over(&connection) => {
                connection = still(connection).await;
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
            Outgoing::Use(made) => {
                let mut open = still(connection).await.unwrap_or(made);
                // The message before it did not leave at once, for this was waiting.
                connection = open.flush().await.is_ok().then_some(open);
                continue;
            }
        };
        connection = still(connection).await;
        if connection.is_none() {
            let Some(streams) = streams.get() else { return };
            connection = timeout(DIAL, dial(&streams, to)).await.ok().and_then(Result::ok);
        }
        let Some(open) = &mut connection else {
            give_back(&streams, to, head, &mut line);
            break;
        };
        let written = Written { len: head.len() + payload.len(), of: Arc::clone(&bytes) };
        // What a broken connection had begun is not sent again.
        if open.write(&head, &payload, line.is_empty(), written).await.is_err() {
            connection = None;
        }
    }
    // Nobody adds to the line any more from here on; what is in it has another one.
    let Some(streams) = streams.get() else { return };
    let left: Vec<Outgoing> = {
        let mut peers = streams.0.peers();
        line.close();
        peers.lines.remove(&to);
        std::iter::from_fn(|| line.try_recv().ok()).collect()
    };
    left.into_iter().for_each(|outgoing| streams.line_up(to, outgoing));
}

/// The connection, if it is open. What was written to one that is not leaves first: its peer says nothing more by it,
/// and may still listen.
async fn still(connection: Option<Connection>) -> Option<Connection> {
    let mut connection = connection?;
    if connection.is_open() {
        return Some(connection);
    }
    // Who takes nothing any more has ended it in both directions.
    let _ = connection.flush().await;
    None
}

/// Until the connection ends, if there is one.
async fn over(connection: &Option<Connection>) {
    match connection {
        Some(Connection::Tcp(writer)) => writer.over().await,
        #[cfg(feature = "quic")]
        Some(Connection::Quic(writer)) => writer.over().await,
        None => pending().await,
    }
}

async fn dial(streams: &Streams, to: SocketAddr) -> io::Result<Connection> {
    match &streams.0.road {
        Road::Tcp => tcp::dial(streams, to).await.map(Connection::Tcp),
        #[cfg(feature = "quic")]
        Road::Quic(quic) => quic.dial(streams, to).await.map(Connection::Quic),
    }
}

/// Nobody takes connections there: nothing that waits will arrive.
fn give_back(streams: &Weak, to: SocketAddr, head: Bytes, line: &mut mpsc::UnboundedReceiver<Outgoing>) {
    let Some(streams) = streams.get() else { return };
    (streams.0.sink)(Event::Undelivered { to, head });
    while let Ok(Outgoing::Message(head, _)) = line.try_recv() {
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

    /// Sends what was written.
    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(writer) => writer.flush().await,
            // Streams send by themselves.
            #[cfg(feature = "quic")]
            Self::Quic(_) => Ok(()),
        }
    }

    /// Writes a message; `last`: nothing else is waiting. It has left, or never will, when `written` is dropped.
    async fn write(&mut self, head: &Bytes, payload: &Bytes, last: bool, written: Written) -> io::Result<()> {
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
