//! An owner: callers join and leave, queries are answered, frames come by one socket.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_wire::{Base, Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::Party;
use super::carrier::{CarriedStats, Carrier, frames};
pub use super::lapse::{Lapse, Lapses};
use super::link::Link;
use super::shared::{Owned, Shared};
use crate::map::server::books::{Entered, Entry, Try};
use crate::map::server::{
    Event, Joined, MapServer, Member, Permissions, QueryId, ServerConfig, ServerStats, Terms, Values,
};
use crate::map::{CallError, Dest, Key, Modify, Outbox, Renewal};
use crate::tables::ByNumber;

enum Command {
    Join(Joining),
    Carry { endpoint: u32, incarnation: u32, carrier: Carrier, reply: oneshot::Sender<bool> },
    OpenBook(u64, oneshot::Sender<Result<(), CallError>>),
    Apply(Box<NamedCall>, oneshot::Sender<Result<Entered, CallError>>),
    Batch { endpoint: u32, bytes: Vec<u8> },
    Rejoin(Member, oneshot::Sender<Option<Renewal>>),
    Leave(u32),
    GiveUp(u32, u32),
    Permit(u32, u32, Permissions),
    Gone(u32),
    Query(Option<Vec<Key>>, oneshot::Sender<Values>),
    Renew(Terms, Option<SocketAddr>),
}

/// A call with an id, see [`MapServer::apply`].
#[derive(Debug)]
pub struct NamedCall {
    /// The number of its caller's book.
    pub book: u64,
    /// Which try this is.
    pub nth: Try,
    /// Its id.
    pub id: Vec<u8>,
    /// Ids that the caller has noted as done.
    pub completed: Vec<Vec<u8>>,
    /// What is added, each key once.
    pub pairs: Vec<(Key, i64)>,
    /// Applied to each value first.
    pub modify: Modify,
}

/// A handle to the owner of one application; it stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    owner: Arc<Owned<Owner>>,
    lapse: watch::Receiver<Option<Lapse>>,
}

