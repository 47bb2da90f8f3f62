//! An owner's task: callers join and leave, queries are answered, frames come by one socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use pathcall_wire::Instant;
use tokio::sync::{mpsc, oneshot};

use super::link::Link;
use super::{Party, run};
use crate::map::server::{Joined, MapServer, Member, QueryId, ServerConfig, ServerStats, Values};
use crate::map::{CallError, Dest, Key, Outbox};

enum Command {
    Join(Member, SocketAddr, oneshot::Sender<Result<Joined, CallError>>),
    Leave(u32),
    Query(Option<Vec<Key>>, oneshot::Sender<Values>),
    ElementLost(&'static str),
}

/// A handle to the owner of one application; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    commands: mpsc::UnboundedSender<Command>,
    stats: Arc<Mutex<ServerStats>>,
}

impl ServerHandle {
    /// Starts the owner's task on the current tokio runtime. `element` is where frames to it go.
    #[must_use]
    pub fn spawn(config: ServerConfig, link: Link, element: Option<SocketAddr>) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let stats = Arc::new(Mutex::new(ServerStats::default()));
        let owner = Owner {
            server: MapServer::new(config),
            element,
            members: HashMap::new(),
            queries: HashMap::new(),
            next: 0,
            stats: stats.clone(),
        };
        tokio::spawn(run(owner, link, receiver));
        Self { commands, stats }
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

    /// The values of these keys, or of all.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn query(&self, keys: Option<Vec<Key>>) -> Values {
        let (reply, values) = oneshot::channel();
        self.command(Command::Query(keys, reply))?;
        values.await.unwrap_or(Err(CallError::Closed))
    }

    /// The element or its memory is gone.
    pub fn element_lost(&self, reason: &'static str) {
        let _ = self.command(Command::ElementLost(reason));
    }

    /// What this owner has done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, command: Command) -> Result<(), CallError> {
        self.commands.send(command).map_err(|_| CallError::Closed)
    }
}

struct Owner {
    server: MapServer,
    element: Option<SocketAddr>,
    members: HashMap<u32, SocketAddr>,
    queries: HashMap<QueryId, oneshot::Sender<Values>>,
    next: u64,
    stats: Arc<Mutex<ServerStats>>,
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
                self.server.leave(endpoint);
                self.members.remove(&endpoint);
            }
            Command::Query(keys, reply) => {
                self.next += 1;
                self.queries.insert(QueryId(self.next), reply);
                self.server.query(now, QueryId(self.next), keys);
            }
            Command::ElementLost(reason) => {
                self.server.element_lost(reason);
                self.element = None;
            }
        }
    }

    fn handle(&mut self, now: Instant, frame: &[u8], send: impl FnMut(SocketAddr, &[u8])) {
        let Self { server, element, members, .. } = self;
        server.handle(now, frame, &mut Roads { element: *element, members, send });
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        let Self { server, element, members, .. } = self;
        server.poll(now, &mut Roads { element: *element, members, send });
    }

    fn settle(&mut self) {
        while let Some((id, values)) = self.server.next_event() {
            if let Some(reply) = self.queries.remove(&id) {
                let _ = reply.send(values);
            }
        }
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.server.stats();
    }

    fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }

    /// An owner whose handle is gone serves nobody.
    fn is_idle(&self) -> bool {
        true
    }
}
