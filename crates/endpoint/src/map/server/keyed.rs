//! Keys, their values, counters and locks; and where the element holds them.
//!
//! A key's value is its base, kept here in 64 bits, plus its register, if the element holds one.
//! Software additions go to the base, the element's to the register; a [`harvest`] makes registers
//! the server's, generation by generation, and every query waits for one.

mod evict;
mod free;
mod harvest;
mod leases;
mod line;
mod lock;
mod queries;
pub(super) mod sweep;
mod table;
mod whole;

use std::collections::BTreeMap;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, ANSWER_LEN, Answer, MAX_ENTRIES, Status};
use pathcall_wire::{
    BaseRepr, Flags, KEYED_LANES, Kind, MapFlags, MapFrame, MapRepr, Mutant, OpType, Target, W_MAX, mutant,
};

use super::super::lease::Era;
use super::super::{Dest, Key, Modify, Outbox};
use super::{MemberState, QueryId, ServerConfig, Shared};
use crate::flow::{Seen, Timing};
pub use evict::Eviction;
use evict::Evictions;
use free::Freeing;
use harvest::{Harvest, Record};
use leases::Leases;
use line::Lines;
use lock::{Acquiring, Word};
pub use table::KEY_MEMORY;
use table::{FrameName, KeyState, KeyTable};

type Waiter = (QueryId, Option<Vec<Key>>);

pub(super) struct KeyedTruth {
    table: KeyTable,
    /// Pairs of a frame that were not applied: a repeat is answered with them. By place, so bounded.
    refused: BTreeMap<(u32, u32, u32), (u32, Vec<u32>)>,
    /// Version of where keys are in the element.
    version: u32,
    /// The harvest under way, the queries that it answers, and those that wait for the next.
    harvest: Option<Harvest>,
    /// It waited only for the record of a caller that has left.
    complete: bool,
    reading: Vec<Waiter>,
    waiting: Vec<Waiter>,
    harvests: u32,
    /// Generations of this epoch up to this are here, with the record of whose frames they hold.
    committed: u32,
    record: Record,
    /// Callers want generations up to this committed.
    wanted: u32,
    /// A caller has left: before the last closing, or since. What it had added, nobody can repeat.
    left: (bool, bool),
    freeing: Freeing,
    evictions: Evictions,
    leases: Leases,
    lines: Lines,
    /// Locks that nobody could be granted may be granted now.
    reopen: bool,
    timing: Timing,
    lost: Option<&'static str>,
}

/// What a frame of whole pairs asks for.
struct Request {
    flags: u16,
    op: OpType,
    para: i32,
    threshold: u32,
    to: Target,
    name: FrameName,
    new: bool,
    /// The session of the locks that it takes, which may hold some.
    session_lives: bool,
    /// It is for one lock, and may wait in line for it.
    waits: bool,
    locks: LockRules,
}

/// What may be done with locks now.
#[derive(Clone, Copy)]
struct LockRules {
    /// Whether keys are locks: each has a row of its own in the element.
    rows: bool,
    /// How many the element may hold: none, unless every caller works by it.
    room: usize,
    /// Somebody may hold one that is not known here: nobody is granted any.
    closed: bool,
    /// Of the grants of the server.
    era: Era,
}

