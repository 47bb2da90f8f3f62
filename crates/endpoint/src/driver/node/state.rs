//! What a node consists of, behind one lock, and the task that receives for it.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_wire::Instant;
use pathcall_wire::delegate::{Context, NodeId};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::call::Told;
use super::request::Waiting;
use super::{History, NodeConfig, NodeStats, Transport};
use crate::delegate::caller::{Caller, CallerConfig, CallerEvent};
use crate::delegate::worker::{Worker, WorkerConfig, WorkerEvent};
use crate::delegate::{Outbox, Peer, RequestId, earlier, for_caller};
use crate::driver::link::{Link, Looking, Readiness};
use crate::driver::streams::{Sink, Streams};
use crate::messages::{self, Event, Messages};

/// A node, for all who hold a part of it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// A request waits for somebody to work on it.
    pub(super) work: Notify,
    /// The task is to look at its deadline.
    wake: Arc<Notify>,
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
    pub(super) calls: HashMap<Context, mpsc::UnboundedSender<Told>>,
    /// Who works on requests.
    pub(super) requests: HashMap<Context, Arc<Waiting>>,
    /// Who hears of records that are needed no more.
    forget: Option<Forget>,
    /// When the task wakes by itself.
    armed: Option<Instant>,
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
}

impl Outbox for Out<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
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
        let (below, local, readiness) = match &config.transport {
            Transport::Flows => {
                let link = Link::bind(config.listen)?;
                let (local, readiness) = (link.local_addr(), link.readiness());
                let messages = Messages::new(messages::Config::new(id.bits(), seed));
                (Below::Flows(Box::new((link, messages))), local, Some(readiness))
            }
            Transport::Tcp => streams(Streams::tcp(id.bits(), config.listen, sink).await?),
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
            calls: HashMap::new(),
            requests: HashMap::new(),
            forget,
            armed: None,
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            work: Notify::new(),
            wake: Arc::default(),
            origin: Clock::now(),
            id,
            address,
            task: OnceLock::new(),
        });
        let task = tokio::spawn(run(Arc::downgrade(&shared), Arc::clone(&shared.wake), readiness, brought));
        shared.task.get_or_init(|| task.abort_handle());
        Ok(shared)
    }

    /// Does something under the lock, and what comes of it.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let done = f(&mut state, now);
        let worked = state.drive(now);
        let early = state.deadline().is_some_and(|at| state.armed.is_none_or(|armed| at < armed));
        let blocked = state.is_blocked();
        drop(state);
        if worked {
            self.work.notify_one();
        }
        if early || blocked {
            self.wake.notify_one();
        }
        done
    }

    /// Does something under the lock that leads to no message.
    pub(super) fn look<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        f(&mut state, now)
    }

    pub(super) fn stats(&self) -> NodeStats {
        let state = self.lock();
        let messages = match &state.below {
            Below::Flows(flows) => flows.1.stats(),
            Below::Streams(_) => messages::Stats::default(),
        };
        NodeStats {
            caller: state.caller.stats(),
            worker: state.worker.stats(),
            messages,
            calls_known: state.caller.known(),
            requests_known: state.worker.known(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.caller.is_empty() && state.worker.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sets the task's alarm; when that is, and whether frames wait for the send buffer.
    fn arm(&self) -> (Option<Clock>, bool) {
        let mut state = self.lock();
        state.armed = state.deadline();
        (state.armed.map(|at| self.origin + Duration::from_nanos(at.0)), state.is_blocked())
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

fn streams(streams: Streams) -> (Below, SocketAddr, Option<Readiness>) {
    let local = streams.local_addr();
    (Below::Streams(streams), local, None)
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

/// Receives for a node, and lets time pass, as long as anybody has it.
async fn run(
    node: Weak<Shared>,
    wake: Arc<Notify>,
    readiness: Option<Readiness>,
    mut brought: mpsc::UnboundedReceiver<Event>,
) {
    loop {
        let Some((alarm, blocked)) = node.upgrade().map(|node| node.arm()) else { return };
        let timer = pin!(async {
            match alarm {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        });
        let frames = async {
            match &readiness {
                Some(readiness) => readiness.ready(blocked).await,
                None => pending().await,
            }
        };
        let event = tokio::select! {
            () = wake.notified() => None,
            () = timer => None,
            // Flows bring nothing by this way: its end is no event.
            Some(event) = brought.recv() => Some(event),
            ready = frames => {
                if ready.is_err() {
                    return;
                }
                None
            }
        };
        let Some(node) = node.upgrade() else { return };
        node.with(|state, now| {
            event.into_iter().for_each(|event| state.take(now, event));
            while let Ok(event) = brought.try_recv() {
                state.take(now, event);
            }
            state.receive(now);
        });
    }
}

impl State {
    /// The state machines, and where they put messages.
    pub(super) fn split(&mut self, now: Instant) -> (&mut Caller, &mut Worker, Out<'_>) {
        (&mut self.caller, &mut self.worker, Out { below: &mut self.below, now })
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

    /// Does what is due; whether a request waits.
    fn drive(&mut self, now: Instant) -> bool {
        loop {
            let (caller, worker, mut out) = self.split(now);
            caller.poll(now, &mut out);
            worker.poll(now, &mut out);
            let Below::Flows(flows) = &mut self.below else { break };
            let (link, messages) = &mut **flows;
            messages.poll(now, &mut |to, frame| link.queue(to, frame));
            link.flush();
            let events: Vec<Event> = std::iter::from_fn(|| messages.next_event()).collect();
            if events.is_empty() {
                break;
            }
            events.into_iter().for_each(|event| self.take(now, event));
        }
        self.tell();
        self.worker.is_waiting()
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
            let (call, told, over) = match event {
                CallerEvent::Reply { call, from, item } => (call, Told::Reply(from, item), false),
                CallerEvent::Ended { call, outcome } => (call, Told::Ended(outcome), false),
                CallerEvent::Trace { call, tree } => (call, Told::Trace(tree), true),
            };
            // Whoever has dropped its call wants to hear no more.
            let gone = self.calls.get(&call).is_some_and(|line| line.send(told).is_err());
            if gone || over {
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
                        waiting.granted.notify_one();
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
