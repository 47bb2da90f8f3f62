//! A caller: [`MapHandle::call`] from anywhere, frames by one socket.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::Party;
use super::link::Link;
use super::shared::Shared;
use crate::map::client::{CallId, ClientConfig, ClientStats, MapClient};
use crate::map::{CallError, Dest, Operation, Outbox, Output, Renewal};

type Reply = oneshot::Sender<Result<Output, CallError>>;

/// A call that looks for its answer gives its processor away between two looks after this time: on
/// one host, an element that polls has answered by then if it has a processor of its own.
const PATIENCE: Duration = Duration::from_micros(10);

enum Command {
    Start(CallId, Operation, Reply),
    Cancel(CallId),
    Renew(Renewal, Option<SocketAddr>),
}

/// A handle to one caller of one application. When the last clone is dropped, what was begun is
/// driven to its end and the endpoint stops.
#[derive(Debug, Clone)]
pub struct MapHandle {
    caller: Arc<Handle>,
    busy_poll: Duration,
    /// Set when the task ends: whether everything was driven to its end.
    ended: watch::Receiver<Option<bool>>,
}

/// What all clones share: its end is theirs.
struct Handle {
    shared: Arc<Shared<Caller>>,
    next: AtomicU64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
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
        let client = MapClient::new(config).authenticate(key);
        let caller = Caller { client, element: element.unwrap_or(server), server, waiting: HashMap::new() };
        let shared = Shared::new(caller, link);
        let (tell, ended) = watch::channel(None);
        let task = Arc::clone(&shared).run();
        tokio::spawn(async move {
            let idle = task.await;
            tell.send_replace(Some(idle));
        });
        Self { caller: Arc::new(Handle { shared, next: AtomicU64::new(0) }), busy_poll: Duration::ZERO, ended }
    }

    /// Calls look for their answers themselves for so long before they wait. Tasks that are ready have
    /// precedence over each look.
    #[must_use]
    pub fn busy_poll(self, busy_poll: Duration) -> Self {
        Self { busy_poll, ..self }
    }

    /// A way to tell it of new epochs that does not keep it running.
    #[must_use]
    pub fn teller(&self) -> Teller {
        Teller(Arc::downgrade(&self.caller))
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
        let Handle { shared, next } = &*self.caller;
        let id = CallId(next.fetch_add(1, Ordering::Relaxed));
        let (reply, outcome) = oneshot::channel();
        let mut guard = CancelOnDrop { id, caller: Some(shared) };
        shared.command(Command::Start(id, operation, reply)).map_err(|_| CallError::Closed)?;
        if !self.busy_poll.is_zero() {
            let began = Clock::now();
            while outcome.is_empty() && !outcome.is_terminated() && began.elapsed() < self.busy_poll {
                if !shared.receive() {
                    if began.elapsed() > PATIENCE {
                        // The element may be waiting for this very processor.
                        std::thread::yield_now();
                    }
                    others_first().await;
                }
            }
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
}

/// Lets what else is ready run; unlike tokio's `yield_now` it does not look for other events first.
async fn others_first() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Tells a caller of new epochs.
#[derive(Debug, Clone)]
pub struct Teller(Weak<Handle>);

impl Teller {
    /// The epoch has changed, see [`MapClient::renew`]; `element` is where frames to it go.
    pub fn renew(&self, renewal: Renewal, element: Option<SocketAddr>) {
        // A caller that is closing may fail to flush; the server then says DATA_LOSS.
        if let Some(caller) = self.0.upgrade() {
            let _ = caller.shared.command(Command::Renew(renewal, element));
        }
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
    waiting: HashMap<CallId, Reply>,
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