impl KeyedTruth {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            table: KeyTable::new(room(config), config.key_memory),
            refused: BTreeMap::new(),
            version: 0,
            harvest: None,
            complete: false,
            reading: Vec::new(),
            waiting: Vec::new(),
            harvests: 0,
            committed: 0,
            record: Record::new(),
            wanted: 0,
            left: (false, false),
            freeing: Freeing::default(),
            evictions: Evictions::new(config.eviction.filter(|_| config.mapping)),
            leases: Leases::new(config.lease),
            lines: Lines::default(),
            reopen: false,
            timing: config.timing,
            lost: None,
        }
    }

    /// Keys known, in the element, and evicted so far.
    pub(super) fn sizes(&self) -> [u64; 3] {
        [self.table.len() as u64, self.table.mapped() as u64, self.evictions.done()]
    }

    /// Adds pairs that travel by logical address.
    pub(super) fn logical(
        &mut self,
        frame: &MapFrame<&[u8]>,
        shared: &mut Shared,
        out: &mut impl Outbox,
    ) -> Option<()> {
        let map = frame.map();
        if !map.has(MapFlags::LOGICAL | MapFlags::ADD) {
            return None;
        }
        let (name, seen) = meet(frame, shared)?;
        let by_element = shared.members.get(&name.endpoint).is_some_and(|state| state.member.element);
        let marked = (0..frame.lane_count()).filter(|lane| frame.marked(*lane));
        let refused = if seen == Seen::New {
            let mut refused = Vec::new();
            for lane in marked {
                let (address, value) = frame.keyed(lane)?;
                let value = frame.op().apply(value, map.para());
                // One that has been given a register meanwhile is asked for whole, to be told of it.
                let key = self.table.by_logical(address).filter(|key| !(by_element && key.is_mapped()));
                let added = key.is_some_and(|key| {
                    self.evictions.used(key, i64::from(value));
                    key.add(i64::from(value))
                });
                shared.stats.software_adds += u64::from(added);
                if !added {
                    refused.push(lane as u32);
                }
            }
            self.remember(name, refused)
        } else {
            self.refused_of(name)
        };
        let mut base = shared.answer(Kind::MapAck, frame);
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
        shared.send(Dest::Endpoint(name.endpoint), len, out);
        Some(())
    }

    /// Executes a frame of whole keys.
    pub(super) fn pairs(&mut self, frame: &MapFrame<&[u8]>, shared: &mut Shared, out: &mut impl Outbox) -> Option<()> {
        let map = frame.map();
        let mut entries = pairs::entries(frame.payload());
        let count = entries.by_ref().count();
        let sane = entries.is_exhausted() && (1..=MAX_ENTRIES).contains(&count);
        if !sane || pairs::entries(frame.payload()).any(|(key, _)| Key::from_bytes(key).is_none()) {
            return None;
        }
        let waits = map.has(MapFlags::WAIT | MapFlags::COUNT) && map.threshold() == 1 && count == 1;
        let (name, seen) = meet_any(frame, shared)?;
        // Whoever stands in line asks again long after its frame's place in the filter went to others.
        if seen == Seen::Stale && !waits {
            return None;
        }
        let request = Request {
            flags: map.flags(),
            op: frame.op(),
            para: map.para(),
            threshold: map.threshold(),
            to: frame.target(),
            name,
            new: seen == Seen::New && !(waits && map.has(MapFlags::CLEAR)),
            session_lives: self.leases.is_live(name.endpoint, map.tag()),
            waits: waits && !map.has(MapFlags::CLEAR),
            locks: self.lock_rules(shared),
        };
        let mut answers = [0; MAX_ENTRIES * ANSWER_LEN];
        let mut rest = &mut answers[..];
        let mut refused = Vec::new();
        let before = if request.new { Vec::new() } else { self.refused_of(name).to_vec() };
        let mut denied = false;
        let mut reached = Vec::new();
        for (index, (key, value)) in pairs::entries(frame.payload()).enumerate() {
            let mut answer = self.execute(key, value, &request, denied, &mut reached);
            if before.contains(&(index as u32)) {
                answer.status = Status::Overflow;
            } else if request.new && answer.status == Status::Overflow {
                refused.push(index as u32);
            }
            let takes = request.flags & MapFlags::COUNT != 0 && request.threshold == 1;
            denied |= answer.status == Status::Denied || takes && answer.status == Status::Mapped;
            rest = pairs::put_answer(rest, &answer)?;
        }
        if request.new {
            shared.stats.software_adds += (count - refused.len()) as u64;
            self.remember(name, refused);
        }
        if denied && mutant::on(Mutant::DropDenied) {
            return None;
        }
        let base = BaseRepr { round: self.version, ..shared.answer(Kind::MapPairsAck, frame) };
        let payload = count * ANSWER_LEN;
        let repr = MapRepr { flags: MapFlags::BARE, payload_len: payload as u16, ..MapRepr::default() };
        let len = frame_len(repr.flags, 0, payload);
        emit(&base, &repr, shared.scratch.get_mut(..len)?).payload_mut().copy_from_slice(&answers[..payload]);
        shared.send(Dest::Endpoint(name.endpoint), len, out);
        for waiter in reached {
            ask_again(waiter, shared, out);
        }
        Some(())
    }

    /// One pair. `denied`: a lock before it in the frame was not granted, so this one is not tried.
    fn execute(
        &mut self,
        key: &[u8],
        value: i64,
        request: &Request,
        denied: bool,
        reached: &mut Vec<FrameName>,
    ) -> Answer {
        let nothing = Answer { status: Status::Full, lane: 0, row: 0, value: 0 };
        let takes = request.flags & MapFlags::COUNT != 0 && request.threshold == 1;
        if self.table.find_or_insert(key).is_none() {
            return nothing;
        }
        let claims = takes && request.flags & MapFlags::CLAIM != 0;
        let may_wait = request.session_lives && !denied;
        let may_take = may_wait && !request.locks.closed;
        if takes && request.new && may_take && !claims {
            self.table.map_lock(key, request.locks.room);
        }
        let id = self.table.id(key);
        let Some(key) = self.table.find_or_insert(key) else { return nothing };
        let mut status = key.place_status();
        let (lane, row) = if request.locks.rows { (0, key.lock_row().unwrap_or(0)) } else { key.place() };
        let mut value_after = key.base;
        if claims {
            let claimed = request.session_lives && key.lock().claim(request.name, value as u64, request.new);
            status = if claimed { Status::Whole } else { Status::Denied };
        } else if takes {
            let mapped = key.lock_row().is_some();
            let ask = Acquiring {
                frame: request.name,
                new: request.new,
                waits: request.waits,
                denied_for: u32::try_from(value).unwrap_or(0),
                may_take,
                may_wait,
                mapped,
                era: request.locks.era,
            };
            status = match key.lock().acquire(&ask) {
                Word::Granted(token) => {
                    value_after = token as i64;
                    Status::Whole
                }
                Word::Waits => {
                    self.lines.used = true;
                    Status::InLine
                }
                Word::Denied => Status::Denied,
                Word::Away => Status::Mapped,
            };
        } else if request.flags & MapFlags::COUNT != 0 {
            value_after = count(key, request, reached);
            if value_after < i64::from(request.threshold) && request.to != Target::Server {
                status = Status::Held;
            }
        } else if request.flags & MapFlags::CLEAR != 0 {
            if request.new {
                key.clear(request.name.endpoint, value as u64);
                id.filter(|_| key.lock.is_some()).into_iter().for_each(|id| self.lines.look_at(id));
            }
        } else if request.flags & MapFlags::ADD != 0 && request.new {
            let modified = whole::modified(value, Modify { op: request.op, para: request.para });
            self.evictions.used(key, value);
            if !modified.is_some_and(|value| key.add(value)) {
                status = Status::Overflow;
            }
            value_after = key.base;
        }
        // Who only adds or clears may not be let in to read.
        let told = request.flags & (MapFlags::GET | MapFlags::COUNT) != 0
            || request.flags & (MapFlags::ADD | MapFlags::CLEAR) == 0;
        Answer { status, lane, row, value: if told { value_after } else { 0 } }
    }

    /// Locks go into the element as long as every caller works by it. Until all have told what they held
    /// under an ended epoch, or have lost it, nobody is granted one.
    fn lock_rules(&self, shared: &Shared) -> LockRules {
        let Shared { config, members, era, .. } = shared;
        let by_element = config.locks && members.values().all(|state| state.member.element);
        let rows = config.grant.filter(|_| by_element).map_or(0, |grant| grant.rows as usize);
        let known = |(endpoint, state): (&u32, &MemberState)| state.settled || !self.leases.may_hold(*endpoint);
        LockRules { rows: config.locks, room: rows, closed: config.locks && !members.iter().all(known), era: *era }
    }

    fn remember(&mut self, name: FrameName, refused: Vec<u32>) -> &[u32] {
        let place = name.place();
        if refused.is_empty() {
            self.refused.remove(&place);
            return &[];
        }
        let entry = self.refused.entry(place).or_default();
        *entry = (name.seq, refused);
        &entry.1
    }

    fn refused_of(&self, name: FrameName) -> &[u32] {
        self.refused
            .get(&name.place())
            .filter(|(seq, _)| *seq == name.seq && !mutant::on(Mutant::RefusalSaidOnce))
            .map_or(&[], |(_, refused)| refused)
    }
}

