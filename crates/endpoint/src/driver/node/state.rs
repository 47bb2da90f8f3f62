//! What a node consists of, behind one lock, and the task that receives for it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Instant as Clock;

use bytes::Bytes;
use pathcall_wire::delegate::{Context, NodeId, add_wait};
use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::call::Told;
use super::request::Waiting;
use super::{History, NodeConfig, NodeStats, Transport};
use crate::delegate::caller::{Caller, CallerConfig, CallerEvent};
use crate::delegate::table::ByContext;
use crate::delegate::worker::{Worker, WorkerConfig, WorkerEvent};
use crate::delegate::{Outbox, Peer, RequestId, earlier, for_caller};
use crate::driver::line::Teller;
use crate::driver::link::{Link, Looking, Readiness};
use crate::driver::streams::{Sink, Streams};
use crate::driver::turns::{Turns, Wakers};
use crate::messages::{self, Event, Messages};

/// A node, for all who hold a part of it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// A request waits for somebody to work on it.
    pub(super) work: Notify,
    origin: Clock,
    pub(super) id: NodeId,
    pub(super) address: SocketAddr,
    task: OnceLock<AbortHandle>,
}

/// Both ends of calls, and what carries their messages.
pub(super) struct State {
    pub(super) caller: Caller,
    pub(super) worker: Worker,
    below: Below,
    /// Who waits for what calls bring.
    pub(super) calls: ByContext<Waits>,
    /// Who works on requests.
    pub(super) requests: ByContext<Arc<Waiting>>,
    /// Who hears of records that are needed no more.
    forget: Option<Forget>,
    /// What wakes the task.
    wakers: Wakers,
    /// Messages were sent that have not left yet.
    sent: bool,
}

/// Who waits for what a call brings.
pub(super) struct Waits {
    pub(super) line: Teller<Told>,
    /// Its end is not the last that is to be said: it may be made again, or its trace comes.
    pub(super) goes_on: bool,
}

/// Calls and requests whose records are needed no more.
type Forget = mpsc::UnboundedSender<(Context, RequestId)>;

/// What carries messages.
enum Below {
    Flows(Box<(Link, Messages)>),
    Streams(Streams),
}

/// Where the state machines put messages.
pub(super) struct Out<'a> {
    below: &'a mut Below,
    now: Instant,
    sent: &'a mut bool,
}

impl Outbox for Out<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        *self.sent = true;
        match self.below {
            Below::Flows(flows) => flows.1.send(self.now, to, head, payload),
            Below::Streams(streams) => streams.send(to, head, payload),
        }
    }
}

