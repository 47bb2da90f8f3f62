//! Driver of a map caller: [`MapHandle::call`] from any thread, frames by one socket.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::carrier::{CarriedStats, Carrier, frames};
use super::endpoint_driver::{DriverHandle, EndpointDriver, StateMachine};
use super::link::Link;
use pathcall_endpoint::flow::RENEWAL_AT;
use pathcall_endpoint::map::client::{CallId, ClientConfig, ClientStats, MapClient, NewOwner, ServerReachability};
use pathcall_endpoint::map::{CallError, Dest, EpochChange, FrameSink, Operation, Output};
use pathcall_endpoint::tables::FixedHashMap;

/// Calls without a poll after [`FAILED_POLLS_MAX`] failed polls.
const PAUSE_CALLS: u32 = 63;
/// Consecutive failed polls before a pause.
const FAILED_POLLS_MAX: u32 = 4;

type Reply = oneshot::Sender<Result<Output, CallError>>;

/// Handle to one caller of one application. When the last clone is dropped, the calls in progress are completed and
/// the endpoint stops.
#[derive(Debug, Clone)]
pub struct MapHandle {
    caller: Arc<HandleShared>,
    busy_poll: Duration,
    reachability: watch::Receiver<ServerReachability>,
    /// Set when the task ends: true if all calls were completed.
    ended: watch::Receiver<Option<bool>>,
    is_spent: Arc<AtomicBool>,
}

/// State shared by all clones of a [`MapHandle`].
#[derive(Debug)]
struct HandleShared {
    shared: DriverHandle<Caller>,
    next: AtomicU64,
    eager: EagerPoll,
}

impl MapHandle {
    /// Starts the caller on the current tokio runtime. `key` signs the application's frames, if they carry tokens;
    /// `element` and `server` are the addresses of the element and the server.
    #[must_use]
    pub fn spawn(
        config: ClientConfig,
        key: Option<TokenKey>,
        link: Link,
        element: Option<SocketAddr>,
        server: SocketAddr,
    ) -> Self {
        let mut client = MapClient::new(config).authenticate(key);
        client.greet();
        let (reachability_sender, reachability) = watch::channel(ServerReachability::Unknown);
        let is_spent = Arc::<AtomicBool>::default();
        let caller = Caller {
            client,
            element: element.unwrap_or(server),
            server,
            carrier: None,
            carried: CarriedStats::default(),
            waiting: FixedHashMap::default(),
            reachability: reachability_sender,
            spent_after: RENEWAL_AT,
            is_spent: Arc::clone(&is_spent),
        };
        let shared = EndpointDriver::new(caller, link);
        let (end, ended) = watch::channel(None);
        let task = Arc::clone(&shared).run();
        tokio::spawn(async move {
            let idle = task.await;
            end.send_replace(Some(idle));
        });
        Self {
            caller: Arc::new(HandleShared {
                shared: DriverHandle(shared),
                next: AtomicU64::new(0),
                eager: EagerPoll::default(),
            }),
            busy_poll: Duration::ZERO,
            reachability,
            ended,
            is_spent,
        }
    }

    /// Sets how long each call polls the socket for its answer before it waits. Ready tasks run before each poll.
    #[must_use]
    pub fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// Sets how many sequence numbers of a flow may be used before the caller is spent; [`RENEWAL_AT`] by default.
    #[must_use]
    pub fn spent_after(self, numbers: u32) -> Self {
        self.caller.shared.lock().machine.spent_after = numbers;
        self
    }

