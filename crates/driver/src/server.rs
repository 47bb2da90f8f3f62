//! Driver of a map owner: members join and leave, queries are answered, frames come by one socket.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_wire::{Base, Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::carrier::{CarriedStats, Carrier, frames};
use super::endpoint_driver::{DriverHandle, EndpointDriver, StateMachine};
use super::link::Link;
use pathcall_endpoint::map::server::idempotency::{ApplyOutcome, CallAttempt, Entry};
use pathcall_endpoint::map::server::{
    ElementTerms, Event, Joined, MapServer, Member, Permissions, QueryId, QueryResult, ServerConfig, ServerStats,
};
use pathcall_endpoint::map::{CallError, Dest, EpochChange, FrameSink, Key, Modify};
use pathcall_endpoint::tables::FixedHashMap;

/// Call with an id, see [`MapServer::apply`].
#[derive(Debug)]
pub struct IdempotentApply {
    /// Number of the caller's journal.
    pub journal: u64,
    /// Attempt number of the call.
    pub attempt: CallAttempt,
    /// Id of the call.
    pub id: Vec<u8>,
    /// Ids that the caller has recorded as completed.
    pub completed: Vec<Vec<u8>>,
    /// Values to add, each key at most once.
    pub pairs: Vec<(Key, i64)>,
    /// Modification that is applied to each value first.
    pub modify: Modify,
}

/// Handle to the owner of one application; the owner stops when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    owner: Arc<DriverHandle<Owner>>,
    invalidated: watch::Receiver<Option<EpochInvalidated>>,
}

impl ServerHandle {
    /// Starts the owner on the current tokio runtime. `key` signs the application's frames, if they carry tokens;
    /// `element` is the element's address.
    #[must_use]
    pub fn spawn(config: ServerConfig, key: Option<TokenKey>, link: Link, element: Option<SocketAddr>) -> Self {
        let (invalidate, invalidated) = watch::channel(None);
        let owner = Owner {
            server: MapServer::new(config).authenticate(key),
            element,
            members: FixedHashMap::default(),
            carriers: FixedHashMap::default(),
            carried: CarriedStats::default(),
            queries: HashMap::new(),
            joining: Vec::new(),
            next: 0,
            terms: 0,
            invalidated: invalidate,
        };
        let shared = EndpointDriver::new(owner, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self { owner: Arc::new(DriverHandle(shared)), invalidated }
    }

    /// Admits a caller with permissions `may`. Its frames come from and go to `address`; without one they are carried.
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
        self.command(|owner, _, _| owner.joining.push(JoinRequest { member, may, address, reply }))?;
        joined.await.unwrap_or(Err(CallError::Closed))
    }

    /// Carries the frames to a caller, as long as the carrier's stream lasts; frames that the stream brings go to the
    /// returned port. `None` if there is no such caller.
    pub fn carry(&self, endpoint: u32, incarnation: u32, carrier: Carrier) -> Option<MemberCarrierPort> {
        let carry = |owner: &mut Owner, _, _: &mut Link| {
            let known = owner.server.mark_carried(endpoint, incarnation);
            if known {
                owner.carriers.insert(endpoint, carrier);
            }
            known
        };
        let known = self.command(carry).unwrap_or(false);
        known.then(|| MemberCarrierPort { owner: Arc::clone(&self.owner.0), endpoint })
    }

    /// Removes a caller that has left.
    pub fn leave(&self, endpoint: u32) {
        // An owner that has stopped has no callers.
        let _ = self.command(|owner, now, _| {
            owner.server.leave(now, endpoint);
            owner.members.remove(&endpoint);
            owner.carriers.remove(&endpoint);
        });
    }

    /// Abandons a caller's part of a sum, see [`MapServer::abandon_sum`].
    pub fn abandon_sum(&self, endpoint: u32, incarnation: u32) {
        let _ = self.command(|owner, now, _| owner.server.abandon_sum(now, endpoint, incarnation));
    }

    /// Changes the permissions of a caller, see [`MapServer::set_permissions`].
    pub fn set_permissions(&self, endpoint: u32, incarnation: u32, may: Permissions) {
        let _ = self.command(|owner, _, _| owner.server.set_permissions(endpoint, incarnation, may));
    }

    /// Confirms that the element no longer admits a caller that has left.
    pub fn confirm_expelled(&self, endpoint: u32) {
        let _ = self.command(|owner, now, _| owner.server.on_caller_expelled(now, endpoint));
    }

