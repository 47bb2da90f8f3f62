//! Keyed store of the owner: values, counters and locks by key, and their registers in the element.
//!
//! The value of a key is its base, a 64-bit value in this store, plus its register in the element, if any. Software
//! additions change the base, the element's additions the register. A [`harvest`] transfers the registers of one
//! generation to the bases. Each query waits for a harvest.

mod atomic_add;
mod durable;
mod evict;
mod frame_class;
mod harvest;
mod leases;
mod lock;
mod lock_queues;
mod queries;
mod reads;
mod reclaim;
pub(super) mod sweep;
mod table;

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, MAX_ENTRIES, PairAnswer, PairStatus};
use pathcall_wire::{
    BaseRepr, Flags, ForwardTarget, FrameKind, KEYED_LANES, MapFlags, MapFrame, MapRepr, Mutant, OpType, mutant,
};

use super::super::lease::Era;
use super::super::{Dest, FrameSink, Key, Modify};
use super::{MemberState, OwnerContext, QueryId, ServerConfig};
use crate::flow::{FlowTiming, SeqClass};
use durable::ChangedKeys;
pub use evict::EvictionPolicy;
use evict::Evictions;
use frame_class::{classify, classify_any};
use harvest::{AppliedRecord, Harvest};
use leases::Leases;
use lock::{LockAnswer, LockRequest};
use lock_queues::LockQueues;
use reads::Reads;
use reclaim::LockReclaim;
pub use table::KEY_MEMORY;
use table::{FrameId, KeyState, KeyTable};

type QueryWaiter = (QueryId, Option<Vec<Key>>);

/// Keyed store of an application.
pub(super) struct KeyedStore {
    table: KeyTable,
    /// Refused pairs of frames, for answers to repeats. By window position, so the number is bounded.
    refused: BTreeMap<(u32, u32, u32), (u32, Vec<u32>)>,
    /// Version of the mapping from keys to registers.
    version: u32,
    /// Harvest in progress.
    harvest: Option<Harvest>,
    /// Whether the harvest is complete because a caller has left whose record was missing.
    harvest_complete: bool,
    /// Queries that the harvest in progress answers.
    harvest_queries: Vec<QueryWaiter>,
    /// Queries that wait for the next harvest.
    waiting_queries: Vec<QueryWaiter>,
    harvest_count: u32,
    /// Last committed generation of this epoch.
    committed: u32,
    /// Frames of callers in committed generations.
    record: AppliedRecord,
    /// Last generation whose commit callers have requested.
    commit_requested: u32,
    /// Whether a caller with uncommitted values has left: before the last close of a generation, and after it.
    departed: (bool, bool),
    reclaim: LockReclaim,
    evictions: Evictions,
    reads: Reads,
    leases: Leases,
    lock_queues: LockQueues,
    /// Whether to check all waited-for locks, since grants may be possible again.
    recheck_locks: bool,
    timing: FlowTiming,
    loss_reason: Option<&'static str>,
    /// Changes for the store.
    pub(super) changed: ChangedKeys,
}

/// Request of a frame with whole keys.
struct PairsRequest {
    flags: u16,
    op: OpType,
    para: i32,
    threshold: u32,
    to: ForwardTarget,
    frame_id: FrameId,
    new: bool,
    /// Whether the session of the requested locks has a lease.
    session_lives: bool,
    /// Whether the frame may wait in the queue of its lock.
    waits: bool,
    locks: LockRules,
}

/// Current rules for grants of locks.
#[derive(Clone, Copy)]
struct LockRules {
    /// Whether keys are locks, each with its own row in the element.
    rows: bool,
    /// Maximum number of locks in the element; 0 unless all callers use the element.
    rows_max: usize,
    /// Whether grants are suspended, because a caller may hold a lock that the server does not know.
    suspended: bool,
    /// Era of the server's grants.
    era: Era,
}

