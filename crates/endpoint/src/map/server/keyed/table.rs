//! The table of keys.

use pathcall_wire::KEYED_LANES;
use pathcall_wire::pairs::Status;

use super::super::super::{Key, logical_address};
use super::evict::{Evictions, Usage};
use super::lock::LockState;
use crate::tables::ByName;

/// Keys of one application, whatever memory there is: their numbers have 32 bits.
const MAX_KEYS: usize = 1 << 31;
/// Bytes that the keys of an application may take unless its owner says otherwise; further keys are
/// refused by name.
pub const KEY_MEMORY: usize = 2 << 30;
/// What a key takes at most besides its own bytes, twice. A vector that grows has the old and twice the
/// old; a hash map the same, an eighth of it empty and a byte more for each entry.
const KEY_OVERHEAD: usize =
    3 * size_of::<(Key, KeyState)>() + 4 * (size_of::<(Key, u32)>() + size_of::<(u32, u32)>() + 2) + 2 * ALLOCATION;
/// What an allocator adds to a key's bytes.
const ALLOCATION: usize = 16;
/// Callers that wait for one counter and are told when it reaches its threshold; further ones ask.
const MAX_WAITERS: usize = 1024;

/// Names a frame for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameName {
    pub(super) endpoint: u32,
    pub(super) flow: u32,
    pub(super) seq: u32,
}

pub(super) struct KeyState {
    /// Its number in the table.
    pub(super) id: u32,
    pub(super) usage: Usage,
    /// The value, but for what the element holds of generations that are not committed.
    pub(super) base: i64,
    /// A committed register did not fit into the base.
    overflowed: bool,
    /// Number among the mapped keys: lane `n % 32`, row `n / 32`, so that frames pack densely.
    mapped: Option<u32>,
    /// Whether the key owns its logical address.
    logical: bool,
    /// `CntFwd`.
    pub(super) counter: i64,
    pub(super) reached_by: Option<FrameName>,
    pub(super) waiters: Vec<FrameName>,
    /// Test-and-set, once it was asked for.
    pub(super) lock: Option<Box<LockState>>,
}

impl KeyState {
    /// Adds to the base; false, and nothing changed, when it would leave 64 bits.
    pub(super) fn add(&mut self, value: i64) -> bool {
        self.base.checked_add(value).map(|sum| self.base = sum).is_some()
    }

    /// The lock of this name.
    pub(super) fn lock(&mut self) -> &mut LockState {
        self.lock.get_or_insert_default()
    }

    /// Row of the lock in the element, if it is there.
    pub(super) fn lock_row(&self) -> Option<u32> {
        self.mapped
    }

    /// Sets the key back; a lock, if it is this grant of it that is given back.
    pub(super) fn clear(&mut self, endpoint: u32, token: u64) {
        if let Some(lock) = &mut self.lock {
            lock.release(endpoint, token);
        }
        (self.base, self.overflowed, self.counter, self.reached_by) = (0, false, 0, None);
    }

    /// Puts a frame in line for the threshold.
    pub(super) fn wait(&mut self, frame: FrameName) {
        if self.waiters.len() < MAX_WAITERS {
            self.waiters.push(frame);
        }
    }

    /// Whether it has no register and may be given one: the rest travel whole (NetRPC §5.2.2, collisions).
    pub(super) fn may_be_mapped(&self) -> bool {
        self.mapped.is_none() && self.logical
    }

    /// Whether the element holds it.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    pub(super) fn place_status(&self) -> Status {
        match (self.mapped, self.logical) {
            (Some(_), _) => Status::Mapped,
            (None, true) => Status::Logical,
            (None, false) => Status::Whole,
        }
    }

    /// Lane and row in the element.
    pub(super) fn place(&self) -> (u8, u32) {
        let n = self.mapped.unwrap_or(0);
        ((n % KEYED_LANES as u32) as u8, n / KEYED_LANES as u32)
    }

    /// The value; `None` when it has left 64 bits.
    pub(super) fn value(&self) -> Option<i64> {
        (!self.overflowed).then_some(self.base)
    }
}

pub(super) struct KeyTable {
    ids: ByName<Key, u32>,
    keys: Vec<(Key, KeyState)>,
    logical: ByName<u32, u32>,
    /// Which key has which register.
    owners: Vec<u32>,
    /// Registers that may be given to keys, first come, first served.
    room: usize,
    /// Bytes that further keys may take.
    left: usize,
}

