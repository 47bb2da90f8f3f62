//! State of a shard of a node behind one lock.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant as Clock;

use pathcall_wire::delegate::{ContextId, NodeId};
use pathcall_wire::{Instant, TokenKey};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::call::CallEvent;
use super::request::RequestNotifier;
use super::shards::ShardGroup;
use super::task::Source;
use super::transport::{MachineOutbox, MessageTransport};
use super::{NodeConfig, NodeStats, RecordHistory, ServerObserver, advertised_address};
use crate::event_channel::EventSender;
use crate::held_acks::HeldAcks;
use crate::link::PollMode;
use crate::task_waker::{TaskWaker, WakeState};
use pathcall_endpoint::delegate::caller::{CallOutcome, CallerEvent, DelegateCaller, DelegateCallerConfig};
use pathcall_endpoint::delegate::context_map::ContextMap;
use pathcall_endpoint::delegate::load::LoadReports;
use pathcall_endpoint::delegate::shards::{PeerShards, ShardNotices, shard_of_message};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig, WorkerEvent};
use pathcall_endpoint::delegate::{RequestId, earlier};
use pathcall_endpoint::messages::Event;

/// State of a shard and its task, shared by the node's handles, calls and requests. Shards share no cache line.
#[repr(align(128))]
pub(super) struct NodeShared {
    state: Mutex<State>,
    /// Notified when a request waits in this shard, if there are others; the group is notified in any case.
    pub(super) request_waiting: Notify,
    group: Arc<ShardGroup>,
    pub(super) origin: Clock,
    pub(super) id: NodeId,
    pub(super) address: SocketAddr,
    task: OnceLock<AbortHandle>,
}

/// State machines of a shard's calls and requests, and the transport of their messages.
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
    /// Shards of other nodes.
    pub(super) peer_shards: PeerShards,
    pub(super) shard_notices: ShardNotices,
    pub(super) group: Arc<ShardGroup>,
    /// Index of the shard.
    pub(super) index: usize,
    /// Events for other shards, in a list for each.
    pub(super) handed_over: Vec<Vec<Event>>,
    /// Number of events that other shards have handed over.
    pub(super) taken_over: u64,
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
pub(super) type ObsoleteSender = mpsc::UnboundedSender<(ContextId, RequestId)>;

impl NodeShared {
    /// Binds the shard's socket, on `runtime`. Its task is to be spawned with the returned source.
    pub(super) async fn new(
        config: &NodeConfig,
        runtime: &Handle,
        (group, index): (Arc<ShardGroup>, usize),
        (id, seed): (NodeId, [u64; 2]),
        history: RecordHistory,
        obsolete: Option<ObsoleteSender>,
    ) -> io::Result<(Self, Source)> {
        let (transport, local, source) = MessageTransport::start(config, runtime, (id, seed)).await?;
        let address = advertised_address(config, local)?;
        let caller = DelegateCallerConfig {
            requests_max: config.requests_max,
            shard: (index, group.loads.len()),
            ..DelegateCallerConfig::new(id, address)
        };
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
            peer_shards: PeerShards::default(),
            shard_notices: ShardNotices::default(),
            handed_over: group.loads.iter().map(|_| Vec::new()).collect(),
            taken_over: 0,
            group: Arc::clone(&group),
            index,
            obsolete,
            wake_state: WakeState::with_busy_poll(busy_poll),
            sent: false,
            held_acks: HeldAcks::new(busy_poll),
        };
        let shared = Self {
            state: Mutex::new(state),
            request_waiting: Notify::new(),
            group,
            origin: Clock::now(),
            id,
            address,
            task: OnceLock::new(),
        };
        Ok((shared, source))
    }

    /// Spawns the task of the shard, which ends with it.
    pub(super) fn spawn_task(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.task.get_or_init(|| runtime.spawn(task).abort_handle());
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
        state.record_load();
        drop(state);
        task.into_iter().for_each(Waker::wake);
        done
    }

    /// Runs `f` under the lock; `f` must not send messages.
    pub(super) fn with_state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.lock())
    }

    /// Runs one turn of the task: handles received messages, and does what is due. `handed_over`, an empty list for each
    /// shard, gets the events for other shards.
    pub(super) fn run_once(&self, events: &mut Vec<Event>, handed_over: &mut Vec<Vec<Event>>) {
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
        state.record_load();
        std::mem::swap(handed_over, &mut state.handed_over);
        let waiting = state.worker.is_waiting();
        drop(state);
        if waiting {
            self.notify_request_waiting();
        }
    }

    /// Handles events that another shard received.
    pub(super) fn take_over(&self, events: &mut Vec<Event>) {
        let waiting = self.with(|state, now| {
            events.drain(..).for_each(|event| state.handle_handed_over(now, event));
            state.wake_state.note_message(now);
            state.worker.is_waiting()
        });
        if waiting {
            self.notify_request_waiting();
        }
    }

    /// Notifies the receivers of requests.
    pub(super) fn notify_request_waiting(&self) {
        self.group.request_waiting.notify_one();
        if self.group.loads.len() > 1 {
            self.request_waiting.notify_one();
        }
    }

    pub(super) fn stats(&self) -> NodeStats {
        let state = self.lock();
        NodeStats {
            caller: state.caller.stats(),
            worker: state.worker.stats(),
            messages: state.transport.stats(),
            calls_known: state.caller.known(),
            requests_known: state.worker.known(),
            handed_over: state.taken_over,
        }
    }

    pub(super) fn set_key(&self, key: Option<TokenKey>) {
        self.with(|state, now| state.transport.set_key(now, key));
    }

    pub(super) fn key(&self) -> Option<TokenKey> {
        self.lock().transport.key()
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

impl State {
    /// Splits the state into the state machines and their outbox.
    pub(super) fn split(&mut self, now: Instant) -> (&mut DelegateCaller, &mut DelegateWorker, MachineOutbox<'_>) {
        let Self { caller, worker, transport, sent, peer_shards, .. } = self;
        (caller, worker, MachineOutbox { transport, now, sent, peer_shards })
    }

    /// Lets other shards know the load.
    pub(super) fn record_load(&self) {
        let waiting = self.worker.waiting_requests();
        self.group.loads[self.index].record(self.requests.len() + waiting, waiting);
    }

    /// Other shard that handles a message with this head, if it is not this one.
    pub(super) fn other_shard_of(&self, head: &[u8]) -> Option<usize> {
        shard_of_message(head, self.group.loads.len()).filter(|shard| *shard != self.index)
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
            while let Some(event) = self.transport.next_event() {
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

    /// Delivers events to the waiting calls and requests.
    fn deliver_events(&mut self) {
        while let Some(event) = self.caller.next_event() {
            let (call, event) = match event {
                CallerEvent::Reply { call, from, item } => (call, CallEvent::Reply(from, item)),
                CallerEvent::Ended { call, mut outcome } => {
                    if let CallOutcome::Failed(failure) = &mut outcome
                        && let Some(server) = failure.server_mut()
                    {
                        *server = self.peer_shards.node(*server);
                    }
                    (call, CallEvent::Ended(outcome))
                }
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
        earlier(earlier(self.caller.next_deadline(), self.worker.next_deadline()), self.transport.deadline())
    }

    fn is_blocked(&self) -> bool {
        self.transport.is_blocked()
    }
}
