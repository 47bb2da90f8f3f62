//! A caller: [`MapHandle::call`] from anywhere, frames by one socket.

mod eager;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::Party;
use super::carrier::{CarriedStats, Carrier, frames};
use super::link::Link;
use super::shared::{Owned, Shared};
use crate::flow::SPENT;
use crate::map::client::{CallId, ClientConfig, ClientStats, MapClient, Reach};
use crate::map::{CallError, Dest, Operation, Outbox, Output, Renewal};
use crate::tables::ByNumber;
use eager::Eager;

type Reply = oneshot::Sender<Result<Output, CallError>>;

enum Command {
    Start(CallId, Operation, Reply),
    Cancel(CallId),
    Renew(Renewal, Option<SocketAddr>),
    Carry(Carrier),
    Batch(Vec<u8>),
}

/// A handle to one caller of one application. When the last clone is dropped, what was begun is
/// driven to its end and the endpoint stops.
#[derive(Debug, Clone)]
pub struct MapHandle {
    caller: Arc<Handle>,
    busy_poll: Duration,
    reach: watch::Receiver<Reach>,
    /// Set when the task ends: whether everything was driven to its end.
    ended: watch::Receiver<Option<bool>>,
    spent: Arc<AtomicBool>,
}

/// What all clones share.
#[derive(Debug)]
struct Handle {
    shared: Owned<Caller>,
    next: AtomicU64,
    eager: Eager,
}

impl MapHandle {
    /// Starts the caller on the current tokio runtime. `key` is what signs the application's frames, if
    /// they carry tokens; `element` and `server` are where frames to them go.
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
        let (tell_reach, reach) = watch::channel(Reach::Unknown);
        let spent = Arc::<AtomicBool>::default();
        let caller = Caller {
            client,
            element: element.unwrap_or(server),
            server,
            carrier: None,
            carried: CarriedStats::default(),
            waiting: ByNumber::default(),
            reach: tell_reach,
            spent_after: SPENT,
            spent: Arc::clone(&spent),
        };
        let shared = Shared::new(caller, link);
        let (tell, ended) = watch::channel(None);
        let task = Arc::clone(&shared).run();
        tokio::spawn(async move {
            let idle = task.await;
            tell.send_replace(Some(idle));
        });
        Self {
            caller: Arc::new(Handle { shared: Owned(shared), next: AtomicU64::new(0), eager: Eager::default() }),
            busy_poll: Duration::ZERO,
            reach,
            ended,
            spent,
        }
    }

    /// Calls look for their answers themselves for so long before they wait. Tasks that are ready have
    /// precedence over each look.
    #[must_use]
    pub fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// So many numbers of one of its flows are enough; [`SPENT`], unless given.
    #[must_use]
    pub fn spent_after(self, numbers: u32) -> Self {
        self.caller.shared.lock().party.spent_after = numbers;
        self
    }

    /// Whether another caller had better do what is to come: this one's frames come to the end of their numbers. At the
    /// end its calls get [`CallError::Spent`].
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// A way to tell it of new epochs that does not keep it running.
    #[must_use]
    pub fn teller(&self) -> Teller {
        Teller(Arc::downgrade(&self.caller.shared.0))
    }

    /// What is known of the way to the server, and how that changes.
    #[must_use]
    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
    }

    /// A way to have its frames carried that does not keep it running.
    #[must_use]
    pub fn feed(&self) -> Feed {
        Feed(Arc::clone(&self.caller.shared.0))
    }

    /// Resolves when the task has ended: some time after the last handle was dropped, when the server
    /// has what only the element had (true), or did not say so for long (false).
    pub fn ended(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut ended = self.ended.clone();
        async move { ended.wait_for(Option::is_some).await.is_ok_and(|idle| *idle == Some(true)) }
    }

    /// Does one call. Dropping the future cancels it: nothing more of it is begun, but what was
    /// begun takes its course.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(&self, operation: Operation) -> Result<Output, CallError> {
        let Handle { shared, next, eager } = &*self.caller;
        let id = CallId(next.fetch_add(1, Ordering::Relaxed));
        let (reply, outcome) = oneshot::channel();
        let mut guard = CancelOnDrop { id, caller: Some(shared) };
        shared.command(Command::Start(id, operation, reply)).map_err(|_| CallError::Closed)?;
        if self.busy_poll.is_zero() {
            if eager.looks() {
                // A look takes back what the task had asked to be woken by: its end asks anew.
                shared.look().receive();
                eager.found(!outcome.is_empty());
            }
        } else {
            shared.look_for(&outcome, self.busy_poll).await;
        }
        let outcome = outcome.await.unwrap_or(Err(CallError::Closed));
        guard.caller = None;
        outcome
    }

    /// What this caller has done so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.caller.shared.lock().party.client.stats()
    }

    /// What of that was carried in streams.
    #[must_use]
    pub fn carried(&self) -> CarriedStats {
        self.caller.shared.lock().party.carried
    }
}

