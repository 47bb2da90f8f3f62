//! Driver of a server's request queue: [`CloneWorkerEvents::next`] returns requests to process, [`ReplySender::finish`]
//! takes replies.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_wire::{Instant, TokenKey};
use tokio::sync::mpsc;

use super::super::endpoint_driver::{DriverHandle, EndpointDriver, StateMachine};
use super::super::link::Link;
use super::{FrameBuffer, LearntAddresses, PoolAddresses, sender, switch_id};
use pathcall_endpoint::clone::{
    CloneDestination, CloneWorker, CloneWorkerConfig, CloneWorkerStats, FailureCause, MESSAGE_MAX, PoolRequest,
    PoolRequestId, Pushback,
};
use pathcall_endpoint::tables::FixedHashMap;

/// Foreign elements whose addresses are known at most; another one replaces any of them.
const ELEMENTS_MAX: usize = 256;

/// Handle to a server's queue; the queue stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct CloneWorkerHandle(Arc<DriverHandle<Queue>>);

/// Event of a server's queue.
#[derive(Debug)]
pub enum CloneWorkerEvent {
    /// A request to process, at once: there are never more than [`CloneWorkerConfig::begun_max`].
    Begin(PoolRequest),
    /// The caller no longer wants the answer. The request counts as in progress until it is finished or dropped.
    Unwanted(PoolRequestId),
    /// The request was cancelled while it waited, and is not to be processed.
    Cancelled(PoolRequest),
}

/// Receiver of a queue's events.
pub struct CloneWorkerEvents {
    events: mpsc::UnboundedReceiver<CloneWorkerEvent>,
    replies: ReplySender,
}

/// Sender of replies; requests in progress are answered also when the queue stops.
#[derive(Clone)]
pub struct ReplySender(Arc<EndpointDriver<Queue>>);

impl CloneWorkerEvents {
    /// Waits for the next event; `None` when the queue has stopped.
    pub async fn next(&mut self) -> Option<CloneWorkerEvent> {
        self.events.recv().await
    }

    /// Returns a sender of replies.
    #[must_use]
    pub fn replies(&self) -> ReplySender {
        self.replies.clone()
    }
}

impl ReplySender {
    /// Finishes a request; `instead` is sent if `reply` is too long for frames.
    pub fn finish(&self, id: PoolRequestId, reply: Bytes, instead: Bytes) {
        let reply = if reply.len() > MESSAGE_MAX { instead } else { reply };
        // A queue that has stopped answers no request; a request that is not in progress belongs to another queue.
        let _ = self.0.command(|queue, _, _| queue.worker.finish(id, reply));
    }

    /// Fails a request on this server, so that another server's answer is preferred; `reply` contains the error. `pushback`
    /// tells the caller when it may ask another server.
    /// `instead` is as in [`finish`](Self::finish).
    pub fn fail(
        &self,
        id: PoolRequestId,
        reply: Bytes,
        instead: Bytes,
        cause: FailureCause,
        pushback: Option<Pushback>,
    ) {
        if reply.len() > MESSAGE_MAX {
            return self.finish(id, reply, instead);
        }
        let _ = self.0.command(|queue, _, _| queue.worker.fail(id, reply, cause, pushback));
    }

    /// Drops a request without an answer: the caller asks again.
    pub fn drop_request(&self, id: PoolRequestId) {
        let _ = self.0.command(|queue, _, _| queue.worker.drop_request(id));
    }
}

impl fmt::Debug for CloneWorkerEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloneWorkerEvents").finish_non_exhaustive()
    }
}

impl fmt::Debug for ReplySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplySender").finish_non_exhaustive()
    }
}

impl CloneWorkerHandle {
    /// Starts the queue on the current tokio runtime. `key` signs the pool's frames, if they carry tokens.
    #[must_use]
    pub fn spawn(
        config: CloneWorkerConfig,
        addresses: PoolAddresses,
        key: Option<TokenKey>,
        link: Link,
    ) -> (Self, CloneWorkerEvents) {
        let (sender, events) = mpsc::unbounded_channel();
        let queue = Queue {
            worker: CloneWorker::new(config),
            addresses,
            buffer: FrameBuffer::new(key),
            callers: LearntAddresses::default(),
            elements: FixedHashMap::default(),
            events: Some(sender),
        };
        let shared = EndpointDriver::new(queue, link);
        tokio::spawn(Arc::clone(&shared).run());
        let replies = ReplySender(Arc::clone(&shared));
        (Self(Arc::new(DriverHandle(shared))), CloneWorkerEvents { events, replies })
    }

