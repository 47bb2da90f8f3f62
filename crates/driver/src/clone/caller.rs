//! Driver of a clone caller: [`CloneCallerHandle::call`] from any thread, frames by one socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pathcall_wire::clone::{groups, pair};
use pathcall_wire::{CloneFrame, FrameKind, Instant, TokenKey};
use tokio::sync::oneshot;

use super::super::endpoint_driver::{DriverHandle, EndpointDriver, StateMachine};
use super::super::link::Link;
use super::{FrameBuffer, PoolAddresses};
use pathcall_endpoint::clone::{
    CloneAnswer, CloneCall, CloneCallId, CloneCaller, CloneCallerConfig, CloneCallerStats, CloneDestination,
    CloneFailure, Event, PolicyStats, StartError,
};
use pathcall_endpoint::tables::FixedHashMap;

/// Failure of a cloned call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloneCallError {
    /// The call was not made.
    #[error(transparent)]
    Refused(#[from] StartError),
    /// The call failed.
    #[error(transparent)]
    Failed(#[from] CloneFailure),
    /// The caller has stopped.
    #[error("the caller has stopped")]
    Stopped,
}

type Reply = oneshot::Sender<Result<CloneAnswer, CloneCallError>>;

/// Handle to the caller of one pool. When the last clone is dropped the endpoint stops.
#[derive(Debug, Clone)]
pub struct CloneCallerHandle {
    handle: Arc<HandleShared>,
    busy_poll: Duration,
}

/// State shared by all clones of a [`CloneCallerHandle`].
#[derive(Debug)]
struct HandleShared {
    shared: DriverHandle<Calls>,
    next: AtomicU64,
}

impl CloneCallerHandle {
    /// Starts the caller on the current tokio runtime. Its pool is that of `addresses`; `key` signs the pool's frames,
    /// if they carry tokens.
    #[must_use]
    pub fn spawn(config: CloneCallerConfig, addresses: PoolAddresses, key: Option<TokenKey>, link: Link) -> Self {
        let element_holds = addresses.element_holds;
        let config = CloneCallerConfig { pool: addresses.pool.clone(), element_holds, ..config };
        let calls = Calls {
            // The driver's time starts at 0.
            caller: CloneCaller::new(Instant::default(), config),
            addresses,
            buffer: FrameBuffer::new(key),
            started: FixedHashMap::default(),
            waiting: FixedHashMap::default(),
        };
        let shared = EndpointDriver::new(calls, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self {
            handle: Arc::new(HandleShared { shared: DriverHandle(shared), next: AtomicU64::new(0) }),
            busy_poll: Duration::ZERO,
        }
    }

    /// Sets how long each call polls the socket for its answer before it waits. Ready tasks run before each poll.
    #[must_use]
    pub fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// Makes one call. Dropping the future cancels the call, also at the servers that may have it.
    ///
    /// # Errors
    /// [`CloneCallError`].
    pub async fn call(&self, call: CloneCall) -> Result<CloneAnswer, CloneCallError> {
        let HandleShared { shared, next } = &*self.handle;
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let mut guard = CancelOnDrop { number, calls: Some(shared) };
        let start = |calls: &mut Calls, now, _: &mut Link| match calls.caller.start_call(now, call) {
            Ok(call) => {
                calls.started.insert(number, call);
                calls.waiting.insert(call, (number, reply));
            }
            Err(error) => drop(reply.send(Err(error.into()))),
        };
        shared.command(start).map_err(|_| CloneCallError::Stopped)?;
        if !self.busy_poll.is_zero() {
            shared.busy_poll_until(&answer, self.busy_poll).await;
        }
        let answer = answer.await.unwrap_or(Err(CloneCallError::Stopped));
        guard.calls = None;
        answer
    }

    /// Updates the pool and the addresses of its members.
    pub fn renew(&self, addresses: PoolAddresses) {
        // A caller that has stopped sends nothing.
        let _ = self.handle.shared.command(|calls, now, _| calls.renew(now, addresses));
    }

    /// Returns a sender of pool updates, which does not keep the caller running.
    #[must_use]
    pub fn pool_update_sender(&self) -> PoolUpdateSender {
        PoolUpdateSender(Arc::downgrade(&self.handle))
    }

    /// Counters of this caller.
    #[must_use]
    pub fn stats(&self) -> CloneCallerStats {
        let shared = self.handle.shared.lock();
        let stats = shared.machine.caller.stats();
        CloneCallerStats { ignored: stats.ignored + shared.machine.buffer.unauthentic, ..stats }
    }

    /// Policy of the automatic calls with this budget; `None`: there have been none.
    #[must_use]
    pub fn policy(&self, budget: u8) -> Option<PolicyStats> {
        self.handle.shared.lock().machine.caller.policy(budget)
    }

    /// Returns whether the element answers, as far as this caller knows.
    #[must_use]
    pub fn by_element(&self) -> bool {
        let state = self.handle.shared.lock();
        state.machine.addresses.element.is_some() && state.machine.caller.by_element()
    }
}

/// Sender of pool updates to a caller.
#[derive(Debug, Clone)]
pub struct PoolUpdateSender(Weak<HandleShared>);

impl PoolUpdateSender {
    /// Updates the pool as [`CloneCallerHandle::renew`] does; false when the caller has stopped.
    pub fn renew(&self, addresses: PoolAddresses) -> bool {
        self.0
            .upgrade()
            .is_some_and(|caller| caller.shared.command(|calls, now, _| calls.renew(now, addresses)).is_ok())
    }
}

struct CancelOnDrop<'a> {
    number: u64,
    calls: Option<&'a EndpointDriver<Calls>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.calls {
            // A task that has ended has nothing to cancel.
            let _ = calls.command(|calls, now, _| {
                if let Some(call) = calls.started.remove(&self.number) {
                    calls.waiting.remove(&call);
                    calls.caller.cancel(now, call);
                }
            });
        }
    }
}

