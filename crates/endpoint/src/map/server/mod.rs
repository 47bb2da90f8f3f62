//! State machine of the owner of an application.
//!
//! Frames that the element has processed arrive with their sums. Other frames arrive unchanged and are executed in
//! software with 64-bit values: the same answer, slower (NetRPC §5.2.1, "Fallback"). `receive` checks and dispatches
//! frames, `frames` writes them. `sum` has rounds and their backups, `reached` sums for the handler, `keyed` has keys with their base values and
//! registers, `votes` has ballots, `idempotency` calls with ids, `lone` calls of plain gRPC clients, `durable` the
//! changes for a store.

mod config;
pub mod durable;
mod frames;
pub mod idempotency;
mod keyed;
pub mod lone;
mod member;
mod reached;
mod receive;
mod round;
mod shadow;
mod sum;
mod votes;

use std::collections::{BTreeMap, VecDeque};

use pathcall_wire::{Instant, MAX_UNSIGNED, MAX_WORKERS, TokenKey};

use super::bypass::Bypass;
use super::lease::Era;
use super::{CallError, EpochChange, FrameSink, Key, RegisterGrant};
use crate::token::FrameAuth;
pub use config::{Member, ServerConfig};
use durable::gate::HoldingSink;
use durable::{Changes, Durable};
use idempotency::IdempotencyTable;
use keyed::KeyedStore;
pub use keyed::{EvictionPolicy, KEY_MEMORY};
use member::{EndedEpoch, Leftover, MemberState};
pub use reached::{ReachedPosition, ReachedSum, SumEvent};
pub use receive::Permissions;
use shadow::WorkerProgress;
use sum::SumStore;
use votes::BallotStore;

/// Number of rows of an application without an element.
pub const SOFTWARE_ROWS: u32 = 1024;

/// Answer to a query.
pub type QueryResult = Result<Vec<(Key, i64)>, CallError>;

/// Id of a query of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// Epoch and element memory of an application, see [`MapServer::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementTerms {
    /// Number of the change; 0 at the start of a server.
    pub number: u64,
    /// Epoch of the registers.
    pub epoch: u32,
    /// Memory in an element, if any.
    pub grant: Option<RegisterGrant>,
    /// Reason in the error of values that are lost because their caller left before they were committed.
    pub reason: &'static str,
}

/// Event of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Answer to a query.
    Answered(QueryId, QueryResult),
    /// The element does not answer the owner or a caller. Operations that need the element wait for
    /// [`MapServer::renew`].
    ElementSilent,
    /// The owner requests a new epoch so that a caller can join; the element works. [`MapServer::renew`] follows.
    EpochEndRequested,
    /// Values are no longer read as before: additions for which [`MapServer::must_wait`] was true may be possible.
    ReadsEnded,
    /// The application is in use again, see [`MapServer::watch_use`].
    Used,
}

pub(crate) type Events = VecDeque<Event>;

/// Result of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Index of the worker.
    pub worker: u16,
    /// Start chunk of the caller's first array.
    pub start_chunk: u64,
    /// Rows of the application.
    pub rows: u32,
    /// Lanes of a row.
    pub width: u16,
    /// Whether the caller's frames use the element.
    pub element: bool,
    /// Era of fencing tokens that the element grants.
    pub era: Era,
}

/// Counters of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerStats {
    /// Frames received.
    pub frames_received: u64,
    /// Received frames that were ignored (hostile, late, or for another endpoint).
    pub frames_ignored: u64,
    /// Ignored frames whose token was missing, wrong or not allowed.
    pub frames_unauthentic: u64,
    /// Ignored frames whose caller has no permission for their operation.
    pub frames_refused: u64,
    /// Bytes of received frames.
    pub bytes_received: u64,
    /// Bytes of received lanes and pairs.
    pub lane_bytes_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Rounds summed by the element.
    pub rounds_element: u64,
    /// Rounds summed in software.
    pub rounds_software: u64,
    /// Pairs and lanes added in software.
    pub software_adds: u64,
    /// Calls with ids that took effect.
    pub calls_applied: u64,
    /// Repeated calls with ids.
    pub calls_repeated: u64,
    /// Number of keys.
    pub keys: u64,
    /// Number of keys with a register.
    pub keys_mapped: u64,
    /// Number of evictions.
    pub keys_evicted: u64,
}