    /// Updates the pool; `sid` is this server's id in it.
    pub fn renew(&self, addresses: PoolAddresses, sid: u16) {
        let _ = self.0.command(|queue, _, _| {
            queue.worker.set_sid(sid);
            queue.addresses = addresses;
        });
    }

    /// Counters of this queue.
    #[must_use]
    pub fn stats(&self) -> CloneWorkerStats {
        let shared = self.0.lock();
        let stats = shared.machine.worker.stats();
        CloneWorkerStats { ignored: stats.ignored + shared.machine.buffer.unauthentic, ..stats }
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().machine.worker.waiting()
    }
}

struct Queue {
    worker: CloneWorker,
    addresses: PoolAddresses,
    buffer: FrameBuffer,
    /// Callers whose requests came past the element.
    callers: LearntAddresses,
    /// Addresses of other elements that sent requests, by switch id.
    elements: FixedHashMap<u16, SocketAddr>,
    /// `None` when the queue is to stop.
    events: Option<mpsc::UnboundedSender<CloneWorkerEvent>>,
}

impl Queue {
    /// Records the address for the answers to an admitted request.
    fn note(&mut self, from: SocketAddr, frame: &[u8]) {
        match sender(frame) {
            Some((caller, 0)) => self.callers.note(caller, from),
            Some((_, switch)) => {
                if self.elements.len() >= ELEMENTS_MAX && !self.elements.contains_key(&switch) {
                    // Elements come and go; the one that is removed is learnt again from its next request.
                    let any = self.elements.keys().next().copied();
                    any.map(|any| self.elements.remove(&any));
                }
                self.elements.insert(switch, from);
            }
            None => {}
        }
    }

    /// Passes requests and cancellations to the handlers while workers are free.
    fn begin(&mut self, now: Instant) {
        while let Some(request) = self.worker.begin_next(now) {
            let id = request.id;
            if self.events.as_ref().is_none_or(|events| events.send(CloneWorkerEvent::Begin(request)).is_err()) {
                // No handler receives requests any more.
                self.worker.drop_request(id);
            }
        }
        while let Some(id) = self.worker.next_unwanted() {
            // A stopped receiver has no requests in progress.
            let _ = self.events.as_ref().map(|events| events.send(CloneWorkerEvent::Unwanted(id)));
        }
        while let Some(request) = self.worker.next_cancelled() {
            let _ = self.events.as_ref().map(|events| events.send(CloneWorkerEvent::Cancelled(request)));
        }
    }

    /// Destination of a frame. If the pool's element processed the request, the frame goes to that element at its
    /// configured address; if another element did, to the address from which that element's request came.
    fn destination(&self, to: CloneDestination, frame: &[u8]) -> Option<SocketAddr> {
        let CloneDestination::Endpoint(caller) = to else {
            let switch = switch_id(frame)?;
            let its_own = self.addresses.element.filter(|_| switch == self.addresses.switch_id);
            return its_own.or_else(|| self.elements.get(&switch).copied()).or(self.addresses.element);
        };
        self.callers.find(caller)
    }
}

impl StateMachine for Queue {
    fn handle(&mut self, now: Instant, from: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
        if self.buffer.admits(frame) {
            self.note(from, frame);
            self.worker.receive(now, frame);
            // At once: a request for a free worker does not wait, and a clone in the same batch is accepted.
            self.begin(now);
        }
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.worker.poll(now);
        self.begin(now);
        while let Some((to, len)) = self.worker.transmit(now, &mut self.buffer.frame) {
            if let Some(at) = self.destination(to, &self.buffer.frame[..len]) {
                send(at, self.buffer.outgoing(len));
            }
        }
    }

    fn deliver_events(&mut self) {}

    fn deadline(&self) -> Option<Instant> {
        self.worker.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.addresses.element
    }

    fn close(&mut self, _: Instant) {
        self.events = None;
    }

    /// Idle when no request in progress is left to answer.
    fn is_idle(&self) -> bool {
        self.worker.is_empty()
    }

    fn on_driver_dropped(&mut self) {
        self.events = None;
    }
}