impl ServerHandle {
    /// Starts the owner on the current tokio runtime. `key` is what signs the application's frames, if
    /// they carry tokens; `element` is where frames to it go.
    #[must_use]
    pub fn spawn(config: ServerConfig, key: Option<TokenKey>, link: Link, element: Option<SocketAddr>) -> Self {
        let (tell, lapse) = watch::channel(None);
        let owner = Owner {
            server: MapServer::new(config).authenticate(key),
            element,
            members: ByNumber::default(),
            carriers: ByNumber::default(),
            carried: CarriedStats::default(),
            queries: HashMap::new(),
            joining: Vec::new(),
            next: 0,
            terms: 0,
            lapse: tell,
        };
        let shared = Shared::new(owner, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self { owner: Arc::new(Owned(shared)), lapse }
    }

    /// Lets a caller in, whose frames come from and go to `address`; without one they are carried. It may do this much.
    ///
    /// # Errors
    /// [`CallError::WorkersFull`], [`CallError::Closed`].
    pub async fn join(
        &self,
        member: Member,
        may: Permissions,
        address: Option<SocketAddr>,
    ) -> Result<Joined, CallError> {
        let (reply, joined) = oneshot::channel();
        self.command(Command::Join(Joining { member, may, address, reply }))?;
        joined.await.unwrap_or(Err(CallError::Closed))
    }

    /// Has the frames to a caller carried, as long as the carrier's stream lasts; what the stream
    /// brings goes to the feed. None when there is no such caller.
    pub async fn carry(&self, endpoint: u32, incarnation: u32, carrier: Carrier) -> Option<Feed> {
        let (reply, known) = oneshot::channel();
        self.command(Command::Carry { endpoint, incarnation, carrier, reply }).ok()?;
        known.await.unwrap_or(false).then(|| Feed { owner: Arc::clone(&self.owner.0), endpoint })
    }

    /// A caller is gone.
    pub fn leave(&self, endpoint: u32) {
        // An owner that has stopped has no callers.
        let _ = self.command(Command::Leave(endpoint));
    }

    /// A caller gives up a sum, see [`MapServer::give_up`].
    pub fn give_up(&self, endpoint: u32, incarnation: u32) {
        let _ = self.command(Command::GiveUp(endpoint, incarnation));
    }

    /// Says what a caller may do from now on, see [`MapServer::permit`].
    pub fn permit(&self, endpoint: u32, incarnation: u32, may: Permissions) {
        let _ = self.command(Command::Permit(endpoint, incarnation, may));
    }

    /// The element no longer lets in a caller that has left.
    pub fn gone(&self, endpoint: u32) {
        let _ = self.command(Command::Gone(endpoint));
    }

    /// Opens a book for calls with ids.
    ///
    /// # Errors
    /// [`CallError::BooksFull`], [`CallError::Closed`].
    pub async fn open_book(&self, number: u64) -> Result<(), CallError> {
        let (reply, opened) = oneshot::channel();
        self.command(Command::OpenBook(number, reply))?;
        opened.await.unwrap_or(Err(CallError::Closed))
    }

    /// Does a call with an id, see [`MapServer::apply`].
    ///
    /// # Errors
    /// [`CallError`]; nothing was added then.
    pub async fn apply(&self, call: NamedCall) -> Result<Entered, CallError> {
        let (reply, entered) = oneshot::channel();
        self.command(Command::Apply(Box::new(call), reply))?;
        entered.await.unwrap_or(Err(CallError::Closed))
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

    /// Hears when what the element holds is of no use any more.
    #[must_use]
    pub fn lapses(&self) -> Lapses {
        Lapses::of(self.lapse.clone())
    }

    /// What this owner has done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.owner.lock().party.server.stats()
    }

    /// What of that was carried in streams.
    #[must_use]
    pub fn carried(&self) -> CarriedStats {
        self.owner.lock().party.carried
    }

    fn command(&self, command: Command) -> Result<(), CallError> {
        self.owner.command(command).map_err(|_| CallError::Closed)
    }
}

/// Takes what the stream of one caller brings, and does not keep the owner running.
pub struct Feed {
    owner: Arc<Shared<Owner>>,
    endpoint: u32,
}

impl Feed {
    /// Takes a batch; false when the owner has ended. It speaks for its own caller: frames of others,
    /// or of the element, are dropped. An empty one has the owner see whether the stream has ended.
    pub fn take(&self, batch: Vec<u8>) -> bool {
        self.owner.command(Command::Batch { endpoint: self.endpoint, bytes: batch }).is_ok()
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

struct Owner {
    server: MapServer,
    element: Option<SocketAddr>,
    /// Where frames to a caller go.
    members: ByNumber<u32, SocketAddr>,
    /// Those that take them instead, as long as their streams last.
    carriers: ByNumber<u32, Carrier>,
    carried: CarriedStats,
    queries: HashMap<QueryId, oneshot::Sender<Values>>,
    /// Those that can't be let in yet.
    joining: Vec<Joining>,
    next: u64,
    terms: u64,
    /// The last terms under which what the element held was of no use any more.
    lapse: watch::Sender<Option<Lapse>>,
}

/// A caller that wants to join.
struct Joining {
    member: Member,
    may: Permissions,
    /// Where its frames come from and go to.
    address: Option<SocketAddr>,
    reply: oneshot::Sender<Result<Joined, CallError>>,
}

/// Gives frames the address of where they go, or has them carried.
struct Roads<'a, F> {
    element: Option<SocketAddr>,
    members: &'a ByNumber<u32, SocketAddr>,
    carriers: &'a mut ByNumber<u32, Carrier>,
    carried: &'a mut CarriedStats,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> Outbox for Roads<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let to = match to {
            Dest::Element => self.element,
            Dest::Inline(endpoint) => self.members.get(&endpoint).copied(),
            Dest::Endpoint(endpoint) => match self.carriers.get_mut(&endpoint) {
                Some(carrier) => return self.carried.take(carrier, frame),
                None => self.members.get(&endpoint).copied(),
            },
        };
        if let Some(to) = to {
            (self.send)(to, frame);
        }
    }
}