/// State shared by all parts of the owner.
struct OwnerContext {
    config: ServerConfig,
    /// Number of the current terms.
    terms: u64,
    /// Epoch before the present one.
    previous_epoch: u32,
    /// Changes for the store.
    changes: Changes,
    /// Era of fencing tokens that the server grants.
    era: Era,
    members: BTreeMap<u32, MemberState>,
    stats: ServerStats,
    scratch: Box<[u8]>,
}

/// State machine of an owner; used in the same way as [`super::client::MapClient`].
pub struct MapServer {
    guard: FrameAuth,
    shared: OwnerContext,
    sums: SumStore,
    keyed: KeyedStore,
    votes: BallotStore,
    idempotency: IdempotencyTable,
    /// Bit mask of worker indexes that were in use before: the element may have contributions of them.
    used_workers: u64,
    progress: WorkerProgress,
    /// Frames of callers that bypass the inline element.
    bypass: Bypass,
    durable: Durable,
    /// Whether the next operation of a caller is an event.
    watches_use: bool,
    events: Events,
}

impl MapServer {
    /// Owner without callers.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let rows = config.grant.map_or(SOFTWARE_ROWS, |grant| grant.rows).max(config.rows_max);
        let rows = if config.threshold > 0 { rows } else { 0 };
        let used = config.grant.map_or(rows, |grant| grant.rows);
        Self {
            guard: FrameAuth::default(),
            sums: SumStore::new(rows, (config.epoch, used), config.clear),
            keyed: KeyedStore::new(&config),
            votes: BallotStore::new(&config),
            idempotency: IdempotencyTable::default(),
            used_workers: 0,
            progress: WorkerProgress::default(),
            bypass: Bypass::default(),
            durable: Durable::default(),
            watches_use: false,
            events: VecDeque::new(),
            shared: OwnerContext {
                config,
                terms: 0,
                previous_epoch: config.epoch,
                changes: Changes::default(),
                era: Era::of_epoch(config.epoch),
                members: BTreeMap::new(),
                stats: ServerStats::default(),
                scratch: vec![0; MAX_UNSIGNED].into_boxed_slice(),
            },
        }
    }

    /// Sets the key of the application's frames; `None`: frames have no tokens.
    #[must_use]
    pub fn authenticate(self, key: Option<TokenKey>) -> Self {
        Self { guard: FrameAuth::new(key), ..self }
    }

    /// Adds a caller. [`MapServer::can_admit`] must be true before.
    ///
    /// # Errors
    /// [`CallError::WorkersFull`] if a SyncAgtr application has all its workers.
    pub fn join(&mut self, now: Instant, member: Member) -> Result<Joined, CallError> {
        let config = &self.shared.config;
        let mut worker = 0;
        if config.threshold > 0 {
            let threshold = config.threshold.min(MAX_WORKERS as u32);
            let taken = self.shared.members.values().fold(0u64, |mask, m| mask | 1 << m.worker);
            let free = taken.trailing_ones();
            if free >= threshold {
                return Err(CallError::WorkersFull { threshold });
            }
            worker = free as u16;
            if self.used_workers >> worker & 1 == 1 {
                // Contributions of the previous holder of the index must not count for this worker.
                self.sums.reset_worker(now, worker, config.grant.is_some());
            }
            self.used_workers |= 1 << worker;
        }
        // If the terms have changed since the caller asked, a notice with the new ones follows.
        let current = member.terms == self.shared.terms;
        let settled = current || !member.element;
        let member = Member { element: member.element && current, ..member };
        let (failed, oldest) = (self.sums.has_failed(), Some(self.sums.first_open_chunk()));
        let state = MemberState { worker, settled, failed, oldest, ..MemberState::new(member) };
        self.shared.members.insert(member.endpoint, state);
        self.shared.changes.note_member(member.endpoint);
        let counted_in_element = settled && self.votes.is_in_element();
        if !member.element && (counted_in_element || self.keyed.has_locks_in_element(&self.shared)) {
            // This caller cannot reach ballots and locks in the element, so they must return to the server.
            self.events.push_back(Event::ElementSilent);
        }
        Ok(Joined {
            worker,
            start_chunk: self.sums.first_open_chunk(),
            rows: self.rows(),
            width: config.width,
            element: member.element && config.grant.is_some(),
            era: self.shared.era.of_element(),
        })
    }

    /// Sets the permissions of a caller; the default is all. The owner drops frames with other operations. The element
    /// does not know permissions, so it must not admit a caller without all permissions.
    pub fn set_permissions(&mut self, endpoint: u32, incarnation: u32, may: Permissions) {
        let member = self.shared.members.get_mut(&endpoint).filter(|state| state.member.incarnation == incarnation);
        if let Some(state) = member {
            state.may = may;
        }
    }

    /// Removes a caller that left or died.
    pub fn leave(&mut self, now: Instant, endpoint: u32) {
        if let Some(state) = self.shared.members.remove(&endpoint) {
            self.shared.changes.note_left(endpoint);
            self.sums.leave(state.worker);
            let left = match state {
                MemberState { clean: true, .. } => Leftover::Clean,
                MemberState { settled: false, .. } => Leftover::Unsettled,
                MemberState { member: Member { element: true, .. }, .. } => Leftover::Uncommitted,
                _ => Leftover::Clean,
            };
            self.votes.leave(endpoint);
            self.keyed.leave(now, endpoint, left, &self.shared, &mut self.events);
            self.update_worker_progress();
        }
    }

    /// Records that the element does not admit a former caller any more, so that its locks in the element can be freed.
    pub fn on_caller_expelled(&mut self, now: Instant, endpoint: u32) {
        self.keyed.on_caller_expelled(now, endpoint, &self.shared);
    }

    /// Records that a caller's frames are carried through gRPC from now on, because UDP fails, so that the caller
    /// probably cannot reach the element either. False if there is no such member.
    pub fn mark_carried(&mut self, endpoint: u32, incarnation: u32) -> bool {
        let member = self.shared.members.get_mut(&endpoint).filter(|state| state.member.incarnation == incarnation);
        let Some(state) = member else { return false };
        state.carried = true;
        if state.member.element && self.shared.config.grant.is_some() {
            // The end of the epoch determines which of its frames the element has applied.
            self.events.push_back(Event::ElementSilent);
        }
        true
    }

    /// Starts a new epoch: the element has restarted, its memory has moved, another element serves, or there is no
    /// element. Frames of the ended epoch are invalid. All callers use the path past the element until they have the
    /// notice of [`MapServer::take_epoch_change`].
    pub fn renew(&mut self, now: Instant, terms: ElementTerms) {
        let ElementTerms { number, epoch, grant, reason } = terms;
        self.shared.previous_epoch = self.shared.config.epoch;
        self.shared.changes.note_meta();
        let grant = grant.filter(|grant| grant.width >= self.shared.config.width);
        let fits = self.sums.begin_epoch(epoch, grant.map(|grant| grant.rows));
        let grant = grant.filter(|_| fits);
        (self.shared.terms, self.shared.config.epoch, self.shared.config.grant) = (number, epoch, grant);
        self.sums.renew(now, grant.is_some());
        self.votes.renew();
        self.shared.era = self.shared.era.next(epoch);
        let config = self.shared.config;
        self.keyed.renew(now, reason, &config, &mut self.shared, &mut self.events);
        self.bypass = Bypass::default();
        let OwnerContext { members, changes, .. } = &mut self.shared;
        for (endpoint, state) in members {
            (state.member.element, state.inline) = (false, false);
            changes.note_member(*endpoint);
        }
        self.reset_worker_progress();
    }

    /// Notice of new terms for a caller, once; `member` has its slots under these terms. `None` if the caller is no
    /// member or the terms have changed again.
    pub fn take_epoch_change(&mut self, member: Member) -> Option<EpochChange> {
        if member.terms != self.shared.terms || self.is_absent(member.endpoint) {
            return None;
        }
        let config = &self.shared.config;
        let state = self.shared.members.get_mut(&member.endpoint)?;
        let element = member.element && config.grant.is_some() && !state.carried && !state.failed;
        state.member = Member { element, ..member };
        let nothing = || EndedEpoch { epoch: self.shared.previous_epoch, ..EndedEpoch::default() };
        let ended = state.ended.take().unwrap_or_else(nothing);
        if self.shared.changes.on {
            state.note_told(&ended);
            self.shared.changes.note_member(member.endpoint);
        }
        let EndedEpoch { committed, applied, .. } = ended;
        let era = self.shared.era.of_element();
        let (epoch, slot_base, rows) = (config.epoch, member.slot_base, self.rows());
        Some(EpochChange { epoch, element, slot_base, rows, era, committed, applied })
    }

    /// Rows of the application in this epoch.
    fn rows(&self) -> u32 {
        let Self { shared, sums, .. } = self;
        if shared.config.threshold > 0 { sums.rows() } else { shared.config.grant.map_or(0, |grant| grant.rows) }
    }

    /// Requests [`Event::Used`] at the next frame with an operation of a caller: the application was idle until then.
    pub fn watch_use(&mut self) {
        self.watches_use = true;
    }

    /// Starts a query of these keys, or of all keys. The answer is an event.
    pub fn query(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>) {
        self.keyed.query(now, id, keys, &self.shared, &mut self.events);
    }

    /// Sends due frames: announcements of software rounds, reads of registers and others.
    pub fn poll(&mut self, now: Instant, out: &mut impl FrameSink) {
        self.expire_absent(now);
        if !self.durable.gate.has_store() {
            return self.send_due(now, out);
        }
        let mut gate = std::mem::take(&mut self.durable.gate);
        self.send_due(now, &mut HoldingSink(&mut gate));
        self.durable.gate = gate;
        self.release_outputs(out);
    }

    fn send_due(&mut self, now: Instant, out: &mut impl FrameSink) {
        let mut guard = std::mem::take(&mut self.guard);
        let out = &mut guard.signing(out);
        self.sums.poll(now, &mut self.shared, out);
        self.keyed.poll(now, &mut self.shared, out, &mut self.events);
        self.votes.poll(now, &mut self.shared, out, &mut self.events);
        self.guard = guard;
    }

    /// Next time at which [`MapServer::poll`] must be called, if no input comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let keyed = [self.keyed.deadline(&self.shared), self.votes.deadline()];
        keyed.into_iter().chain([self.sums.deadline(), self.absence_deadline()]).flatten().min()
    }

    /// Next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the server has recorded that the votes for a ballot have reached this threshold. A decision of the
    /// element may be recorded later than callers get it, except with [`Ack::Server`](super::Ack).
    #[must_use]
    pub fn has_decided(&self, key: &Key, threshold: u32) -> bool {
        self.votes.is_decided(key, threshold)
    }

    /// Counters of this owner.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let [keys, keys_mapped, keys_evicted] = self.keyed.key_counts();
        let keys = keys + self.votes.len() as u64;
        ServerStats { keys, keys_mapped, keys_evicted, ..self.shared.stats }
    }
}