impl KeyedStore {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            table: KeyTable::new(register_capacity(config), config.key_memory),
            refused: BTreeMap::new(),
            version: 0,
            harvest: None,
            harvest_complete: false,
            harvest_queries: Vec::new(),
            waiting_queries: Vec::new(),
            harvest_count: 0,
            committed: 0,
            record: AppliedRecord::new(),
            commit_requested: 0,
            departed: (false, false),
            reclaim: LockReclaim::default(),
            evictions: Evictions::new(config.eviction.filter(|_| config.mapping)),
            reads: Reads::default(),
            leases: Leases::new(config.lease),
            lock_queues: LockQueues::default(),
            recheck_locks: false,
            timing: config.timing,
            loss_reason: None,
            changed: ChangedKeys::default(),
        }
    }

    /// Numbers of keys, keys with registers, and evictions.
    pub(super) fn key_counts(&self) -> [u64; 3] {
        [self.table.len() as u64, self.table.mapped() as u64, self.evictions.done()]
    }

    /// Handles a frame of pairs with logical addresses.
    fn on_logical(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut OwnerContext,
        out: &mut impl FrameSink,
    ) -> Option<()> {
        let map = frame.map();
        if !map.has(MapFlags::LOGICAL | MapFlags::ADD) {
            return None;
        }
        let (frame_id, seen) = classify(frame, shared)?;
        let by_element = shared.members.get(&frame_id.endpoint).is_some_and(|state| state.member.element);
        let marked = (0..frame.lane_count()).filter(|lane| frame.marked(*lane));
        let refused = if seen == SeqClass::New {
            let mut refused = Vec::new();
            for lane in marked {
                let (address, value) = frame.keyed(lane)?;
                let value = frame.op().apply(value, map.para());
                // Refuse a key that has a register by now: its caller sends the whole key and learns the register.
                let key = self.table.by_logical(address).filter(|key| !(by_element && key.is_mapped()));
                let added = key.is_some_and(|key| {
                    self.evictions.note_use(key, i64::from(value));
                    self.changed.note(key.id);
                    key.add(i64::from(value))
                });
                shared.stats.software_adds += u64::from(added);
                if !added {
                    refused.push(lane as u32);
                }
            }
            self.record_refused(frame_id, refused)
        } else {
            self.refused_of(frame_id)
        };
        let mut base = shared.answer(FrameKind::MapAck, frame);
        base.round = 0;
        let refused = if mutant::on(Mutant::AckBeforeAdd) { &[] } else { refused };
        let repr = MapRepr {
            flags: MapFlags::BARE | if refused.is_empty() { 0 } else { MapFlags::OVERFLOW },
            lanes: map.lanes(),
            ..MapRepr::default()
        };
        let len = frame_len(repr.flags, frame.lane_count(), 0);
        let mut answer = emit(&base, &repr, shared.scratch.get_mut(..len)?);
        for &lane in refused {
            let word = lane as usize / 32;
            let bits = answer.bitmap(word) | 1 << (lane % 32);
            answer.set_bitmap(word, bits);
        }
        shared.send(Dest::Endpoint(frame_id.endpoint), len, out);
        Some(())
    }

    /// Executes a frame of whole keys.
    fn on_pairs(&mut self, frame: &MapFrame<&[u8]>, shared: &mut OwnerContext, out: &mut impl FrameSink) -> Option<()> {
        let map = frame.map();
        let count = count_entries(frame)?;
        let waits = map.has(MapFlags::WAIT | MapFlags::COUNT) && map.threshold() == 1 && count == 1;
        let (frame_id, seen) = classify_any(frame, shared)?;
        // A waiting frame is repeated long after its position in the repeat filter is reused.
        if seen == SeqClass::Stale && !waits {
            return None;
        }
        let request = PairsRequest {
            flags: map.flags(),
            op: frame.op(),
            para: map.para(),
            threshold: map.threshold(),
            to: frame.target(),
            frame_id,
            new: seen == SeqClass::New && !(waits && map.has(MapFlags::CLEAR)),
            session_lives: self.leases.is_live(frame_id.endpoint, map.tag()),
            waits: waits && !map.has(MapFlags::CLEAR),
            locks: self.lock_rules(shared),
        };
        let mut answers = [0; MAX_ENTRIES * ANSWER_LEN];
        let mut rest = &mut answers[..];
        let mut refused = Vec::new();
        let before = if request.new { Vec::new() } else { self.refused_of(frame_id).to_vec() };
        let mut denied = false;
        let mut reached = Vec::new();
        for (index, (key, value)) in pairs::entries(frame.payload()).enumerate() {
            let mut answer = self.execute(key, value, &request, denied, &mut reached);
            if before.contains(&(index as u32)) {
                answer.status = PairStatus::Overflow;
            } else if request.new && answer.status == PairStatus::Overflow {
                refused.push(index as u32);
            }
            let takes = request.flags & MapFlags::COUNT != 0 && request.threshold == 1;
            denied |= answer.status == PairStatus::Denied || takes && answer.status == PairStatus::Mapped;
            rest = pairs::put_answer(rest, &answer)?;
        }
        if request.new {
            shared.stats.software_adds += (count - refused.len()) as u64;
            self.record_refused(frame_id, refused);
        }
        if denied && mutant::on(Mutant::DropDenied) {
            return None;
        }
        let base = BaseRepr { round: self.version, ..shared.answer(FrameKind::MapPairsAck, frame) };
        let payload = count * ANSWER_LEN;
        let repr = MapRepr { flags: MapFlags::BARE, payload_len: payload as u16, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, payload);
        emit(&base, &repr, shared.scratch.get_mut(..len)?).payload_mut().copy_from_slice(&answers[..payload]);
        shared.send(Dest::Endpoint(frame_id.endpoint), len, out);
        for waiter in reached {
            notify_waiter(waiter, shared, out);
        }
        Some(())
    }

    /// Executes one pair. `denied`: an earlier lock of the frame was not granted, so this lock is not tried.
    fn execute(
        &mut self,
        key: &[u8],
        value: i64,
        request: &PairsRequest,
        denied: bool,
        reached: &mut Vec<FrameId>,
    ) -> PairAnswer {
        let nothing = PairAnswer { status: PairStatus::Full, lane: 0, row: 0, value: 0 };
        let takes = request.flags & MapFlags::COUNT != 0 && request.threshold == 1;
        if self.table.find_or_insert(key).is_none() {
            return nothing;
        }
        let claims = takes && request.flags & MapFlags::CLAIM != 0;
        let may_wait = request.session_lives && !denied;
        let may_take = may_wait && !request.locks.suspended;
        if takes && request.new && may_take && !claims {
            self.table.map_lock(key, request.locks.rows_max);
        }
        let id = self.table.id(key);
        let Some(key) = self.table.find_or_insert(key) else { return nothing };
        let mut status = key.position_status();
        let (lane, row) = if request.locks.rows { (0, key.lock_row().unwrap_or(0)) } else { key.position() };
        let mut value_after = key.base;
        if claims {
            let claimed = request.session_lives && key.lock().claim(request.frame_id, value as u64, request.new);
            status = if claimed { PairStatus::Whole } else { PairStatus::Denied };
        } else if takes {
            let mapped = key.lock_row().is_some();
            let ask = LockRequest {
                frame: request.frame_id,
                new: request.new,
                waits: request.waits,
                denied_for: u32::try_from(value).unwrap_or(0),
                may_take,
                may_wait,
                mapped,
                era: request.locks.era,
            };
            status = match key.lock().acquire(&ask) {
                LockAnswer::Granted(token) => {
                    value_after = token as i64;
                    PairStatus::Whole
                }
                LockAnswer::Waits => {
                    self.lock_queues.used = true;
                    PairStatus::Queued
                }
                LockAnswer::Denied => PairStatus::Denied,
                LockAnswer::InElement => PairStatus::Mapped,
            };
        } else if request.flags & MapFlags::COUNT != 0 {
            value_after = count(key, request, reached);
            if value_after < i64::from(request.threshold) && request.to != ForwardTarget::Server {
                status = PairStatus::Held;
            }
        } else if request.flags & MapFlags::CLEAR != 0 {
            if request.new {
                self.changed.note(key.id);
                key.clear(request.frame_id.endpoint, value as u64);
                id.filter(|_| key.lock.is_some()).into_iter().for_each(|id| self.lock_queues.mark_changed(id));
            }
        } else if request.flags & MapFlags::ADD != 0 && request.new {
            let modified = Modify { op: request.op, para: request.para }.apply(value);
            self.evictions.note_use(key, value);
            self.changed.note(key.id);
            if !modified.is_some_and(|value| key.add(value)) {
                status = PairStatus::Overflow;
            }
            value_after = key.base;
        }
        // A caller that only adds or clears may have no permission to read.
        let shows_value = request.flags & (MapFlags::GET | MapFlags::COUNT) != 0
            || request.flags & (MapFlags::ADD | MapFlags::CLEAR) == 0;
        PairAnswer { status, lane, row, value: if shows_value { value_after } else { 0 } }
    }

    /// Current rules for locks. Locks may move to the element if all callers use it. Grants are suspended until all
    /// callers have claimed their locks of an ended epoch, or have lost them.
    fn lock_rules(&self, shared: &OwnerContext) -> LockRules {
        let OwnerContext { config, members, era, .. } = shared;
        let by_element = config.locks && members.values().all(|state| state.member.element);
        let rows = config.grant.filter(|_| by_element).map_or(0, |grant| grant.rows as usize);
        let known = |(endpoint, state): (&u32, &MemberState)| state.settled || !self.leases.may_hold(*endpoint);
        LockRules {
            rows: config.locks,
            rows_max: rows,
            suspended: config.locks && !members.iter().all(known),
            era: *era,
        }
    }

    fn record_refused(&mut self, frame_id: FrameId, refused: Vec<u32>) -> &[u32] {
        let place = frame_id.position();
        if refused.is_empty() {
            self.refused.remove(&place);
            return &[];
        }
        let entry = self.refused.entry(place).or_default();
        *entry = (frame_id.seq, refused);
        &entry.1
    }

    fn refused_of(&self, frame_id: FrameId) -> &[u32] {
        self.refused
            .get(&frame_id.position())
            .filter(|(seq, _)| *seq == frame_id.seq && !mutant::on(Mutant::RefusalSaidOnce))
            .map_or(&[], |(_, refused)| refused)
    }
}

