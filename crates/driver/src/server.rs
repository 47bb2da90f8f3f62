//! Driver of a map owner: members join and leave, queries are answered, frames come by one socket.

mod handled;
mod owner;
mod stored;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pathcall_wire::{Base, Instant, TokenKey};
use tokio::sync::{oneshot, watch};

use super::carrier::{CarriedStats, Carrier, frames};
use super::endpoint_driver::{DriverHandle, EndpointDriver};
use super::link::Link;
use super::store::StoreState;
pub use handled::HandledSum;
use owner::{JoinRequest, Owner};
use pathcall_endpoint::map::client::CallId;
use pathcall_endpoint::map::server::durable::ResumeSecret;
use pathcall_endpoint::map::server::idempotency::{ApplyOutcome, CallAttempt, Entry};
use pathcall_endpoint::map::server::{
    ElementTerms, Joined, MapServer, Member, Permissions, QueryId, QueryResult, ServerConfig, ServerStats,
};
use pathcall_endpoint::map::{CallError, EpochChange, Key, Lanes, Modify, Operation, Output};
pub use stored::{RestoreError, ResumedMember};

/// Call with an id, see [`MapServer::apply`](pathcall_endpoint::map::server::MapServer::apply).
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
    /// What the owner's store has reached, if it has one.
    stored: Option<watch::Receiver<StoreState>>,
    used: watch::Receiver<()>,
}

impl ServerHandle {
    /// Starts the owner on the current tokio runtime. `key` signs the application's frames, if they carry tokens;
    /// `element` is the element's address.
    #[must_use]
    pub fn spawn(config: ServerConfig, key: Option<TokenKey>, link: Link, element: Option<SocketAddr>) -> Self {
        Self::run(MapServer::new(config), key, link, element)
    }

    fn run(server: MapServer, key: Option<TokenKey>, link: Link, element: Option<SocketAddr>) -> Self {
        let (invalidate, invalidated) = watch::channel(None);
        let (use_sender, used) = watch::channel(());
        let owner = Owner::new(server.authenticate(key), key, element, invalidate, use_sender);
        let shared = EndpointDriver::new(owner, link);
        tokio::spawn(Arc::clone(&shared).run());
        Self { owner: Arc::new(DriverHandle(shared)), invalidated, stored: None, used }
    }

    /// Admits a caller with permissions `may`. Its frames come from and go to `address`; without one they are carried. With
    /// `secret` it can resume at an owner that takes over.
    ///
    /// # Errors
    /// [`CallError::WorkersFull`], [`CallError::Closed`].
    pub async fn join(
        &self,
        member: Member,
        may: Permissions,
        address: Option<SocketAddr>,
        secret: ResumeSecret,
        next_chunk: Option<u64>,
    ) -> Result<Joined, CallError> {
        let (reply, joined) = oneshot::channel();
        self.command(|owner, _, _| {
            owner.joining.push(JoinRequest { member, may, address, secret, next_chunk, reply })
        })?;
        let joined = joined.await.unwrap_or(Err(CallError::Closed))?;
        self.persisted(joined).await
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

    /// Abandons a caller's part of a sum, see [`MapServer::abandon_sum`](pathcall_endpoint::map::server::MapServer::abandon_sum).
    pub fn abandon_sum(&self, endpoint: u32, incarnation: u32) {
        let _ = self.command(|owner, now, _| owner.server.abandon_sum(now, endpoint, incarnation));
    }

    /// Changes the permissions of a caller, see [`MapServer::set_permissions`](pathcall_endpoint::map::server::MapServer::set_permissions).
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
    pub async fn open_journal(&self, number: u64) -> Result<(), CallError> {
        self.command(|owner, now, _| owner.server.open_journal(now, number))??;
        self.persisted(()).await
    }

    /// Applies a call with an id, see [`MapServer::apply`](pathcall_endpoint::map::server::MapServer::apply).
    ///
    /// # Errors
    /// [`CallError`]; then nothing was added.
    pub async fn apply(&self, call: &IdempotentApply) -> Result<ApplyOutcome, CallError> {
        let IdempotentApply { journal, attempt, id, completed, pairs, modify } = call;
        let entry = Entry { journal: *journal, attempt, id, completed };
        let outcome = self.add_unread(pairs, |owner, now| owner.server.apply(now, &entry, pairs, *modify)).await??;
        self.persisted(outcome).await
    }

    /// Adds to these keys with `add` as soon as no caller reads them in the element.
    async fn add_unread<T>(
        &self,
        pairs: &[(Key, i64)],
        add: impl Fn(&mut Owner, Instant) -> T,
    ) -> Result<T, CallError> {
        loop {
            let (reply, reads_ended) = oneshot::channel();
            let added = self.command(|owner, now, _| {
                if owner.server.must_wait(now, pairs) {
                    owner.adding.push(reply);
                    return None;
                }
                Some(add(owner, now))
            })?;
            if let Some(added) = added {
                return Ok(added);
            }
            reads_ended.await.map_err(|_| CallError::Closed)?;
        }
    }

    /// Makes a direct call, see [`MapServer::add`](pathcall_endpoint::map::server::MapServer::add).
    ///
    /// # Errors
    /// [`CallError`]; then nothing was added.
    pub async fn add(&self, pairs: &[(Key, i64)], modify: Modify, get: bool) -> Result<Vec<i64>, CallError> {
        let values = self.add_unread(pairs, |owner, _| owner.server.add(pairs, modify, get)).await??;
        self.persisted(values).await
    }

    /// Makes a call for a plain gRPC client. Dropping the future cancels the call. `draw_id` gives the id of a new
    /// member.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_alone(
        &self,
        draw_id: impl FnOnce() -> u32 + Send,
        operation: Operation,
    ) -> Result<Output, CallError> {
        let (reply, outcome) = oneshot::channel();
        let id = self.command(|owner, now, _| {
            owner.next += 1;
            let id = CallId(owner.next);
            owner.lone.start(now, &mut owner.server, draw_id, id, operation)?;
            owner.lone_calls.insert(id, reply);
            Ok(id)
        })??;
        let _guard = LoneCallGuard { id, owner: &self.owner };
        outcome.await.unwrap_or(Err(CallError::Closed))
    }

