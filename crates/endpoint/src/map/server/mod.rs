//! The owner of an application's truth.
//!
//! Frames that the element has worked on arrive here with their sums; frames that it could not
//! work on arrive as they were sent, and are executed in software with 64-bit values: the same
//! answer, slower (NetRPC §5.2.1, "Fallback"). `sum` keeps rounds and their backups (clear
//! policy `copy`), `keyed` the keys, their base values and where the element holds them.

pub mod books;
mod config;
mod doors;
mod keyed;
mod permissions;
mod shadow;
mod shared;
mod sum;
mod votes;

use std::collections::{BTreeMap, VecDeque};

use pathcall_wire::{Flags, Instant, Kind, MAX_UNSIGNED, MAX_WORKERS, MapFlags, MapFrame, Mutant, mutant};

use super::bypass::Bypass;
use super::lease::Era;
use super::{Applied, CallError, Grant, Key, Outbox, Renewal};
use crate::flow::SeenSet;
use crate::token::Guard;
use books::Books;
pub use config::{Member, ServerConfig};
use keyed::KeyedTruth;
pub use keyed::{Eviction, KEY_MEMORY};
pub use permissions::Permissions;
use shadow::Standing;
use sum::SumTruth;
use votes::VoteTruth;

/// Rows that an application without element works with.
pub const SOFTWARE_ROWS: u32 = 1024;

/// What a query gets.
pub type Values = Result<Vec<(Key, i64)>, CallError>;

/// Names a query of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// What holds from now on, see [`MapServer::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Counts the changes; what a server starts with is 0.
    pub number: u64,
    /// Epoch of the registers.
    pub epoch: u32,
    /// Memory in an element, if any.
    pub grant: Option<Grant>,
    /// For those whose values are lost because their caller left before the server had them.
    pub reason: &'static str,
}

/// What an owner has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A query's answer.
    Answered(QueryId, Values),
    /// The element does not answer the owner or a caller. Until [`MapServer::renew`] nothing that
    /// needs it goes on.
    ElementSilent,
    /// What the element holds is to be gone, there is nothing wrong with it otherwise: a caller waits for
    /// [`MapServer::renew`] to be let in.
    EpochOver,
}

pub(crate) type Events = VecDeque<Event>;

/// What joining gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Which of the threshold workers it is.
    pub worker: u16,
    /// Chunk that its first array starts at.
    pub start_chunk: u64,
    /// Rows of the application.
    pub rows: u32,
    /// Lanes of a row.
    pub width: u16,
    /// Whether its frames go by the element: it knows the caller, and its memory is of use.
    pub element: bool,
    /// Upper half of the fencing tokens of locks that the element grants.
    pub era: Era,
}

/// What a server has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerStats {
    /// Frames that came.
    pub frames_received: u64,
    /// Frames that came and meant nothing here (hostile, late, not ours).
    pub frames_ignored: u64,
    /// Those of them that did not carry the application's token, or one where it has none.
    pub frames_unauthentic: u64,
    /// Those of them whose caller may not do what they ask for.
    pub frames_refused: u64,
    /// Bytes of frames that came.
    pub bytes_received: u64,
    /// Bytes of lanes and pairs that came.
    pub lane_bytes_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Rounds whose sums the element made.
    pub rounds_element: u64,
    /// Rounds summed in software.
    pub rounds_software: u64,
    /// Pairs and lanes added in software.
    pub software_adds: u64,
    /// Calls with ids that took effect.
    pub calls_applied: u64,
    /// Calls with ids that had taken effect before.
    pub calls_repeated: u64,
    /// Keys known.
    pub keys: u64,
    /// Keys that the element holds.
    pub keys_mapped: u64,
    /// Keys that have given their registers to others.
    pub keys_evicted: u64,
}

struct MemberState {
    member: Member,
    worker: u16,
    seen: SeenSet,
    /// Set from a change of epoch until the caller has been told: what it is to be told.
    ended: Option<Ended>,
    may: Permissions,
    /// Whether it has repeated what ended epochs had of it.
    settled: bool,
    /// Whether it said that nothing of it is only in the element, and that it is leaving.
    clean: bool,
    /// Whether it gets no further sum, and has to join anew.
    failed: bool,
    /// Whether its frames are carried in a stream: it reaches no element.
    carried: bool,
    /// Whether the element is on the way to it and back, as it has found in this epoch.
    inline: bool,
    /// With clear policy *shadow*: its oldest chunk without a result, as it said since these terms
    /// hold.
    stands: Option<u64>,
}

/// What a caller leaves behind in the element, as far as can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Clean,
    /// Maybe values of generations that are not committed yet.
    Uncommitted,
    /// Maybe values that were gone with an ended epoch, and that it has not repeated.
    Unsettled,
}

/// How the epoch that a caller knows ended.
#[derive(Default)]
struct Ended {
    committed: u32,
    applied: Vec<Applied>,
}