    /// Opens a journal of calls with ids.
    ///
    /// # Errors
    /// [`CallError::IdempotencyFull`], [`CallError::Closed`].
    pub fn open_journal(&self, number: u64) -> Result<(), CallError> {
        self.command(|owner, now, _| owner.server.open_journal(now, number))?
    }

    /// Applies a call with an id, see [`MapServer::apply`].
    ///
    /// # Errors
    /// [`CallError`]; then nothing was added.
    pub fn apply(&self, call: &IdempotentApply) -> Result<ApplyOutcome, CallError> {
        let IdempotentApply { journal, attempt, id, completed, pairs, modify } = call;
        let entry = Entry { journal: *journal, attempt, id, completed };
        self.command(|owner, now, _| owner.server.apply(now, &entry, pairs, *modify))?
    }

    /// Makes a direct call, see [`MapServer::add`].
    ///
    /// # Errors
    /// [`CallError`]; then nothing was added.
    pub fn add(&self, pairs: &[(Key, i64)], modify: Modify, get: bool) -> Result<Vec<i64>, CallError> {
        self.command(|owner, _, _| owner.server.add(pairs, modify, get))?
    }

    /// Reads the values of the given keys, or of all.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn query(&self, keys: Option<Vec<Key>>) -> QueryResult {
        let (reply, values) = oneshot::channel();
        self.command(|owner, now, _| {
            owner.next += 1;
            owner.queries.insert(QueryId(owner.next), reply);
            owner.server.query(now, QueryId(owner.next), keys);
        })?;
        values.await.unwrap_or(Err(CallError::Closed))
    }

    /// Sets new terms, see [`MapServer::renew`]; `element` is the element's address.
    pub fn renew(&self, terms: ElementTerms, element: Option<SocketAddr>) {
        let _ = self.command(|owner, now, _| {
            owner.server.renew(now, terms);
            (owner.terms, owner.element) = (terms.number, element);
        });
    }

    /// Returns the renewal that a caller needs, see [`MapServer::take_epoch_change`].
    pub fn take_epoch_change(&self, member: Member) -> Option<EpochChange> {
        self.command(|owner, _, _| owner.server.take_epoch_change(member)).ok()?
    }

    /// Returns a receiver of notifications that the element's values have become invalid.
    #[must_use]
    pub fn epoch_invalidations(&self) -> EpochInvalidations {
        EpochInvalidations(self.invalidated.clone())
    }

    /// Counters of this owner.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.owner.lock().machine.server.stats()
    }

    /// Counters of the frames carried in streams.
    #[must_use]
    pub fn carried_stats(&self) -> CarriedStats {
        self.owner.lock().machine.carried
    }

    fn command<T>(&self, command: impl FnOnce(&mut Owner, Instant, &mut Link) -> T) -> Result<T, CallError> {
        self.owner.command(command).map_err(|_| CallError::Closed)
    }
}

/// Notification that the values that the element holds are no longer valid: the epoch is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochInvalidated {
    /// Number of the terms that have ended.
    pub terms: u64,
    /// Whether the element stopped answering the owner or a caller. If false, it can be used again at once.
    pub silent: bool,
}

/// Receiver of [`EpochInvalidated`] notifications; does not keep the owner running.
#[derive(Debug)]
pub struct EpochInvalidations(watch::Receiver<Option<EpochInvalidated>>);

impl EpochInvalidations {
    /// Waits for the latest notification that differs from `known`; `None` when the owner has stopped.
    pub async fn next(&mut self, known: Option<EpochInvalidated>) -> Option<EpochInvalidated> {
        let invalidated = self.0.wait_for(|invalidated| invalidated.is_some() && *invalidated != known).await;
        invalidated.ok().and_then(|invalidated| *invalidated)
    }
}

/// Port for the frames that one caller's stream brings; does not keep the owner running.
pub struct MemberCarrierPort {
    owner: Arc<EndpointDriver<Owner>>,
    endpoint: u32,
}

impl MemberCarrierPort {
    /// Passes a received batch to the owner; false if the owner has ended. Frames whose source is not this caller are
    /// dropped. An empty batch makes the owner check whether the stream has ended.
    pub fn receive(&self, batch: &[u8]) -> bool {
        let received = self.owner.command(|owner, now, link| {
            let (server, mut router) = owner.split(|to, frame| link.queue(to, frame));
            for frame in frames(batch) {
                router.carried.frames_in += 1;
                if Base::new_checked(frame).is_ok_and(|base| base.src() == self.endpoint) {
                    server.handle(now, frame, &mut router);
                } else {
                    router.carried.foreign += 1;
                }
            }
        });
        received.is_ok()
    }
}