    /// Waits for the sum of a call of `chunks` chunks from `first` on, for the server's handler.
    ///
    /// # Errors
    /// [`CallError::SumAbandoned`] if the sums of the workers fail, [`CallError::Closed`].
    pub async fn handled_sum(&self, first: u64, chunks: usize) -> Result<HandledSum, CallError> {
        let (reply, sum) = oneshot::channel();
        self.command(|owner, _, _| owner.handled.collect(first, chunks, reply))?;
        sum.await.unwrap_or(Err(CallError::Closed))
    }

    /// Sends the handler's result to all workers, with as many values as the sum; the sum itself if `result` is `None`.
    pub fn answer_sum(&self, sum: &HandledSum, result: Option<&Lanes>) {
        // An owner that has stopped has no workers.
        let _ = self.command(|owner, now, link| {
            let (server, mut router) = owner.split(|to, frame| link.queue(to, frame));
            sum.answer(now, result, server, &mut router);
        });
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
        let values = values.await.unwrap_or(Err(CallError::Closed))?;
        self.persisted(values).await
    }

    /// Sets new terms, see [`MapServer::renew`](pathcall_endpoint::map::server::MapServer::renew); `element` is the element's address.
    pub fn renew(&self, terms: ElementTerms, element: Option<SocketAddr>) {
        let _ = self.command(|owner, now, _| {
            owner.server.renew(now, terms);
            owner.lone.renew(now, &mut owner.server, terms.number);
            (owner.terms, owner.element) = (terms.number, element);
        });
    }

    /// Returns the renewal that a caller needs, see [`MapServer::take_epoch_change`](pathcall_endpoint::map::server::MapServer::take_epoch_change).
    pub async fn take_epoch_change(&self, member: Member) -> Option<EpochChange> {
        let change = self.command(|owner, _, _| owner.server.take_epoch_change(member)).ok()??;
        self.persisted(change).await.ok()
    }

    /// Returns a receiver of notifications that the element's values have become invalid.
    #[must_use]
    pub fn epoch_invalidations(&self) -> EpochInvalidations {
        EpochInvalidations(self.invalidated.clone())
    }

    /// Requests a notification at the next operation of a caller, see [`MapServer::watch_use`]. The receiver does not
    /// keep the owner running.
    #[must_use]
    pub fn watch_use(&self) -> watch::Receiver<()> {
        let mut used = self.used.clone();
        used.mark_unchanged();
        // An owner that has stopped is not used any more.
        let _ = self.command(|owner, _, _| owner.server.watch_use());
        used
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

/// Guard of a call for a plain gRPC client: cancels the call if it has no outcome yet.
struct LoneCallGuard<'a> {
    id: CallId,
    owner: &'a EndpointDriver<Owner>,
}

impl Drop for LoneCallGuard<'_> {
    fn drop(&mut self) {
        let id = self.id;
        // An owner that has stopped has nothing to cancel.
        let _ = self.owner.command(|owner, now, _| {
            if owner.lone_calls.remove(&id).is_some() {
                owner.lone.cancel(now, id);
            }
        });
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