/// Tells a caller of new epochs; also while it closes, as it then has what ended with the last one to
/// repeat.
#[derive(Clone)]
pub struct Teller(Weak<Shared<Caller>>);

impl Teller {
    /// The epoch has changed, see [`MapClient::renew`]; `element` is where frames to it go.
    pub fn renew(&self, renewal: Renewal, element: Option<SocketAddr>) {
        if let Some(caller) = self.0.upgrade() {
            // One that has ended has nothing to repeat, or has given that up: the server then says DATA_LOSS.
            let _ = caller.command(Command::Renew(renewal, element));
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

/// Has a caller's frames carried, and takes those that a stream brings; also while it closes.
#[derive(Clone)]
pub struct Feed(Arc<Shared<Caller>>);

impl Feed {
    /// Frames to the server are carried from now on, as long as the carrier's stream lasts.
    pub fn carry(&self, carrier: Carrier) {
        // One that has ended sends nothing.
        let _ = self.0.command(Command::Carry(carrier));
    }

    /// Takes a batch; false when the caller has ended.
    pub fn take(&self, batch: Vec<u8>) -> bool {
        self.0.command(Command::Batch(batch)).is_ok()
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

struct CancelOnDrop<'a> {
    id: CallId,
    caller: Option<&'a Shared<Caller>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.caller {
            // A task that has ended has nothing to cancel.
            let _ = caller.command(Command::Cancel(self.id));
        }
    }
}

struct Caller {
    client: MapClient,
    element: SocketAddr,
    server: SocketAddr,
    /// Takes the frames to the server instead, as long as its stream lasts.
    carrier: Option<Carrier>,
    carried: CarriedStats,
    waiting: ByNumber<CallId, Reply>,
    reach: watch::Sender<Reach>,
    spent_after: u32,
    spent: Arc<AtomicBool>,
}

/// Gives frames the address of where they go, or has them carried.
struct Roads<'a, F> {
    element: SocketAddr,
    server: SocketAddr,
    carrier: Option<&'a mut Carrier>,
    carried: &'a mut CarriedStats,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> Outbox for Roads<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        match (to, &mut self.carrier) {
            (Dest::Element, _) => (self.send)(self.element, frame),
            (Dest::Inline(_), _) => (self.send)(self.server, frame),
            (Dest::Endpoint(_), None) => (self.send)(self.server, frame),
            (Dest::Endpoint(_), Some(carrier)) => self.carried.take(carrier, frame),
        }
    }
}

impl Caller {
    fn split<F>(&mut self, send: F) -> (&mut MapClient, Roads<'_, F>) {
        let Self { client, element, server, carrier, carried, .. } = self;
        (client, Roads { element: *element, server: *server, carrier: carrier.as_mut(), carried, send })
    }
}

impl Party for Caller {
    type Command = Command;

    fn command(&mut self, now: Instant, command: Command, send: impl FnMut(SocketAddr, &[u8])) {
        match command {
            Command::Start(id, operation, reply) => {
                self.waiting.insert(id, reply);
                self.client.start(now, id, operation);
            }
            Command::Cancel(id) => {
                // One that is done may have been granted locks that nobody knows of.
                self.waiting.remove(&id);
                self.client.cancel(now, id);
            }
            Command::Renew(renewal, element) => {
                self.element = element.unwrap_or(self.server);
                self.client.renew(now, &renewal);
            }
            Command::Carry(carrier) => {
                self.carrier = Some(carrier);
                self.client.reroute(now);
                self.client.greet();
            }
            Command::Batch(batch) => {
                let (client, mut roads) = self.split(send);
                for frame in frames(&batch) {
                    roads.carried.frames_in += 1;
                    client.handle(now, frame, &mut roads);
                }
            }
        }
    }

    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let (client, mut roads) = self.split(send);
        match ce {
            true => client.handle_marked(now, frame, &mut roads),
            false => client.handle(now, frame, &mut roads),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        self.carrier.take_if(|carrier| carrier.is_over());
        let (client, mut roads) = self.split(send);
        client.poll(now, &mut roads);
    }

    fn settle(&mut self) {
        // Before anybody hears of an outcome.
        self.spent.store(self.client.is_spent(self.spent_after), Ordering::Relaxed);
        while let Some((id, outcome)) = self.client.next_event() {
            if let Some(reply) = self.waiting.remove(&id) {
                // Nobody waits any more: the call was dropped in this very moment.
                let _ = reply.send(outcome);
            }
        }
        self.carried.open = u64::from(self.carrier.is_some());
        if let Some(carrier) = &mut self.carrier {
            carrier.flush();
        }
        let reach = self.client.reach();
        if *self.reach.borrow() != reach {
            self.reach.send_replace(reach);
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

    fn forsake(&mut self) {
        self.waiting.clear();
    }
}