impl Shared {
    pub(super) async fn start(
        config: &NodeConfig,
        (id, seed): (NodeId, [u64; 2]),
        history: History,
        forget: Option<Forget>,
    ) -> io::Result<Arc<Self>> {
        let (bring, brought) = mpsc::unbounded_channel();
        // A node that has ended hears nothing.
        let sink: Sink = Arc::new(move |event| drop(bring.send(event)));
        let (below, local) = match &config.transport {
            Transport::Flows => {
                let link = Link::bind(config.listen)?;
                let local = link.local_addr();
                let messages = messages::Config::new(id.bits(), seed);
                let messages = messages::Config { key: config.key, wait: Some(add_wait), ..messages };
                let messages = Messages::new(messages);
                (Below::Flows(Box::new((link, messages))), local)
            }
            Transport::Tcp => streams(Streams::tcp(id.bits(), config.listen, config.key, sink).await?),
            #[cfg(feature = "quic")]
            Transport::Quic(tls) => streams(Streams::quic(id.bits(), config.listen, tls, sink).await?),
        };
        let address = reached(config, local)?;
        let config = WorkerConfig {
            order: config.order,
            flush: config.flush,
            depth_max: config.depth_max,
            stall: config.stall,
            ..WorkerConfig::new(id, address)
        };
        let mut worker = Worker::new(config);
        history.records.into_iter().for_each(|record| worker.restore(Instant(0), record));
        history.ended.into_iter().for_each(|last| worker.restore_ended(last));
        let state = State {
            caller: Caller::new(CallerConfig::new(id, address)),
            worker,
            below,
            calls: ByContext::default(),
            requests: ByContext::default(),
            forget,
            wakers: Wakers::default(),
            sent: false,
        };
        let from = match &state.below {
            Below::Flows(flows) => Source::Link(flows.0.readiness()),
            Below::Streams(_) => Source::Streams(brought),
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            work: Notify::new(),
            origin: Clock::now(),
            id,
            address,
            task: OnceLock::new(),
        });
        let task = tokio::spawn(run(Arc::downgrade(&shared), shared.origin, from));
        shared.task.get_or_init(|| task.abort_handle());
        Ok(shared)
    }

    /// Does something under the lock, and what comes of it at once: what is due besides is the task's.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let done = f(&mut state, now);
        if state.sent {
            state.drive(now);
        } else {
            state.tell();
        }
        let (by, blocked) = (state.deadline(), state.is_blocked());
        let task = state.wakers.ring(by, blocked);
        drop(state);
        task.into_iter().for_each(Waker::wake);
        done
    }

    /// Does something under the lock that leads to no message.
    pub(super) fn look<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.lock())
    }

    /// The task's turn: takes what has come, and does what is due.
    fn turn(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        let now = self.now();
        events.drain(..).for_each(|event| state.take(now, event));
        state.receive(now);
        state.drive(now);
        let waits = state.worker.is_waiting();
        drop(state);
        if waits {
            self.work.notify_one();
        }
    }

    pub(super) fn stats(&self) -> NodeStats {
        let state = self.lock();
        let messages = match &state.below {
            Below::Flows(flows) => flows.1.stats(),
            Below::Streams(streams) => streams.stats(),
        };
        NodeStats {
            caller: state.caller.stats(),
            worker: state.worker.stats(),
            messages,
            calls_known: state.caller.known(),
            requests_known: state.worker.known(),
        }
    }

    pub(super) fn set_key(&self, key: Option<TokenKey>) {
        self.with(|state, now| match &mut state.below {
            Below::Flows(flows) => flows.1.set_key(now, key),
            Below::Streams(streams) => streams.set_key(key),
        });
    }

    pub(super) fn key(&self) -> Option<TokenKey> {
        match &self.lock().below {
            Below::Flows(flows) => flows.1.key(),
            Below::Streams(streams) => streams.key(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.caller.is_empty() && state.worker.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Before the task waits; whether frames wait for the send buffer.
    fn arm(&self, turns: &mut Turns, task: &Waker) -> bool {
        let mut state = self.lock();
        let by = state.deadline();
        turns.arm(&mut state.wakers, by, task);
        state.is_blocked()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id).field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

fn streams(streams: Streams) -> (Below, SocketAddr) {
    let local = streams.local_addr();
    (Below::Streams(streams), local)
}

/// Where others find the node.
fn reached(config: &NodeConfig, local: SocketAddr) -> io::Result<SocketAddr> {
    let reached = config.reached.unwrap_or(local);
    let port = if reached.port() == 0 { local.port() } else { reached.port() };
    if reached.ip().is_unspecified() {
        let what = format!("{reached} is no address that others can reach: say which one they should take");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(SocketAddr::new(reached.ip(), port))
}

/// Where a node's messages come from.
enum Source {
    Link(Readiness),
    Streams(mpsc::UnboundedReceiver<Event>),
}

/// Receives for a node, and lets time pass, as long as anybody has it.
async fn run(node: Weak<Shared>, origin: Clock, mut from: Source) {
    let (mut turns, mut events) = (Turns::new(origin), Vec::new());
    poll_fn(|cx| {
        loop {
            let Some(node) = node.upgrade() else { return Poll::Ready(()) };
            let blocked = node.arm(&mut turns, cx.waker());
            let link = match &mut from {
                Source::Link(readiness) => Some((&*readiness, blocked)),
                Source::Streams(brought) => {
                    while let Poll::Ready(Some(event)) = brought.poll_recv(cx) {
                        events.push(event);
                    }
                    None
                }
            };
            match turns.poll(cx, link) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending if events.is_empty() => return Poll::Pending,
                _ => node.turn(&mut events),
            }
        }
    })
    .await;
}

impl State {
    /// The state machines, and where they put messages.
    pub(super) fn split(&mut self, now: Instant) -> (&mut Caller, &mut Worker, Out<'_>) {
        let Self { caller, worker, below, sent, .. } = self;
        (caller, worker, Out { below, now, sent })
    }

    /// Takes one batch of frames.
    fn receive(&mut self, now: Instant) {
        let Below::Flows(flows) = &mut self.below else { return };
        let (link, messages) = &mut **flows;
        // An error is about one datagram, an unreachable peer, say: its session will notice.
        let _ = link.exchange(Looking::IfReady, |out, from, ce, frame| {
            messages.handle(now, from, frame, ce, &mut |to, frame| out.queue(to, frame));
        });
    }

    /// Does what is due, and sends what was said.
    fn drive(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.next_event() {
                self.take(now, event);
            }
            let (caller, worker, mut out) = self.split(now);
            caller.poll(now, &mut out);
            worker.poll(now, &mut out);
            let Below::Flows(flows) = &mut self.below else { break };
            let (link, messages) = &mut **flows;
            messages.poll(now, &mut |to, frame| link.queue(to, frame));
            if !messages.has_events() {
                link.flush();
                break;
            }
        }
        self.sent = false;
        self.tell();
    }

    fn next_event(&mut self) -> Option<Event> {
        match &mut self.below {
            Below::Flows(flows) => flows.1.next_event(),
            Below::Streams(_) => None,
        }
    }

    /// Takes what the messages' carrier says.
    fn take(&mut self, now: Instant, event: Event) {
        let (caller, worker, mut out) = self.split(now);
        match event {
            Event::Arrived { node, from, message } => {
                let peer = Peer { node: NodeId::new(node), address: from };
                match for_caller(&message) {
                    true => caller.handle(now, peer, &message, &mut out),
                    false => worker.handle(now, peer, &message, &mut out),
                }
            }
            Event::Undelivered { to, head } => {
                caller.undelivered(now, to, &head, &mut out);
                worker.undelivered(now, to, &head, &mut out);
            }
            Event::Underway { peer, arriving } => {
                caller.alive(now, peer);
                arriving.iter().for_each(|head| worker.arriving(now, head));
            }
        }
    }

    /// Tells those who wait.
    fn tell(&mut self) {
        while let Some(event) = self.caller.next_event() {
            let (call, told) = match event {
                CallerEvent::Reply { call, from, item } => (call, Told::Reply(from, item)),
                CallerEvent::Ended { call, outcome } => (call, Told::Ended(outcome)),
                CallerEvent::Trace { call, tree } => (call, Told::Trace(tree)),
            };
            let Some(waits) = self.calls.get(&call) else { continue };
            let over = match &told {
                Told::Reply(..) => false,
                Told::Ended(_) => !waits.goes_on,
                Told::Trace(_) => true,
            };
            // Whoever has dropped its call wants to hear no more.
            if !waits.line.tell(told) || over {
                self.calls.remove(&call);
            }
        }
        while let Some(event) = self.worker.next_event() {
            match event {
                WorkerEvent::Aborted { execution, .. } => {
                    if let Some(waiting) = self.requests.get(&execution) {
                        waiting.abort();
                    }
                }
                WorkerEvent::Granted { execution } => {
                    if let Some(waiting) = self.requests.get(&execution) {
                        waiting.granted();
                    }
                }
                WorkerEvent::Forget { call, request } => {
                    // Nobody may want to hear of it.
                    let _ = self.forget.as_ref().map(|forget| forget.send((call, request)));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let below = match &self.below {
            Below::Flows(flows) => flows.1.deadline(),
            Below::Streams(_) => None,
        };
        earlier(earlier(self.caller.next_deadline(), self.worker.next_deadline()), below)
    }

    fn is_blocked(&self) -> bool {
        matches!(&self.below, Below::Flows(flows) if flows.0.is_blocked())
    }
}
