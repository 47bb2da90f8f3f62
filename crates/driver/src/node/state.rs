//! State of a node behind one lock, and the task that receives messages for it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant as Clock;

use bytes::Bytes;
use pathcall_wire::delegate::{ContextId, NodeId, add_wait};
use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::call::CallEvent;
use super::request::RequestNotifier;
use super::task::{self, Source};
use super::{NodeConfig, NodeStats, RecordHistory, ServerObserver, Transport, advertised_address};
use crate::event_channel::EventSender;
use crate::held_acks::HeldAcks;
use crate::link::{Link, PollMode};
use crate::streams::{EventSink, Streams};
use crate::task_waker::{TaskWaker, WakeState};
use pathcall_endpoint::delegate::caller::{CallerEvent, DelegateCaller, DelegateCallerConfig};
use pathcall_endpoint::delegate::context_map::ContextMap;
use pathcall_endpoint::delegate::load::LoadReports;
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig, WorkerEvent};
use pathcall_endpoint::delegate::{MessageOutbox, RequestId, earlier};
use pathcall_endpoint::messages::{self, Event, Messages};

/// Node state and its task, shared by the node's handles, calls and requests.
pub(super) struct NodeShared {
    state: Mutex<State>,
    /// Notified when a request waits to be processed.
    pub(super) request_waiting: Notify,
    origin: Clock,
    pub(super) id: NodeId,
    pub(super) address: SocketAddr,
    task: OnceLock<AbortHandle>,
}

/// State machines of a node's calls and requests, and the transport of their messages.
pub(super) struct State {
    pub(super) caller: DelegateCaller,
    pub(super) worker: DelegateWorker,
    transport: MessageTransport,
    /// Event channels of the calls.
    pub(super) calls: ContextMap<CallEvents>,
    /// Notifications to the requests in progress.
    pub(super) requests: ContextMap<Arc<RequestNotifier>>,
    /// Observers of servers; some may be gone.
    pub(super) observers: Vec<Weak<dyn ServerObserver>>,
    pub(super) load_reports: LoadReports,
    /// Channel of obsolete records.
    obsolete: Option<ObsoleteSender>,
    /// Wake-up state of the task.
    wake_state: WakeState,
    /// Messages were queued and not sent yet.
    sent: bool,
    held_acks: HeldAcks,
}

/// Event channel of a call.
pub(super) struct CallEvents {
    pub(super) sender: EventSender<CallEvent>,
    /// More events follow the end: the call may be made again, or its trace comes.
    pub(super) more_events: bool,
}

/// Channel of the calls and requests whose records are obsolete.
type ObsoleteSender = mpsc::UnboundedSender<(ContextId, RequestId)>;

/// Transport of messages.
enum MessageTransport {
    Flows(Box<(Link, Messages)>),
    Streams(Streams),
}

/// Outbox of the state machines.
pub(super) struct MachineOutbox<'a> {
    transport: &'a mut MessageTransport,
    now: Instant,
    sent: &'a mut bool,
}

impl MessageOutbox for MachineOutbox<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        *self.sent = true;
        match self.transport {
            MessageTransport::Flows(flows) => flows.1.send(self.now, to, head, payload),
            MessageTransport::Streams(streams) => streams.send(to, head, payload),
        }
    }
}