impl KeyTable {
    pub(super) fn new(room: usize, memory: usize) -> Self {
        Self {
            ids: ByName::default(),
            keys: Vec::new(),
            logical: ByName::default(),
            owners: Vec::new(),
            room,
            left: memory,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn mapped(&self) -> usize {
        self.owners.len()
    }

    /// The keys that have a register, by register.
    pub(super) fn owners(&self) -> &[u32] {
        &self.owners
    }

    /// The state of the key with this number.
    pub(super) fn state(&self, id: u32) -> &KeyState {
        &self.keys[id as usize].1
    }

    /// Gives a register that a key has to another one.
    pub(super) fn give(&mut self, register: u32, id: u32) -> &mut KeyState {
        let before = std::mem::replace(&mut self.owners[register as usize], id);
        self.keys[before as usize].1.mapped = None;
        let state = &mut self.keys[id as usize].1;
        state.mapped = Some(register);
        state
    }

    /// Forgets where keys are in the element; `room` registers may be given to keys from now on.
    pub(super) fn map_anew(&mut self, room: usize) {
        for (_, state) in &mut self.keys {
            state.mapped = None;
            state.lock.iter_mut().for_each(|lock| lock.come_back());
        }
        self.owners.clear();
        self.room = room;
    }

    /// Adds the registers of a generation to the values of their keys.
    pub(super) fn commit(&mut self, registers: &[i32], evictions: &Evictions) {
        for (owner, register) in self.owners.iter().zip(registers).filter(|(_, register)| **register != 0) {
            let state = &mut self.keys[*owner as usize].1;
            evictions.held(state, *register);
            if !state.add(i64::from(*register)) {
                state.overflowed = true;
            }
        }
    }

    /// All keys, in the order they were met.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &KeyState)> {
        self.keys.iter().map(|(key, state)| (key, state))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KeyState> {
        self.ids.get(key).map(|id| &self.keys[*id as usize].1)
    }

    pub(super) fn by_logical(&mut self, address: u32) -> Option<&mut KeyState> {
        self.logical.get(&address).map(|id| &mut self.keys[*id as usize].1)
    }

    /// The key's state, made if it is new; `None` when there is no room, or it is no key.
    pub(super) fn find_or_insert(&mut self, bytes: &[u8]) -> Option<&mut KeyState> {
        if let Some(id) = self.ids.get(bytes).copied() {
            let state = &mut self.keys[id as usize].1;
            if state.may_be_mapped() && self.owners.len() < self.room {
                state.mapped = Some(self.owners.len() as u32);
                self.owners.push(id);
            }
            return Some(state);
        }
        let left = self.left.checked_sub(KEY_OVERHEAD + 2 * bytes.len());
        let left = left.filter(|_| self.keys.len() < MAX_KEYS)?;
        let key = Key::from_bytes(bytes)?;
        self.left = left;
        let id = self.keys.len() as u32;
        // The first key that hashes to an address owns it, and only an owner may be mapped: the
        // rest travel whole (NetRPC §5.2.2, collisions).
        let logical = *self.logical.entry(logical_address(bytes)).or_insert(id) == id;
        let mapped = (logical && self.owners.len() < self.room).then_some(self.owners.len() as u32);
        self.owners.extend(mapped.map(|_| id));
        self.ids.insert(key.clone(), id);
        let state = KeyState {
            id,
            usage: Usage::default(),
            base: 0,
            overflowed: false,
            mapped,
            logical,
            counter: 0,
            reached_by: None,
            waiters: Vec::new(),
            lock: None,
        };
        self.keys.push((key, state));
        self.keys.last_mut().map(|(_, state)| state)
    }

    /// Gives a lock that nobody holds or waits for a place in the element, if one of the `room` is left.
    pub(super) fn map_lock(&mut self, bytes: &[u8], room: usize) {
        let Some(id) = self.ids.get(bytes).copied() else { return };
        let state = &mut self.keys[id as usize].1;
        let idle = state.lock.as_ref().is_none_or(|lock| lock.holder.is_none() && !lock.is_wanted());
        if state.mapped.is_none() && idle && self.owners.len() < room {
            state.mapped = Some(self.owners.len() as u32);
            state.lock().move_away();
            self.owners.push(id);
        }
    }

    /// The number of a key that is known.
    pub(super) fn id(&self, bytes: &[u8]) -> Option<u32> {
        self.ids.get(bytes).copied()
    }

    /// The lock with this number, and its row in the element.
    pub(super) fn lock_by_id(&mut self, id: u32) -> Option<(&mut LockState, Option<u32>)> {
        let state = &mut self.keys.get_mut(id as usize)?.1;
        let row = state.mapped;
        state.lock.as_deref_mut().map(|lock| (lock, row))
    }

    /// The number of the lock in this row.
    pub(super) fn lock_in(&self, row: u32) -> Option<u32> {
        self.owners.get(row as usize).copied()
    }

    /// Frees what an endpoint holds and has it wait for nothing; the numbers of these locks.
    pub(super) fn release_all(&mut self, endpoint: u32) -> Vec<u32> {
        let mut changed = Vec::new();
        for (id, (_, state)) in (0..).zip(&mut self.keys) {
            if state.lock.as_mut().is_some_and(|lock| lock.forget(endpoint)) {
                changed.push(id);
            }
            state.waiters.retain(|frame| frame.endpoint != endpoint);
        }
        changed
    }

    /// The numbers of all locks that somebody waits for.
    pub(super) fn wanted_locks(&self) -> impl Iterator<Item = u32> {
        let wanted = |state: &KeyState| state.lock.as_ref().is_some_and(|lock| lock.is_wanted());
        (0..).zip(&self.keys).filter(move |(_, (_, state))| wanted(state)).map(|(id, _)| id)
    }
}