struct Calls {
    caller: CloneCaller,
    addresses: PoolAddresses,
    buffer: FrameBuffer,
    started: FixedHashMap<u64, CloneCallId>,
    waiting: FixedHashMap<CloneCallId, (u64, Reply)>,
}

impl Calls {
    fn renew(&mut self, now: Instant, addresses: PoolAddresses) {
        let other = addresses.pool != self.addresses.pool;
        self.addresses = addresses;
        self.caller.set_element_holds(self.addresses.element_holds);
        if other {
            self.caller.set_pool(now, self.addresses.pool.clone());
        }
    }

    /// Destination of the frame of `len` bytes. Without an element, a frame for the element goes where an element that
    /// does not clone would send it: to the first server of the pair.
    fn destination(&mut self, to: CloneDestination, len: usize) -> Option<SocketAddr> {
        let server = match (to, self.addresses.element) {
            (CloneDestination::Endpoint(server), _) => server,
            (CloneDestination::Element, Some(element)) => return Some(element),
            (CloneDestination::Element, None) => {
                let servers = &self.addresses.pool.servers;
                let mut frame = CloneFrame::new_checked(&mut self.buffer.frame[..len]).ok()?;
                if frame.base().dst() == 0 {
                    let grp = frame.head().grp().checked_rem(groups(servers.len()))?;
                    let (first, second) = pair(grp, servers.len())?;
                    // A cancellation names the server that has the request; it is for the other one.
                    let other = frame.kind() == FrameKind::CloneCancel && frame.head().sid() == first;
                    let sid = if other { second } else { first };
                    frame.base_mut().set_dst(*servers.get(usize::from(sid))?);
                }
                frame.base().dst()
            }
        };
        self.addresses.server(server)
    }

    fn end(&mut self, call: CloneCallId, outcome: Result<CloneAnswer, CloneCallError>) {
        if let Some((number, reply)) = self.waiting.remove(&call) {
            self.started.remove(&number);
            // The receiver is gone if the call was dropped concurrently.
            let _ = reply.send(outcome);
        }
    }
}

impl StateMachine for Calls {
    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
        if self.buffer.admits(frame) {
            self.caller.receive(now, frame);
        }
    }

    fn poll(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.caller.poll(now);
        while let Some((to, len)) = self.caller.transmit(now, &mut self.buffer.frame) {
            if let Some(at) = self.destination(to, len) {
                send(at, self.buffer.outgoing(len));
            }
        }
    }

    fn deliver_events(&mut self) {
        while let Some(event) = self.caller.next_event() {
            match event {
                Event::Answered(call, answer) => self.end(call, Ok(answer)),
                Event::Failed(call, failure) => self.end(call, Err(failure.into())),
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.caller.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.addresses.element
    }

    fn close(&mut self, _: Instant) {}

    /// Always idle: when the last handle is dropped, no call waits.
    fn is_idle(&self) -> bool {
        true
    }

    fn on_driver_dropped(&mut self) {
        self.started.clear();
        self.waiting.clear();
    }
}
