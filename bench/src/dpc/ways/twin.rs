//! A node of plain remote calls: the twin of [`Node`](pathcall_endpoint::driver::node::Node), with the same sessions
//! over UDP, lock, task and queues, and nothing of what delegating takes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, NodeId, Outbox, Peer, for_caller};
use pathcall_endpoint::driver::link::{Link, Looking, Readiness};
use pathcall_endpoint::messages::{self, Event, Messages};
use pathcall_sim::delegate::twin::{TwinCaller, serve};
use pathcall_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

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
    wake: Arc<Notify>,
    origin: Clock,
    address: SocketAddr,
}

struct State {
    caller: TwinCaller,
    link: Link,
    messages: Messages,
    calls: HashMap<Context, mpsc::UnboundedSender<Bytes>>,
    /// Requests that nobody has taken yet.
    waiting: VecDeque<(Peer, Bytes)>,
    armed: Option<Instant>,
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
        let state = Mutex::new(State { caller, link, messages, calls, waiting, armed: None });
        let (work, wake) = (Notify::new(), Arc::new(Notify::new()));
        let shared = Arc::new(Shared { state, work, wake: Arc::clone(&wake), origin: Clock::now(), address });
        tokio::spawn(run(Arc::downgrade(&shared), wake, readiness));
        Ok((Self(Arc::clone(&shared)), TwinRequests(shared)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Calls a server; the answer comes there.
    pub(crate) fn call(&self, to: SocketAddr, request: &Bytes, answer: mpsc::UnboundedSender<Bytes>) {
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
                let payload = message.slice(pathcall_sim::delegate::twin::REQUEST_LEN.min(message.len())..);
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
        let early = state.messages.deadline().is_some_and(|at| state.armed.is_none_or(|armed| at < armed));
        let (waits, blocked) = (!state.waiting.is_empty(), state.link.is_blocked());
        drop(state);
        if waits {
            self.work.notify_one();
        }
        if early || blocked {
            self.wake.notify_one();
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn arm(&self) -> (Option<Clock>, bool) {
        let mut state = self.lock();
        state.armed = state.messages.deadline();
        (state.armed.map(|at| self.origin + Duration::from_nanos(at.0)), state.link.is_blocked())
    }
}

impl State {
    fn drive(&mut self, now: Instant) {
        loop {
            let Self { link, messages, .. } = self;
            messages.poll(now, &mut |to, frame| link.queue(to, frame));
            link.flush();
            let events: Vec<Event> = std::iter::from_fn(|| messages.next_event()).collect();
            if events.is_empty() {
                return;
            }
            events.into_iter().for_each(|event| self.take(event));
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
            let _ = line.send(answer);
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
async fn run(node: Weak<Shared>, wake: Arc<Notify>, readiness: Readiness) {
    loop {
        let Some((alarm, blocked)) = node.upgrade().map(|node| node.arm()) else { return };
        let timer = pin!(async {
            match alarm {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            () = wake.notified() => {}
            () = timer => {}
            ready = readiness.ready(blocked) => if ready.is_err() { return },
        }
        let Some(node) = node.upgrade() else { return };
        node.with(|state, now| state.receive(now));
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
