//! An owner: callers join and leave, queries are answered, frames come by one socket.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_wire::{Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::Party;
use super::link::Link;
use super::shared::Shared;
use crate::map::server::{Event, Joined, MapServer, Member, QueryId, ServerConfig, ServerStats, Terms, Values};
use crate::map::{CallError, Dest, Key, Outbox, Renewal};

enum Command {
    Join(Member, SocketAddr, oneshot::Sender<Result<Joined, CallError>>),
    Rejoin(Member, oneshot::Sender<Option<Renewal>>),
    Leave(u32),
    Gone(u32),
    Query(Option<Vec<Key>>, oneshot::Sender<Values>),
    Renew(Terms, Option<SocketAddr>),
}

/// A handle to the owner of one application; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    owner: Arc<Handle>,
    silent: watch::Receiver<Option<u64>>,
}

/// What all clones share: its end is theirs.
struct Handle(Arc<Shared<Owner>>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl ServerHandle {
    /// Starts the owner on the current tokio runtime. `key` is what signs the application's frames, if
    /// they carry tokens; `element` is where frames to it go.
    #[must_use]
    pub fn spawn(config: ServerConfig, key: Option<TokenKey>, link: Link, element: Option<SocketAddr>) -> Self {
        let (tell, silent) = watch::channel(None);
        let owner = Owner {
            server: MapServer::new(config).authenticate(key),
            element,
            members: HashMap::new(),
            queries: HashMap::new(),
            next: 0,
            terms: 0,
            silent: tell,
        };
        let shared = Shared::new(owner, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self { owner: Arc::new(Handle(shared)), silent }
    }

    /// Lets a caller in, whose frames come from and go to `address`.
    ///
    /// # Errors
    /// [`CallError::WorkersFull`], [`CallError::Closed`].
    pub async fn join(&self, member: Member, address: SocketAddr) -> Result<Joined, CallError> {
        let (reply, joined) = oneshot::channel();
        self.command(Command::Join(member, address, reply))?;
        joined.await.unwrap_or(Err(CallError::Closed))
    }

    /// A caller is gone.
    pub fn leave(&self, endpoint: u32) {
        // An owner that has stopped has no callers.
        let _ = self.command(Command::Leave(endpoint));
    }

    /// The element no longer lets in a caller that has left.
    pub fn gone(&self, endpoint: u32) {
        let _ = self.command(Command::Gone(endpoint));
    }

    /// The values of these keys, or of all.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn query(&self, keys: Option<Vec<Key>>) -> Values {
        let (reply, values) = oneshot::channel();
        self.command(Command::Query(keys, reply))?;
        values.await.unwrap_or(Err(CallError::Closed))
    }

    /// New terms, see [`MapServer::renew`]; `element` is where frames to it go.
    pub fn renew(&self, terms: Terms, element: Option<SocketAddr>) {
        let _ = self.command(Command::Renew(terms, element));
    }

    /// What a caller is to be told of it, see [`MapServer::rejoin`].
    pub async fn rejoin(&self, member: Member) -> Option<Renewal> {
        let (reply, renewal) = oneshot::channel();
        self.command(Command::Rejoin(member, reply)).ok()?;
        renewal.await.ok()?
    }

    /// Hears of an element that does not answer.
    #[must_use]
    pub fn silence(&self) -> Silence {
        Silence(self.silent.clone())
    }

    /// What this owner has done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.owner.0.lock().party.server.stats()
    }

    fn command(&self, command: Command) -> Result<(), CallError> {
        self.owner.0.command(command).map_err(|_| CallError::Closed)
    }
}

/// Hears of an element that does not answer, and does not keep the owner running.
#[derive(Debug)]
pub struct Silence(watch::Receiver<Option<u64>>);

impl Silence {
    /// The number of the terms under which the element was found silent, by the owner or a caller,
    /// if it is not `known`; `None` when the owner has stopped.
    pub async fn found(&mut self, known: Option<u64>) -> Option<u64> {
        let found = self.0.wait_for(|silent| silent.is_some() && *silent != known).await;
        found.ok().and_then(|silent| *silent)
    }
}

struct Owner {
    server: MapServer,
    element: Option<SocketAddr>,
    members: HashMap<u32, SocketAddr>,
    queries: HashMap<QueryId, oneshot::Sender<Values>>,
    next: u64,
    terms: u64,
    /// The terms under which the element was found silent.
    silent: watch::Sender<Option<u64>>,
}

/// Gives frames the address of where they go.
struct Roads<'a, F> {
    element: Option<SocketAddr>,
    members: &'a HashMap<u32, SocketAddr>,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> Outbox for Roads<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let to = match to {
            Dest::Element => self.element,
            Dest::Endpoint(endpoint) => self.members.get(&endpoint).copied(),
        };
        if let Some(to) = to {
            (self.send)(to, frame);
        }
    }
}

impl Party for Owner {
    type Command = Command;

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Join(member, address, reply) => {
                let joined = self.server.join(now, member);
                if joined.is_ok() {
                    self.members.insert(member.endpoint, address);
                }
                // A caller that no longer waits is reported as gone by its stream.
                let _ = reply.send(joined);
            }
            Command::Leave(endpoint) => {
                self.server.leave(now, endpoint);
                self.members.remove(&endpoint);
            }
            Command::Gone(endpoint) => self.server.gone(now, endpoint),
            Command::Query(keys, reply) => {
                self.next += 1;
                self.queries.insert(QueryId(self.next), reply);
                self.server.query(now, QueryId(self.next), keys);
            }
            Command::Renew(terms, element) => {
                self.server.renew(now, terms);
                (self.terms, self.element) = (terms.number, element);
            }
            Command::Rejoin(member, reply) => {
                let _ = reply.send(self.server.rejoin(member));
            }
        }
    }

    fn handle(&mut self, now: Instant, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let Self { server, element, members, .. } = self;
        let mut roads = Roads { element: *element, members, send };
        match ce {
            true => server.handle_marked(now, frame, &mut roads),
            false => server.handle(now, frame, &mut roads),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        let Self { server, element, members, .. } = self;
        server.poll(now, &mut Roads { element: *element, members, send });
    }

    fn settle(&mut self) {
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, values) => {
                    if let Some(reply) = self.queries.remove(&id) {
                        let _ = reply.send(values);
                    }
                }
                Event::ElementSilent => {
                    self.silent.send_replace(Some(self.terms));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }

    fn close(&mut self, _now: Instant) {}

    /// An owner whose handle is gone serves nobody.
    fn is_idle(&self) -> bool {
        true
    }
}
