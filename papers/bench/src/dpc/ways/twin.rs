//! A node of plain remote calls: the twin of [`Node`](pathcall_endpoint::driver::node::Node), with the same sessions
//! over UDP, lock, task and queues, and nothing of what delegating takes.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Instant as Clock;

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, NodeId, Outbox, Peer, for_caller};
use pathcall_endpoint::driver::line::Teller;
use pathcall_endpoint::driver::link::{Link, Looking, Readiness};
use pathcall_endpoint::driver::turns::{Turns, Wakers};
use pathcall_endpoint::messages::{self, Event, Messages};
use pathcall_models::delegate::twin::{TwinCaller, serve};
use pathcall_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::Notify;

/// A handle to a node. When the last one is dropped, the node stops.
#[derive(Clone)]
pub(crate) struct TwinNode(Arc<Shared>);

/// The requests that come to a node.
pub(crate) struct TwinRequests(Arc<Shared>);

/// A request that waits for its answer.
pub(crate) struct TwinRequest {
    node: Arc<Shared>,
    from: Peer,
    message: Bytes,
    payload: Bytes,
}

struct Shared {
    state: Mutex<State>,
    work: Notify,
    origin: Clock,
    address: SocketAddr,
}

struct State {
    caller: TwinCaller,
    link: Link,
    messages: Messages,
    calls: HashMap<Context, Arc<Teller<Bytes>>>,
    /// Requests that nobody has taken yet.
    waiting: VecDeque<(Peer, Bytes)>,
    wakers: Wakers,
}

/// Where messages are put.
struct Out<'a>(&'a mut Messages, Instant);

impl Outbox for Out<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.send(self.1, to, head, payload);
    }
}

impl TwinNode {
    pub(crate) async fn start(at: SocketAddr) -> io::Result<(Self, TwinRequests)> {
        let link = Link::bind(at)?;
        let (address, readiness) = (link.local_addr(), link.readiness());
        let id = NodeId::new(random()?);
        let messages = Messages::new(messages::Config::new(id.bits(), [random()?, random()?]));
        let caller = TwinCaller::new(id);
        let (calls, waiting) = (HashMap::new(), VecDeque::new());
        let state = Mutex::new(State { caller, link, messages, calls, waiting, wakers: Wakers::default() });
        let shared = Arc::new(Shared { state, work: Notify::new(), origin: Clock::now(), address });
        tokio::spawn(run(Arc::downgrade(&shared), shared.origin, readiness));
        Ok((Self(Arc::clone(&shared)), TwinRequests(shared)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Calls a server; the answer comes there.
    pub(crate) fn call(&self, to: SocketAddr, request: &Bytes, answer: Arc<Teller<Bytes>>) {
        self.0.with(|state, now| {
            let call = state.caller.call(to, request, &mut Out(&mut state.messages, now));
            state.calls.insert(call, answer);
        });
    }
}

impl TwinRequests {
    /// The next request.
    pub(crate) async fn receive(&self) -> TwinRequest {
        loop {
            let waiting = self.0.lock().waiting.pop_front();
            if let Some((from, message)) = waiting {
                let payload = message.slice(pathcall_models::delegate::twin::REQUEST_LEN.min(message.len())..);
                return TwinRequest { node: Arc::clone(&self.0), from, message, payload };
            }
            self.0.work.notified().await;
        }
    }
}

impl TwinRequest {
    pub(crate) fn payload(&self) -> &Bytes {
        &self.payload
    }

    pub(crate) fn reply(self, item: Bytes) {
        let Self { node, from, message, .. } = self;
        node.with(|state, now| serve(from, &message, |_| item, &mut Out(&mut state.messages, now)));
    }
}

impl Shared {
    /// Does something under the lock, and what comes of it.
    fn with<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let done = f(&mut state, now);
        state.drive(now);
        let (by, blocked, waits) = (state.messages.deadline(), state.link.is_blocked(), !state.waiting.is_empty());
        let task = state.wakers.ring(by, blocked);
        drop(state);
        if waits {
            self.work.notify_one();
        }
        task.into_iter().for_each(Waker::wake);
        done
    }

    /// The task's turn: takes what has come, and does what is due.
    fn turn(&self) {
        let mut state = self.lock();
        let now = self.now();
        state.receive(now);
        state.drive(now);
        let waits = !state.waiting.is_empty();
        drop(state);
        if waits {
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn arm(&self, turns: &mut Turns, task: &Waker) -> bool {
        let mut state = self.lock();
        let by = state.messages.deadline();
        turns.arm(&mut state.wakers, by, task);
        state.link.is_blocked()
    }
}

impl State {
    fn drive(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.messages.next_event() {
                self.take(event);
            }
            let Self { link, messages, .. } = self;
            messages.poll(now, &mut |to, frame| link.queue(to, frame));
            if !messages.has_events() {
                return link.flush();
            }
        }
    }

    fn take(&mut self, event: Event) {
        let Event::Arrived { node, from, message } = event else { return };
        if !for_caller(&message) {
            return self.waiting.push_back((Peer { node: NodeId::new(node), address: from }, message));
        }
        let Some((call, answer)) = self.caller.handle(&message) else { return };
        if let Some(line) = self.calls.remove(&call) {
            // Whoever has dropped its call wants no answer.
            line.tell(answer);
        }
    }

    fn receive(&mut self, now: Instant) {
        let Self { link, messages, .. } = self;
        // An error is about one datagram: its session will notice.
        let _ = link.exchange(Looking::IfReady, |out, from, ce, frame| {
            messages.handle(now, from, frame, ce, &mut |to, frame| out.queue(to, frame));
        });
    }
}

/// Receives for a node, and lets time pass, as long as anybody has it.
async fn run(node: Weak<Shared>, origin: Clock, readiness: Readiness) {
    let mut turns = Turns::new(origin);
    poll_fn(|cx| {
        loop {
            let Some(node) = node.upgrade() else { return Poll::Ready(()) };
            let blocked = node.arm(&mut turns, cx.waker());
            match turns.poll(cx, Some((&readiness, blocked))) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => node.turn(),
            }
        }
    })
    .await;
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