    /// Returns whether new calls should use another caller, because the sequence numbers of this one run out. Once they
    /// have run out, calls fail with [`CallError::SequenceExhausted`].
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.is_spent.load(Ordering::Relaxed)
    }

    /// Watches the reachability of the server.
    #[must_use]
    pub fn reachability(&self) -> watch::Receiver<ServerReachability> {
        self.reachability.clone()
    }

    /// Returns a port for the caller's gRPC streams.
    #[must_use]
    pub fn port(&self) -> CallerPort {
        CallerPort(Arc::clone(&self.caller.shared.0))
    }

    /// Resolves when the task has ended, some time after the last handle was dropped: true if the server has received
    /// all values that only the element had, false if it did not confirm that in time.
    pub fn ended(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut ended = self.ended.clone();
        async move { ended.wait_for(Option::is_some).await.is_ok_and(|idle| *idle == Some(true)) }
    }

    /// Makes one call. Dropping the future cancels the call: no further frames of it are begun, but those already sent
    /// take effect.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(&self, operation: Operation) -> Result<Output, CallError> {
        self.call_at(operation, |_| {}).await
    }

    /// Makes one call, as [`call`](Self::call), and tells `begun` the number of the first chunk that a sum has.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_at(&self, operation: Operation, begun: impl FnOnce(u64)) -> Result<Output, CallError> {
        let HandleShared { shared, next, eager } = &*self.caller;
        let id = CallId(next.fetch_add(1, Ordering::Relaxed));
        let (reply, outcome) = oneshot::channel();
        let mut guard = CancelOnDrop { id, caller: Some(shared) };
        let start = |caller: &mut Caller, now, _: &mut Link| {
            caller.waiting.insert(id, reply);
            begun(caller.client.next_sum_chunk());
            caller.client.start(now, id, operation);
        };
        shared.command(start).map_err(|_| CallError::Closed)?;
        if self.busy_poll.is_zero() {
            if eager.should_poll() {
                // The poll disarms the wake-up that the task asked for; the end of the poll arms it again.
                shared.busy_poll().receive();
                eager.record_result(!outcome.is_empty());
            }
        } else {
            shared.busy_poll_until(&outcome, self.busy_poll).await;
        }
        let outcome = outcome.await.unwrap_or(Err(CallError::Closed));
        guard.caller = None;
        outcome
    }

    /// Number of the first chunk of the next sum.
    #[must_use]
    pub fn next_sum_chunk(&self) -> u64 {
        self.caller.shared.lock().machine.client.next_sum_chunk()
    }

    /// Counters of this caller.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.caller.shared.lock().machine.client.stats()
    }

    /// Counters of the frames carried in streams.
    #[must_use]
    pub fn carried_stats(&self) -> CarriedStats {
        self.caller.shared.lock().machine.carried
    }
}

/// Port of a caller for its gRPC streams: new epochs, and carried frames in both directions. It does not keep the
/// caller running, and works while the caller closes: the caller then repeats what the old epoch's end interrupted.
#[derive(Clone)]
pub struct CallerPort(Arc<EndpointDriver<Caller>>);

impl CallerPort {
    /// Announces a new epoch, see [`MapClient::renew`]; `element` is the element's address.
    pub fn renew(&self, renewal: &EpochChange, element: Option<SocketAddr>) {
        // A caller that has ended has nothing to repeat, or has abandoned it: the server then answers DATA_LOSS.
        let _ = self.0.command(|caller, now, _| {
            caller.element = element.unwrap_or(caller.server);
            caller.client.renew(now, renewal);
        });
    }

    /// Stops sending until [`resume`](Self::resume), since there is no owner. Returns the epoch that the caller knows;
    /// `None` if the caller has ended.
    pub fn suspend(&self) -> Option<u32> {
        self.0
            .command(|caller, _, _| {
                caller.client.suspend();
                caller.carrier = None;
                caller.client.epoch()
            })
            .ok()
    }

    /// Continues with another owner at this address, see [`MapClient::resume`]; `element` is the element's address.
    pub fn resume(&self, owner: &NewOwner, change: &EpochChange, element: Option<SocketAddr>, server: SocketAddr) {
        let _ = self.0.command(|caller, now, _| {
            (caller.element, caller.server) = (element.unwrap_or(server), server);
            caller.client.resume(now, owner, change);
        });
    }

    /// Carries frames to the server from now on, as long as the carrier's stream lasts.
    pub fn carry(&self, carrier: Carrier) {
        // A caller that has ended sends nothing.
        let _ = self.0.command(|caller, now, _| {
            caller.carrier = Some(carrier);
            caller.client.reroute(now);
            caller.client.greet();
        });
    }

    /// Passes a received batch to the caller; false if the caller has ended.
    pub fn receive(&self, batch: &[u8]) -> bool {
        let received = self.0.command(|caller, now, _| {
            for frame in frames(batch) {
                caller.carried.frames_in += 1;
                caller.client.handle(now, frame);
            }
        });
        received.is_ok()
    }
}

impl fmt::Debug for CallerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerPort").finish_non_exhaustive()
    }
}

/// Adaptive polling: decides whether a call polls the socket once before it waits; shared by all calls of a caller.
///
/// An element in the kernel of the same machine answers within the system call that sends the frame: then one poll
/// finds the answer. Elsewhere a poll costs a system call for nothing. So calls poll as long as polls succeed, and
/// occasionally afterwards, to detect that they succeed again. A race between calls costs at most one poll too many.
#[derive(Debug, Default)]
struct EagerPoll {
    /// Failed polls since the last successful one.
    failed_polls: AtomicU32,
    /// Remaining calls that do not poll.
    skipped_calls: AtomicU32,
}

