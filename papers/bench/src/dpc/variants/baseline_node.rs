//! Node of plain remote calls: the baseline of [`Node`](pathcall_driver::node::Node), with the same sessions
//! over UDP, lock, task and queues, but without delegation.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use pathcall_driver::event_channel::EventSender;
use pathcall_driver::held_acks::HeldAcks;
use pathcall_driver::link::{Link, PollMode, Readiness};
use pathcall_driver::task_waker::{TaskWaker, WakeState};
use pathcall_endpoint::delegate::{ContextId, MessageOutbox, NodeId, PeerNode, is_for_caller};
use pathcall_endpoint::messages::{self, Event, Messages};
use pathcall_models::delegate::baseline::{BaselineCaller, serve};
use pathcall_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::Notify;

/// Handle to a node. Dropping the last handle stops the node.
#[derive(Clone)]
pub(crate) struct BaselineNode(Arc<SharedNode>);

/// Incoming requests of a node.
pub(crate) struct BaselineRequests(Arc<SharedNode>);

/// Request that waits for its answer.
pub(crate) struct BaselineRequest {
    node: Arc<SharedNode>,
    from: PeerNode,
    message: Bytes,
    payload: Bytes,
}

struct SharedNode {
    state: Mutex<NodeState>,
    work: Notify,
    origin: Clock,
    address: SocketAddr,
}

struct NodeState {
    caller: BaselineCaller,
    link: Link,
    messages: Messages,
    calls: HashMap<ContextId, Arc<EventSender<Bytes>>>,
    /// Requests that are not yet received.
    waiting: VecDeque<(PeerNode, Bytes)>,
    wake_state: WakeState,
    held_acks: HeldAcks,
}

/// Outbox of the state machine.
struct MachineOutbox<'a>(&'a mut Messages, Instant);

impl MessageOutbox for MachineOutbox<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.send(self.1, to, head, payload);
    }
}

impl BaselineNode {
    /// Starts a node, which busy-polls for this time after each message.
    pub(crate) async fn start(at: SocketAddr, busy_poll: Duration) -> io::Result<(Self, BaselineRequests)> {
        let link = Link::bind(at)?;
        let (address, readiness) = (link.local_addr(), link.readiness());
        let id = NodeId::new(random()?);
        let messages = Messages::new(messages::Config::new(id.bits(), [random()?, random()?]));
        let caller = BaselineCaller::new(id);
        let (calls, waiting) = (HashMap::new(), VecDeque::new());
        let (wake_state, held_acks) = (WakeState::with_busy_poll(busy_poll), HeldAcks::new(busy_poll));
        let state = Mutex::new(NodeState { caller, link, messages, calls, waiting, wake_state, held_acks });
        let shared = Arc::new(SharedNode { state, work: Notify::new(), origin: Clock::now(), address });
        tokio::spawn(run(Arc::downgrade(&shared), shared.origin, readiness));
        Ok((Self(Arc::clone(&shared)), BaselineRequests(shared)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Calls a server; `answer` receives the answer.
    pub(crate) fn call(&self, to: SocketAddr, request: &Bytes, answer: Arc<EventSender<Bytes>>) {
        self.0.with(|state, now| {
            let call = state.caller.call(to, request, &mut MachineOutbox(&mut state.messages, now));
            state.calls.insert(call, answer);
        });
    }
}

impl BaselineRequests {
    /// Receives the next request.
    pub(crate) async fn receive(&self) -> BaselineRequest {
        loop {
            let waiting = self.0.lock().waiting.pop_front();
            if let Some((from, message)) = waiting {
                let payload = message.slice(pathcall_models::delegate::baseline::REQUEST_LEN.min(message.len())..);
                return BaselineRequest { node: Arc::clone(&self.0), from, message, payload };
            }
            self.0.work.notified().await;
        }
    }
}

impl BaselineRequest {
    pub(crate) fn payload(&self) -> &Bytes {
        &self.payload
    }

    pub(crate) fn reply(self, item: Bytes) {
        let Self { node, from, message, .. } = self;
        node.with(|state, now| serve(from, &message, |_| item, &mut MachineOutbox(&mut state.messages, now)));
    }
}

impl SharedNode {
    /// Runs `f` with the locked state, and processes its effects.
    fn with<R>(&self, f: impl FnOnce(&mut NodeState, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let done = f(&mut state, now);
        state.wake_state.note_message(now);
        state.drive(now);
        let (by, blocked, waits) = (state.messages.deadline(), state.link.is_blocked(), !state.waiting.is_empty());
        let task = state.wake_state.take_waker(by, blocked);
        drop(state);
        if waits {
            self.work.notify_one();
        }
        task.into_iter().for_each(Waker::wake);
        done
    }

    /// One iteration of the task: receives frames, and processes due timers.
    fn run_once(&self) {
        let mut state = self.lock();
        let now = self.now();
        let received = state.receive(now);
        if received {
            state.wake_state.note_message(now);
        }
        let NodeState { held_acks, messages, .. } = &mut *state;
        held_acks.hold(now, received, messages);
        state.drive(now);
        let waits = !state.waiting.is_empty();
        drop(state);
        if waits {
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn arm(&self, task_waker: &mut TaskWaker, task: &Waker) -> bool {
        let mut state = self.lock();
        let by = state.messages.deadline();
        task_waker.arm(&mut state.wake_state, by, task);
        if state.held_acks.is_holding()
            && let now = self.now()
            && state.held_acks.take_due(now, task_waker.polls())
        {
            state.drive(now);
            let by = state.messages.deadline();
            task_waker.arm(&mut state.wake_state, by, task);
        }
        state.link.is_blocked()
    }
}

impl NodeState {
    fn drive(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.messages.next_event() {
                self.take(event);
            }
            if !self.held_acks.send_frames(now, &mut self.messages, &mut self.link) {
                return;
            }
        }
    }

    fn take(&mut self, event: Event) {
        let Event::Arrived { node, from, message } = event else { return };
        if !is_for_caller(&message) {
            return self.waiting.push_back((PeerNode { node: NodeId::new(node), address: from }, message));
        }
        let Some((call, answer)) = self.caller.handle(&message) else { return };
        if let Some(line) = self.calls.remove(&call) {
            // A dropped call needs no answer.
            line.send(answer);
        }
    }

    fn receive(&mut self, now: Instant) -> bool {
        let Self { link, messages, .. } = self;
        // An error concerns one datagram, which its session recovers.
        let received = link.exchange(PollMode::IfReady, |out, from, ce, frame| {
            messages.handle(now, from, frame, ce, &mut |to, frame| out.queue(to, frame));
        });
        received.is_ok_and(|frames| frames > 0)
    }
}

/// Task of a node: receives frames and processes timers while a handle exists.
async fn run(node: Weak<SharedNode>, origin: Clock, readiness: Readiness) {
    let mut task_waker = TaskWaker::new(origin);
    poll_fn(|cx| {
        loop {
            let Some(node) = node.upgrade() else { return Poll::Ready(()) };
            let blocked = node.arm(&mut task_waker, cx.waker());
            match task_waker.poll(cx, Some((&readiness, blocked))) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => node.run_once(),
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