/// Registers that keys may be given.
fn room(config: &ServerConfig) -> usize {
    let rows = config.grant.filter(|_| config.mapping && config.threshold == 0).map_or(0, |grant| grant.rows);
    rows as usize * KEYED_LANES
}

/// Counts a key once for each frame, and says which frames the threshold sets free.
fn count(key: &mut KeyState, request: &Request, reached: &mut Vec<FrameName>) -> i64 {
    if !request.new {
        // To the server, only the frame that reached the threshold is forwarded, on repeats too.
        return match request.to {
            Target::Server if key.reached_by == Some(request.name) => i64::from(request.threshold),
            Target::Server => 0,
            _ => key.counter,
        };
    }
    key.counter += 1;
    if key.counter == i64::from(request.threshold) {
        key.reached_by = Some(request.name);
        reached.append(&mut key.waiters);
    } else if key.counter < i64::from(request.threshold) && request.to != Target::Server {
        key.wait(request.name);
    }
    key.counter
}

/// The frame's name and whether it is new; `None` when it is stale.
fn meet(frame: &MapFrame<&[u8]>, shared: &mut Shared) -> Option<(FrameName, Seen)> {
    meet_any(frame, shared).filter(|(_, seen)| *seen != Seen::Stale)
}

/// The same, stale ones too.
fn meet_any(frame: &MapFrame<&[u8]>, shared: &mut Shared) -> Option<(FrameName, Seen)> {
    let base = frame.base();
    // Frames past the element name their flow; only those are executed here.
    let name = FrameName { endpoint: base.src(), flow: base.slot(), seq: base.seq() };
    if !base.has(Flags::CROSS) {
        return None;
    }
    let seen = shared.members.get_mut(&name.endpoint)?.seen.meet(name.flow, name.seq);
    Some((name, seen))
}

/// Tells a caller that what it waits for has come.
fn ask_again(name: FrameName, shared: &mut Shared, out: &mut impl Outbox) {
    let Some(incarnation) = shared.members.get(&name.endpoint).map(|m| m.member.incarnation) else { return };
    let mut base = shared.base(Kind::MapSoft, Flags::CROSS);
    (base.dst, base.dst_incarnation, base.slot, base.seq) = (name.endpoint, incarnation, name.flow, name.seq);
    let map = MapRepr { flags: MapFlags::BARE, ..MapRepr::default() };
    let len = frame_len(map.flags, 0, 0);
    emit(&base, &map, &mut shared.scratch[..len]);
    shared.send(Dest::Endpoint(name.endpoint), len, out);
}

impl FrameName {
    /// Its place in the repeat filter.
    fn place(self) -> (u32, u32, u32) {
        (self.endpoint, self.flow, self.seq % W_MAX)
    }
}