impl NodeShared {
    pub(super) async fn start(
        config: &NodeConfig,
        (id, seed): (NodeId, [u64; 2]),
        history: RecordHistory,
        obsolete: Option<ObsoleteSender>,
    ) -> io::Result<Arc<Self>> {
        let (forward, incoming) = mpsc::unbounded_channel();
        // The receiver is gone when the node has ended.
        let sink: EventSink = Arc::new(move |event| drop(forward.send(event)));
        let (transport, local) = match &config.transport {
            Transport::Flows => {
                let link = Link::bind(config.listen)?;
                let local = link.local_addr();
                let messages = messages::Config::new(id.bits(), seed);
                let messages = messages::Config { key: config.key, wait: Some(add_wait), ..messages };
                let messages = Messages::new(messages);
                (MessageTransport::Flows(Box::new((link, messages))), local)
            }
            Transport::Tcp => streams(Streams::tcp(id.bits(), config.listen, config.key, sink).await?),
            #[cfg(feature = "quic")]
            Transport::Quic(tls) => streams(Streams::quic(id.bits(), config.listen, tls, sink).await?),
        };
        let address = advertised_address(config, local)?;
        let caller =
            DelegateCallerConfig { requests_max: config.requests_max, ..DelegateCallerConfig::new(id, address) };
        let busy_poll = config.busy_poll;
        let config = DelegateWorkerConfig {
            order: config.order,
            flush: config.flush,
            depth_max: config.depth_max,
            stall: config.stall,
            ..DelegateWorkerConfig::new(id, address)
        };
        let mut worker = DelegateWorker::new(config);
        history.records.into_iter().for_each(|record| worker.restore(Instant(0), record));
        history.ended.into_iter().for_each(|last| worker.restore_ended(last));
        let state = State {
            caller: DelegateCaller::new(caller),
            worker,
            transport,
            calls: ContextMap::default(),
            requests: ContextMap::default(),
            observers: Vec::new(),
            load_reports: LoadReports::default(),
            obsolete,
            wake_state: WakeState::with_busy_poll(busy_poll),
            sent: false,
            held_acks: HeldAcks::new(busy_poll),
        };
        let from = match &state.transport {
            MessageTransport::Flows(flows) => Source::Link(flows.0.readiness()),
            MessageTransport::Streams(_) => Source::Streams(incoming),
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            request_waiting: Notify::new(),
            origin: Clock::now(),
            id,
            address,
            task: OnceLock::new(),
        });
        let task = tokio::spawn(task::run(Arc::downgrade(&shared), shared.origin, from));
        shared.task.get_or_init(|| task.abort_handle());
        Ok(shared)
    }

    /// Runs `f` under the lock and sends the resulting messages at once; the task does whatever else is due.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let done = f(&mut state, now);
        if state.sent {
            state.wake_state.note_message(now);
            state.drive(now);
        } else {
            state.deliver_events();
        }
        let (by, blocked) = (state.deadline(), state.is_blocked());
        let task = state.wake_state.take_waker(by, blocked);
        drop(state);
        task.into_iter().for_each(Waker::wake);
        done
    }

    /// Runs `f` under the lock; `f` must not send messages.
    pub(super) fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.lock())
    }

    /// Runs one turn of the task: handles received messages, and does what is due.
    pub(super) fn run_once(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        let now = self.now();
        let by_streams = !events.is_empty();
        events.drain(..).for_each(|event| state.handle_event(now, event));
        let received = state.receive(now) || by_streams;
        if received {
            state.wake_state.note_message(now);
        }
        state.hold_acks(now, received);
        state.drive(now);
        let waiting = state.worker.is_waiting();
        drop(state);
        if waiting {
            self.request_waiting.notify_one();
        }
    }

    pub(super) fn stats(&self) -> NodeStats {
        let state = self.lock();
        let messages = match &state.transport {
            MessageTransport::Flows(flows) => flows.1.stats(),
            MessageTransport::Streams(streams) => streams.stats(),
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
        self.with(|state, now| match &mut state.transport {
            MessageTransport::Flows(flows) => flows.1.set_key(now, key),
            MessageTransport::Streams(streams) => streams.set_key(key),
        });
    }

    pub(super) fn key(&self) -> Option<TokenKey> {
        match &self.lock().transport {
            MessageTransport::Flows(flows) => flows.1.key(),
            MessageTransport::Streams(streams) => streams.key(),
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

    /// Arms the timer before the task waits; returns whether frames wait for the send buffer.
    pub(super) fn arm(&self, task_waker: &mut TaskWaker, task: &Waker) -> bool {
        let mut state = self.lock();
        let by = state.deadline();
        task_waker.arm(&mut state.wake_state, by, task);
        if state.held_acks.is_holding()
            && let now = self.now()
            && state.held_acks.take_due(now, task_waker.polls())
        {
            state.drive(now);
            let by = state.deadline();
            task_waker.arm(&mut state.wake_state, by, task);
        }
        state.is_blocked()
    }
}

impl fmt::Debug for NodeShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id).field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for NodeShared {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

fn streams(streams: Streams) -> (MessageTransport, SocketAddr) {
    let local = streams.local_addr();
    (MessageTransport::Streams(streams), local)
}

impl State {
    /// Splits the state into the state machines and their outbox.
    pub(super) fn split(&mut self, now: Instant) -> (&mut DelegateCaller, &mut DelegateWorker, MachineOutbox<'_>) {
        let Self { caller, worker, transport, sent, .. } = self;
        (caller, worker, MachineOutbox { transport, now, sent })
    }

    /// Receives one batch of frames; returns whether there were any.
    fn receive(&mut self, now: Instant) -> bool {
        let MessageTransport::Flows(flows) = &mut self.transport else { return false };
        let (link, messages) = &mut **flows;
        // An error concerns one datagram (an unreachable peer, for example): the session handles the loss.
        let received = link.exchange(PollMode::IfReady, |out, from, ce, frame| {
            messages.handle(now, from, frame, ce, &mut |to, frame| out.queue(to, frame));
        });
        received.is_ok_and(|frames| frames > 0)
    }

    /// Does what is due, and sends the resulting messages.
    fn drive(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.next_event() {
                self.handle_event(now, event);
            }
            let (caller, worker, mut out) = self.split(now);
            caller.poll(now, &mut out);
            worker.poll(now, &mut out);
            if !self.send_frames(now) {
                break;
            }
        }
        self.sent = false;
        self.deliver_events();
    }

    /// Lets the acknowledgements of a node that polls wait for a message to the same peer.
    fn hold_acks(&mut self, now: Instant, received: bool) {
        if let MessageTransport::Flows(flows) = &self.transport {
            self.held_acks.hold(now, received, &flows.1);
        }
    }

    /// Sends the frames that are due; returns whether the transport has events instead.
    fn send_frames(&mut self, now: Instant) -> bool {
        let MessageTransport::Flows(flows) = &mut self.transport else { return false };
        let (link, messages) = &mut **flows;
        self.held_acks.send_frames(now, messages, link)
    }

    fn next_event(&mut self) -> Option<Event> {
        match &mut self.transport {
            MessageTransport::Flows(flows) => flows.1.next_event(),
            MessageTransport::Streams(_) => None,
        }
    }

    /// Delivers events to the waiting calls and requests.
    fn deliver_events(&mut self) {
        while let Some(event) = self.caller.next_event() {
            let (call, event) = match event {
                CallerEvent::Reply { call, from, item } => (call, CallEvent::Reply(from, item)),
                CallerEvent::Ended { call, outcome } => (call, CallEvent::Ended(outcome)),
                CallerEvent::Trace { call, tree } => (call, CallEvent::Trace(tree)),
            };
            let Some(call_events) = self.calls.get(&call) else { continue };
            let over = match &event {
                CallEvent::Reply(..) => false,
                CallEvent::Ended(_) => !call_events.more_events,
                CallEvent::Trace(_) => true,
            };
            // The receiver is gone if the call was dropped.
            if !call_events.sender.send(event) || over {
                self.calls.remove(&call);
            }
        }
        while let Some(event) = self.worker.next_event() {
            match event {
                WorkerEvent::Aborted { execution, .. } => {
                    if let Some(notifier) = self.requests.get(&execution) {
                        notifier.abort();
                    }
                }
                WorkerEvent::Granted { execution } => {
                    if let Some(notifier) = self.requests.get(&execution) {
                        notifier.wake_replies();
                    }
                }
                WorkerEvent::RecordObsolete { call, request } => {
                    // Obsolete records are announced only if a receiver is registered.
                    let _ = self.obsolete.as_ref().map(|obsolete| obsolete.send((call, request)));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let transport = match &self.transport {
            MessageTransport::Flows(flows) => flows.1.deadline(),
            MessageTransport::Streams(_) => None,
        };
        earlier(earlier(self.caller.next_deadline(), self.worker.next_deadline()), transport)
    }

    fn is_blocked(&self) -> bool {
        matches!(&self.transport, MessageTransport::Flows(flows) if flows.0.is_blocked())
    }
}