impl EagerPoll {
    /// Returns whether this call polls.
    fn should_poll(&self) -> bool {
        let skipped_calls = self.skipped_calls.load(Ordering::Relaxed);
        if skipped_calls > 0 {
            self.skipped_calls.store(skipped_calls - 1, Ordering::Relaxed);
        }
        skipped_calls == 0
    }

    /// Records whether the poll found the answer.
    fn record_result(&self, found: bool) {
        let failed_polls = if found { 0 } else { self.failed_polls.load(Ordering::Relaxed).saturating_add(1) };
        self.failed_polls.store(failed_polls, Ordering::Relaxed);
        if failed_polls >= FAILED_POLLS_MAX {
            self.skipped_calls.store(PAUSE_CALLS, Ordering::Relaxed);
        }
    }
}

struct CancelOnDrop<'a> {
    id: CallId,
    caller: Option<&'a EndpointDriver<Caller>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.caller {
            let id = self.id;
            // A task that has ended has nothing to cancel.
            let _ = caller.command(|caller, now, _| {
                // A completed call may have been granted locks that its caller has not learnt of.
                caller.waiting.remove(&id);
                caller.client.cancel(now, id);
            });
        }
    }
}

struct Caller {
    client: MapClient,
    element: SocketAddr,
    server: SocketAddr,
    /// Replaces UDP for frames to the server, as long as its stream lasts.
    carrier: Option<Carrier>,
    carried: CarriedStats,
    waiting: FixedHashMap<CallId, Reply>,
    reachability: watch::Sender<ServerReachability>,
    spent_after: u32,
    is_spent: Arc<AtomicBool>,
}

/// Router of outgoing frames: to an address, or to the carrier.
struct FrameRouter<'a, F> {
    element: SocketAddr,
    server: SocketAddr,
    carrier: Option<&'a mut Carrier>,
    carried: &'a mut CarriedStats,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> FrameSink for FrameRouter<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        match (to, &mut self.carrier) {
            (Dest::Element, _) => (self.send)(self.element, frame),
            (Dest::Inline(_), _) => (self.send)(self.server, frame),
            (Dest::Endpoint(_), None) => (self.send)(self.server, frame),
            (Dest::Endpoint(_), Some(carrier)) => self.carried.queue(carrier, frame),
        }
    }
}

impl StateMachine for Caller {
    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], ce: bool, _: impl FnMut(SocketAddr, &[u8])) {
        match ce {
            true => self.client.handle_marked(now, frame),
            false => self.client.handle(now, frame),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        self.carrier.take_if(|carrier| carrier.is_over());
        let Self { client, element, server, carrier, carried, .. } = self;
        let carrier = carrier.as_mut();
        client.poll(now, &mut FrameRouter { element: *element, server: *server, carrier, carried, send });
    }

    fn deliver_events(&mut self) {
        // Before the outcomes are delivered.
        self.is_spent.store(self.client.needs_successor(self.spent_after), Ordering::Relaxed);
        while let Some((id, outcome)) = self.client.next_event() {
            if let Some(reply) = self.waiting.remove(&id) {
                // The receiver is gone if the call was dropped concurrently.
                let _ = reply.send(outcome);
            }
        }
        self.carried.open = u64::from(self.carrier.is_some());
        if let Some(carrier) = &mut self.carrier {
            carrier.flush();
        }
        let reachability = self.client.reach();
        if *self.reachability.borrow() != reachability {
            self.reachability.send_replace(reachability);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.client.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        (self.element != self.server).then_some(self.element)
    }

    fn close(&mut self, now: Instant) {
        self.client.close(now);
    }

    fn is_idle(&self) -> bool {
        self.client.is_idle()
    }

    fn on_driver_dropped(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls, of `calls`, that poll.
    fn polls(eager: &EagerPoll, calls: u32, found: bool) -> u32 {
        let poll = |_: &u32| {
            let polls = eager.should_poll();
            if polls {
                eager.record_result(found);
            }
            polls
        };
        (0..calls).filter(poll).count() as u32
    }

    #[test]
    fn calls_poll_while_polls_find_answers() {
        let eager = EagerPoll::default();
        assert_eq!(polls(&eager, 1000, true), 1000);
        assert_eq!(polls(&eager, FAILED_POLLS_MAX, false), FAILED_POLLS_MAX);
        assert_eq!(polls(&eager, PAUSE_CALLS, false), 0);
        assert_eq!(polls(&eager, 2 * (PAUSE_CALLS + 1), false), 2, "one poll after each pause");
        assert_eq!(polls(&eager, 1000, true), 1000, "polls succeed again");
    }
}
