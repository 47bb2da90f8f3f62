//! A caller's task: [`MapHandle::call`] from anywhere, frames by one socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{mpsc, oneshot, watch};

use super::link::Link;
use super::{Party, run};
use crate::map::client::{CallId, ClientConfig, ClientStats, MapClient};
use crate::map::{CallError, Dest, Operation, Outbox, Output, Renewal};

type Reply = oneshot::Sender<Result<Output, CallError>>;

#[derive(Debug)]
enum Command {
    Start(CallId, Operation, Reply),
    Cancel(CallId),
    Renew(Renewal, Option<SocketAddr>),
}

/// A handle to one caller of one application. When the last clone is dropped, what was begun is
/// driven to its end and the endpoint stops.
#[derive(Debug, Clone)]
pub struct MapHandle {
    commands: mpsc::UnboundedSender<Command>,
    next: Arc<AtomicU64>,
    stats: Arc<Mutex<ClientStats>>,
    /// Set when the task ends: whether everything was driven to its end.
    ended: watch::Receiver<Option<bool>>,
}

impl MapHandle {
    /// Starts the caller's task on the current tokio runtime. `key` is what signs the application's
    /// frames, if they carry tokens; `element` and `server` are where frames to them go.
    #[must_use]
    pub fn spawn(
        config: ClientConfig,
        key: Option<TokenKey>,
        link: Link,
        element: Option<SocketAddr>,
        server: SocketAddr,
    ) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let stats = Arc::new(Mutex::new(ClientStats::default()));
        let caller = Caller {
            client: MapClient::new(config).authenticate(key),
            element: element.unwrap_or(server),
            server,
            waiting: HashMap::new(),
            stats: stats.clone(),
        };
        let (tell, ended) = watch::channel(None);
        tokio::spawn(async move {
            let idle = run(caller, link, receiver).await;
            tell.send_replace(Some(idle));
        });
        Self { commands, next: Arc::default(), stats, ended }
    }

    /// A way to tell it of new epochs that does not keep it running.
    #[must_use]
    pub fn teller(&self) -> Teller {
        Teller(self.commands.downgrade())
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
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a caller of new epochs.
#[derive(Debug, Clone)]
pub struct Teller(mpsc::WeakUnboundedSender<Command>);

impl Teller {
    /// The epoch has changed, see [`MapClient::renew`]; `element` is where frames to it go.
    pub fn renew(&self, renewal: Renewal, element: Option<SocketAddr>) {
        // A caller that is closing may fail to flush; the server then says DATA_LOSS.
        if let Some(commands) = self.0.upgrade() {
            let _ = commands.send(Command::Renew(renewal, element));
        }
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
    waiting: HashMap<CallId, Reply>,
    stats: Arc<Mutex<ClientStats>>,
}

/// Gives frames the address of where they go.
struct Roads<F> {
    element: SocketAddr,
    server: SocketAddr,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> Outbox for Roads<F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let to = if to == Dest::Element { self.element } else { self.server };
        (self.send)(to, frame);
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
        }
    }

    fn handle(&mut self, now: Instant, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let mut roads = Roads { element: self.element, server: self.server, send };
        match ce {
            true => self.client.handle_marked(now, frame, &mut roads),
            false => self.client.handle(now, frame, &mut roads),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        self.client.poll(now, &mut Roads { element: self.element, server: self.server, send });
    }

    fn settle(&mut self) {
        while let Some((id, outcome)) = self.client.next_event() {
            if let Some(reply) = self.waiting.remove(&id) {
                // Nobody waits any more: the call was dropped in this very moment.
                let _ = reply.send(outcome);
            }
        }
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.client.stats();
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