impl Owner {
    fn lapsed(&mut self, silent: bool) {
        self.lapse.send_replace(Some(Lapse { terms: self.terms, silent }));
    }

    /// Lets in those who wait for it, in the order in which they came.
    fn let_in(&mut self, now: Instant) {
        while !self.joining.is_empty() && self.server.lets_in() {
            let Joining { member, may, address, reply } = self.joining.remove(0);
            if reply.is_closed() {
                continue;
            }
            let joined = self.server.join(now, member);
            if joined.is_ok() {
                self.server.permit(member.endpoint, member.incarnation, may);
            }
            if let (Ok(_), Some(address)) = (&joined, address) {
                self.members.insert(member.endpoint, address);
            }
            // A caller that no longer waits is reported as gone by its stream.
            let _ = reply.send(joined);
        }
    }

    fn split<F>(&mut self, send: F) -> (&mut MapServer, Roads<'_, F>) {
        let Self { server, element, members, carriers, carried, .. } = self;
        (server, Roads { element: *element, members, carriers, carried, send })
    }
}

impl Party for Owner {
    type Command = Command;

    fn command(&mut self, now: Instant, command: Command, send: impl FnMut(SocketAddr, &[u8])) {
        match command {
            Command::Join(joining) => self.joining.push(joining),
            Command::GiveUp(endpoint, incarnation) => self.server.give_up(now, endpoint, incarnation),
            Command::Permit(endpoint, incarnation, may) => self.server.permit(endpoint, incarnation, may),
            Command::Leave(endpoint) => {
                self.server.leave(now, endpoint);
                self.members.remove(&endpoint);
                self.carriers.remove(&endpoint);
            }
            Command::Carry { endpoint, incarnation, carrier, reply } => {
                let known = self.server.carry(endpoint, incarnation);
                if known {
                    self.carriers.insert(endpoint, carrier);
                }
                // Whoever no longer waits has closed the stream.
                let _ = reply.send(known);
            }
            // Whoever no longer waits asks again.
            Command::OpenBook(number, reply) => drop(reply.send(self.server.open_book(now, number))),
            Command::Apply(call, reply) => {
                let NamedCall { book, nth, id, completed, pairs, modify } = *call;
                let entry = Entry { book, nth: &nth, id: &id, completed: &completed };
                let _ = reply.send(self.server.apply(now, &entry, &pairs, modify));
            }
            Command::Batch { endpoint, bytes } => {
                let (server, mut roads) = self.split(send);
                for frame in frames(&bytes) {
                    roads.carried.frames_in += 1;
                    if Base::new_checked(frame).is_ok_and(|base| base.src() == endpoint) {
                        server.handle(now, frame, &mut roads);
                    } else {
                        roads.carried.foreign += 1;
                    }
                }
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

    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let (server, mut roads) = self.split(send);
        match ce {
            true => server.handle_marked(now, frame, &mut roads),
            false => server.handle(now, frame, &mut roads),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        self.let_in(now);
        let (server, mut roads) = self.split(send);
        server.poll(now, &mut roads);
    }

    fn settle(&mut self) {
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, values) => {
                    if let Some(reply) = self.queries.remove(&id) {
                        let _ = reply.send(values);
                    }
                }
                Event::ElementSilent => self.lapsed(true),
                Event::EpochOver => self.lapsed(false),
            }
        }
        self.carriers.retain(|_, carrier| {
            carrier.flush();
            !carrier.is_over()
        });
        self.carried.open = self.carriers.len() as u64;
    }

    fn deadline(&self) -> Option<Instant> {
        self.server.deadline()
    }

    fn element(&self) -> Option<SocketAddr> {
        self.element
    }

    fn close(&mut self, _now: Instant) {}

    /// An owner whose handle is gone serves nobody.
    fn is_idle(&self) -> bool {
        true
    }

    fn forsake(&mut self) {
        self.queries.clear();
        self.joining.clear();
    }
}