/// Number of entries of a frame of whole keys; `None` if it is malformed.
fn count_entries(frame: &MapFrame<&[u8]>) -> Option<usize> {
    let mut entries = pairs::entries(frame.payload());
    let count = entries.by_ref().count();
    let is_valid = entries.is_exhausted() && (1..=MAX_ENTRIES).contains(&count);
    let mut keys = pairs::entries(frame.payload()).map(|(key, _)| key);
    (is_valid && keys.all(|key| Key::from_bytes(key).is_some())).then_some(count)
}

/// Number of registers available to keys.
fn register_capacity(config: &ServerConfig) -> usize {
    let rows = config.grant.filter(|_| config.mapping && config.threshold == 0).map_or(0, |grant| grant.rows);
    rows as usize * KEYED_LANES
}

/// Counts a key once per frame; adds the waiting frames to `reached` when the threshold is reached.
fn count(key: &mut KeyState, request: &PairsRequest, reached: &mut Vec<FrameId>) -> i64 {
    if !request.new {
        // For target `Server`, only the frame that reached the threshold is forwarded, also on repeats.
        return match request.to {
            ForwardTarget::Server if key.reached_by == Some(request.frame_id) => i64::from(request.threshold),
            ForwardTarget::Server => 0,
            _ => key.counter,
        };
    }
    key.counter += 1;
    if key.counter == i64::from(request.threshold) {
        key.reached_by = Some(request.frame_id);
        reached.append(&mut key.waiters);
    } else if key.counter < i64::from(request.threshold) && request.to != ForwardTarget::Server {
        key.add_waiter(request.frame_id);
    }
    key.counter
}

/// Notifies a waiting caller that its counter has reached the threshold.
fn notify_waiter(frame_id: FrameId, shared: &mut OwnerContext, out: &mut impl FrameSink) {
    let Some(incarnation) = shared.members.get(&frame_id.endpoint).map(|m| m.member.incarnation) else { return };
    let mut base = shared.base(FrameKind::MapSoft, Flags::CROSS);
    (base.dst, base.dst_incarnation, base.slot, base.seq) =
        (frame_id.endpoint, incarnation, frame_id.flow, frame_id.seq);
    let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Endpoint(frame_id.endpoint), len, out);
}
