//! A caller's task: [`MapHandle::call`] from anywhere, frames by one socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pathcall_wire::Instant;
use tokio::sync::{mpsc, oneshot, watch};

use super::carrier::{BATCHES_WAITING, Batch, CarriedStats, Carrier, frames};
use super::link::Link;
use super::{Party, run};
use crate::map::client::{CallId, ClientConfig, ClientStats, MapClient, Reach};
use crate::map::{CallError, Dest, Operation, Outbox, Output, Renewal};

type Reply = oneshot::Sender<Result<Output, CallError>>;

#[derive(Debug)]
enum Command {
    Start(CallId, Operation, Reply),
    Cancel(CallId),
    Renew(Renewal, Option<SocketAddr>),
    Carry(Carrier),
}

/// A handle to one caller of one application. When the last clone is dropped, what was begun is
/// driven to its end and the endpoint stops.
#[derive(Debug, Clone)]
pub struct MapHandle {
    commands: mpsc::UnboundedSender<Command>,
    next: Arc<AtomicU64>,
    stats: Arc<Mutex<(ClientStats, CarriedStats)>>,
    batches: mpsc::Sender<Batch>,
    reach: watch::Receiver<Reach>,
    /// Set when the task ends: whether everything was driven to its end.
    ended: watch::Receiver<Option<bool>>,
}

impl MapHandle {
    /// Starts the caller's task on the current tokio runtime. `element` and `server` are where
    /// frames to them go.
    #[must_use]
    pub fn spawn(config: ClientConfig, link: Link, element: Option<SocketAddr>, server: SocketAddr) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let stats = Arc::<Mutex<_>>::default();
        let (carried, batches) = mpsc::channel(BATCHES_WAITING);
        let (tell_reach, reach) = watch::channel(Reach::Unknown);
        let mut client = MapClient::new(config);
        client.greet();
        let caller = Caller {
            client,
            element: element.unwrap_or(server),
            server,
            carrier: None,
            carried: CarriedStats::default(),
            waiting: HashMap::new(),
            reach: tell_reach,
            stats: stats.clone(),
        };
        let (tell, ended) = watch::channel(None);
        tokio::spawn(async move {
            let idle = run(caller, link, receiver, batches).await;
            tell.send_replace(Some(idle));
        });
        Self { commands, next: Arc::default(), stats, batches: carried, reach, ended }
    }

    /// A way to tell it of new epochs and other roads that does not keep it running.
    #[must_use]
    pub fn teller(&self) -> Teller {
        Teller { commands: self.commands.downgrade(), batches: self.batches.clone() }
    }

    /// What is known of the way to the server, and how that changes.
    #[must_use]
    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
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
        let id = CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let (reply, outcome) = oneshot::channel();
        self.commands.send(Command::Start(id, operation, reply)).map_err(|_| CallError::Closed)?;
        let mut guard = CancelOnDrop { id, commands: Some(&self.commands) };
        let outcome = outcome.await.unwrap_or(Err(CallError::Closed));
        guard.commands = None;
        outcome
    }

    /// What this caller has done so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// What of that was carried in streams.
    #[must_use]
    pub fn carried(&self) -> CarriedStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// Tells a caller of new epochs and of other roads.
#[derive(Debug, Clone)]
pub struct Teller {
    commands: mpsc::WeakUnboundedSender<Command>,
    batches: mpsc::Sender<Batch>,
}

impl Teller {
    /// The epoch has changed, see [`MapClient::renew`]; `element` is where frames to it go.
    pub fn renew(&self, renewal: Renewal, element: Option<SocketAddr>) {
        // A caller that is closing may fail to flush; the server then says DATA_LOSS.
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Renew(renewal, element));
        }
    }

    /// Frames to the server are carried from now on, as long as the carrier's stream lasts.
    pub fn carry(&self, carrier: Carrier) {
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Carry(carrier));
        }
    }

    /// Where batches go that the stream brings; full while the caller is busy.
    #[must_use]
    pub fn batches(&self) -> mpsc::Sender<Batch> {
        self.batches.clone()
    }
}

struct CancelOnDrop<'a> {
    id: CallId,
    commands: Option<&'a mpsc::UnboundedSender<Command>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(commands) = self.commands {
            // A task that has ended has nothing to cancel.
            let _ = commands.send(Command::Cancel(self.id));
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
    waiting: HashMap<CallId, Reply>,
    reach: watch::Sender<Reach>,
    stats: Arc<Mutex<(ClientStats, CarriedStats)>>,
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

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Start(id, operation, reply) => {
                self.waiting.insert(id, reply);
                self.client.start(now, id, operation);
            }
            Command::Cancel(id) => {
                if self.waiting.remove(&id).is_some() {
                    self.client.cancel(now, id);
                }
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
        }
    }

    fn handle(&mut self, now: Instant, frame: &[u8], send: impl FnMut(SocketAddr, &[u8])) {
        let (client, mut roads) = self.split(send);
        client.handle(now, frame, &mut roads);
    }

    fn carried(&mut self, now: Instant, batch: &Batch, send: impl FnMut(SocketAddr, &[u8])) {
        let (client, mut roads) = self.split(send);
        for frame in frames(&batch.bytes) {
            roads.carried.frames_in += 1;
            client.handle(now, frame, &mut roads);
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        if self.carrier.as_ref().is_some_and(Carrier::is_over) {
            self.carrier = None;
        }
        let (client, mut roads) = self.split(send);
        client.poll(now, &mut roads);
    }

    fn settle(&mut self) {
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
        self.reach.send_if_modified(|known| std::mem::replace(known, reach) != reach);
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = (self.client.stats(), self.carried);
    }

    fn deadline(&self) -> Option<Instant> {
        self.client.deadline()
    }

    fn close(&mut self, now: Instant) {
        self.client.close(now);
    }

    fn is_idle(&self) -> bool {
        self.client.is_idle()
    }
}