impl fmt::Debug for MemberCarrierPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberCarrierPort").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

struct Owner {
    server: MapServer,
    element: Option<SocketAddr>,
    /// Addresses of the members, by endpoint.
    members: FixedHashMap<u32, SocketAddr>,
    /// Carriers that replace UDP for a member, as long as their streams last.
    carriers: FixedHashMap<u32, Carrier>,
    carried: CarriedStats,
    queries: HashMap<QueryId, oneshot::Sender<QueryResult>>,
    /// Join requests that cannot be admitted yet.
    joining: Vec<JoinRequest>,
    next: u64,
    terms: u64,
    /// Latest notification that the element's values have become invalid.
    invalidated: watch::Sender<Option<EpochInvalidated>>,
}

/// Join request of a caller.
struct JoinRequest {
    member: Member,
    may: Permissions,
    /// Source and destination of the caller's frames.
    address: Option<SocketAddr>,
    reply: oneshot::Sender<Result<Joined, CallError>>,
}

/// Router of outgoing frames: to an address, or to a carrier.
struct FrameRouter<'a, F> {
    element: Option<SocketAddr>,
    members: &'a FixedHashMap<u32, SocketAddr>,
    carriers: &'a mut FixedHashMap<u32, Carrier>,
    carried: &'a mut CarriedStats,
    send: F,
}

impl<F: FnMut(SocketAddr, &[u8])> FrameSink for FrameRouter<'_, F> {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        let to = match to {
            Dest::Element => self.element,
            Dest::Inline(endpoint) => self.members.get(&endpoint).copied(),
            Dest::Endpoint(endpoint) => match self.carriers.get_mut(&endpoint) {
                Some(carrier) => return self.carried.queue(carrier, frame),
                None => self.members.get(&endpoint).copied(),
            },
        };
        if let Some(to) = to {
            (self.send)(to, frame);
        }
    }
}

impl Owner {
    fn invalidate_epoch(&mut self, silent: bool) {
        self.invalidated.send_replace(Some(EpochInvalidated { terms: self.terms, silent }));
    }

    /// Admits waiting callers, in the order of their requests.
    fn admit_waiting(&mut self, now: Instant) {
        while !self.joining.is_empty() && self.server.can_admit() {
            let JoinRequest { member, may, address, reply } = self.joining.remove(0);
            if reply.is_closed() {
                continue;
            }
            let joined = self.server.join(now, member);
            if joined.is_ok() {
                self.server.set_permissions(member.endpoint, member.incarnation, may);
            }
            if let (Ok(_), Some(address)) = (&joined, address) {
                self.members.insert(member.endpoint, address);
            }
            // If the caller no longer waits, its closed stream reports that it left.
            let _ = reply.send(joined);
        }
    }

    fn split<F: FnMut(SocketAddr, &[u8])>(&mut self, send: F) -> (&mut MapServer, FrameRouter<'_, F>) {
        let Self { server, element, members, carriers, carried, .. } = self;
        (server, FrameRouter { element: *element, members, carriers, carried, send })
    }
}

impl StateMachine for Owner {
    fn handle(&mut self, now: Instant, _: SocketAddr, frame: &mut [u8], ce: bool, send: impl FnMut(SocketAddr, &[u8])) {
        let (server, mut router) = self.split(send);
        match ce {
            true => server.handle_marked(now, frame, &mut router),
            false => server.handle(now, frame, &mut router),
        }
    }

    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8])) {
        self.admit_waiting(now);
        let (server, mut router) = self.split(send);
        server.poll(now, &mut router);
    }

    fn deliver_events(&mut self) {
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Answered(id, values) => {
                    if let Some(reply) = self.queries.remove(&id) {
                        let _ = reply.send(values);
                    }
                }
                Event::ElementSilent => self.invalidate_epoch(true),
                Event::EpochEndRequested => self.invalidate_epoch(false),
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

    /// An owner without a handle serves no one.
    fn is_idle(&self) -> bool {
        true
    }

    fn on_driver_dropped(&mut self) {
        self.queries.clear();
        self.joining.clear();
    }
}