/// What the two kinds of truth share.
struct Shared {
    config: ServerConfig,
    /// Number of the terms that hold.
    terms: u64,
    /// Upper half of the fencing tokens that are granted here.
    era: Era,
    members: BTreeMap<u32, MemberState>,
    stats: ServerStats,
    scratch: Box<[u8]>,
}

/// The state machine of an owner; used as [`super::client::MapClient`] is.
pub struct MapServer {
    guard: Guard,
    shared: Shared,
    sums: SumTruth,
    keyed: KeyedTruth,
    votes: VoteTruth,
    books: Books,
    /// Worker places that somebody had before: their element state may be half-used.
    used_workers: u64,
    standing: Standing,
    /// Frames of callers that the element should have admitted.
    bypass: Bypass,
    events: Events,
}

impl MapServer {
    /// An owner without callers.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let rows = config.grant.map_or(SOFTWARE_ROWS, |grant| grant.rows);
        Self {
            guard: Guard::default(),
            sums: SumTruth::new(if config.threshold > 0 { rows } else { 0 }, config.clear),
            keyed: KeyedTruth::new(&config),
            votes: VoteTruth::new(&config),
            books: Books::default(),
            used_workers: 0,
            standing: Standing::default(),
            bypass: Bypass::default(),
            events: VecDeque::new(),
            shared: Shared {
                config,
                terms: 0,
                era: Era::of_epoch(config.epoch),
                members: BTreeMap::new(),
                stats: ServerStats::default(),
                scratch: vec![0; MAX_UNSIGNED].into_boxed_slice(),
            },
        }
    }

    /// A caller joins. Before that, [`MapServer::lets_in`] says whether it can.
    ///
    /// # Errors
    /// [`CallError::WorkersFull`] when a SyncAgtr application has its workers already.
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
                // What the last holder of the place has sent must not count for this one.
                self.sums.start_anew(now, worker, config.grant.is_some());
            }
            self.used_workers |= 1 << worker;
        }
        // One that was let in under terms that have changed meanwhile is told of the new ones next.
        let current = member.terms == self.shared.terms;
        let settled = current || !member.element;
        let member = Member { element: member.element && current, ..member };
        let seen = SeenSet::default();
        let (ended, clean, failed, carried, inline) = (None, false, self.sums.has_failed(), false, false);
        let (stands, may) = (Some(self.sums.first_open_chunk()), Permissions::ALL);
        let state = MemberState { member, worker, seen, ended, may, settled, clean, failed, carried, inline, stands };
        self.shared.members.insert(member.endpoint, state);
        let counted_away = settled && self.votes.is_away();
        if !member.element && (counted_away || self.keyed.has_locks_away(&self.shared)) {
            // It can't reach them: they come back here.
            self.events.push_back(Event::ElementSilent);
        }
        Ok(Joined {
            worker,
            start_chunk: self.sums.first_open_chunk(),
            rows: if config.threshold > 0 { self.sums.rows() } else { config.grant.map_or(0, |g| g.rows) },
            width: config.width,
            element: member.element && config.grant.is_some(),
            era: self.shared.era.of_element(),
        })
    }

    /// A caller left, or died.
    pub fn leave(&mut self, now: Instant, endpoint: u32) {
        if let Some(state) = self.shared.members.remove(&endpoint) {
            self.sums.leave(state.worker);
            let left = match state {
                MemberState { clean: true, .. } => Left::Clean,
                MemberState { settled: false, .. } => Left::Unsettled,
                MemberState { member: Member { element: true, .. }, .. } => Left::Uncommitted,
                _ => Left::Clean,
            };
            self.votes.leave(endpoint);
            self.keyed.leave(now, endpoint, left, &self.shared, &mut self.events);
            self.look_where_all_stand();
        }
    }

    /// The element no longer lets in a caller that has left: what it held there can be freed.
    pub fn gone(&mut self, now: Instant, endpoint: u32) {
        self.keyed.gone(now, endpoint, &self.shared);
    }

    /// This caller's frames are carried in a stream from now on, because UDP does not get through:
    /// not to the element either, as far as anybody can tell. False when there is no such member.
    pub fn carry(&mut self, endpoint: u32, incarnation: u32) -> bool {
        let member = self.shared.members.get_mut(&endpoint).filter(|state| state.member.incarnation == incarnation);
        let Some(state) = member else { return false };
        state.carried = true;
        if state.member.element && self.shared.config.grant.is_some() {
            // What of it the element has applied, and what not, is known once its epoch has ended.
            self.events.push_back(Event::ElementSilent);
        }
        true
    }

    /// The element has restarted, its memory has moved, another serves, or there is none: nothing
    /// that comes from the ended epoch counts any more. Every caller is to be told by
    /// [`MapServer::rejoin`] and works past the element until then.
    pub fn renew(&mut self, now: Instant, terms: Terms) {
        let Terms { number, epoch, grant, reason } = terms;
        let rows = self.sums.rows();
        // The circle of rows stays as it is: callers count chunks by it.
        let grant = grant.filter(|grant| grant.rows >= rows && grant.width >= self.shared.config.width);
        (self.shared.terms, self.shared.config.epoch, self.shared.config.grant) = (number, epoch, grant);
        self.sums.renew(now, grant.is_some());
        self.votes.renew();
        self.shared.era = self.shared.era.next(epoch);
        let config = self.shared.config;
        self.keyed.renew(now, reason, &config, &mut self.shared, &mut self.events);
        self.bypass = Bypass::default();
        for state in self.shared.members.values_mut() {
            (state.member.element, state.inline) = (false, false);
        }
        self.stand_anew();
    }

    /// What a caller is to be told, once, of new terms; `member` is what the element knows of it under
    /// them. `None` when it is no member, or the terms have changed again.
    pub fn rejoin(&mut self, member: Member) -> Option<Renewal> {
        if member.terms != self.shared.terms {
            return None;
        }
        let config = &self.shared.config;
        let state = self.shared.members.get_mut(&member.endpoint)?;
        let element = member.element && config.grant.is_some() && !state.carried && !state.failed;
        state.member = Member { element, ..member };
        let Ended { committed, applied } = state.ended.take().unwrap_or_default();
        let era = self.shared.era.of_element();
        Some(Renewal { epoch: config.epoch, element, slot_base: member.slot_base, era, committed, applied })
    }

    /// Asks for the values of these keys, or of all. The answer comes as an event.
    pub fn query(&mut self, now: Instant, id: QueryId, keys: Option<Vec<Key>>) {
        self.keyed.query(now, id, keys, &self.shared, &mut self.events);
    }

    fn take(&mut self, now: Instant, bytes: &[u8], out: &mut impl Outbox) -> Option<()> {
        let frame = MapFrame::new_checked(bytes).ok()?;
        let (base, config) = (frame.base(), self.shared.config);
        // A frame to a predecessor of this process is not for us, whatever its names are now.
        let ours = base.dst() == config.endpoint && base.dst_incarnation() == config.incarnation;
        if base.gaid() != config.gaid || !ours {
            return None;
        }
        let Self { shared, keyed, sums, votes, bypass, events, .. } = self;
        let this_epoch = base.epoch() == config.epoch || mutant::on(Mutant::ServerEpoch);
        if base.src() == config.endpoint {
            if frame.kind() == Kind::MapMoved {
                return if this_epoch { votes.moved(now, &frame) } else { None };
            }
            return this_epoch.then(|| keyed.element(now, &frame, shared, events, out))?;
        }
        let MemberState { member, may, .. } = *shared.members.get(&base.src())?;
        // What came past the element is the same in every epoch; what it has touched is not.
        let lives = base.src_incarnation() == member.incarnation || mutant::on(Mutant::ServerIncarnation);
        if !lives || !(this_epoch || base.has(Flags::CROSS)) {
            return None;
        }
        let by_element = this_epoch && member.element && config.grant.is_some();
        if by_element && !base.has(Flags::CROSS) && base.has(Flags::NOT_ADMITTED) {
            let silent = bypass.met(now, config.timing.silent);
            events.extend(silent.then_some(Event::ElementSilent));
        }
        if !may.admit(&frame) {
            shared.stats.frames_refused += 1;
            return None;
        }
        // What fills a greeting is nothing of a lane.
        if frame.kind() != Kind::MapHello {
            shared.stats.lane_bytes_received += (frame.lanes().len() + frame.payload().len()) as u64;
        }
        match frame.kind() {
            Kind::MapData if config.threshold > 0 => sums.contribution(now, &frame, shared, out),
            Kind::MapData if frame.map().has(MapFlags::DIVERTED) => keyed.parked(&frame, shared, out),
            Kind::MapData => keyed.logical(&frame, shared, out),
            Kind::MapLease => keyed.lease(now, &frame, shared, out),
            Kind::MapPairs if config.votes => votes.frame(now, &frame, shared, out),
            Kind::MapPairs if config.threshold == 0 => keyed.pairs(&frame, shared, out),
            Kind::MapHello => {
                let map = frame.map();
                if map.tag() == shared.era.of_element().number()
                    && let Some(state) = shared.members.get_mut(&base.src())
                {
                    // A copy of an earlier greeting may come later.
                    state.stands = state.stands.max(sums.chunk(map.index(), map.threshold()));
                }
                shared.greeted(&frame, out);
                self.look_where_all_stand();
                Some(())
            }
            Kind::MapFlush => keyed.flush(now, &frame, shared, events, out),
            Kind::MapSettled => keyed.settled(now, &frame, shared, events, out),
            Kind::MapSilent => by_element.then(|| events.push_back(Event::ElementSilent)),
            _ => None,
        }
    }

    /// When [`MapServer::poll`] is to be called next, if nothing comes before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let keyed = [self.keyed.deadline(&self.shared), self.votes.deadline()];
        keyed.into_iter().chain([self.sums.deadline()]).flatten().min()
    }

    /// What there is to say next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let [keys, keys_mapped, keys_evicted] = self.keyed.sizes();
        let keys = keys + self.votes.len() as u64;
        ServerStats { keys, keys_mapped, keys_evicted, ..self.shared.stats }
    }
}
