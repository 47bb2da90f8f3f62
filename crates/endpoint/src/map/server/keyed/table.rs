//! Key table of the owner, with a memory limit.

use pathcall_wire::pairs::PairStatus;
use pathcall_wire::{KEYED_LANES, W_MAX};

use super::super::super::{Key, logical_address};
use super::evict::{Evictions, KeyUsage};
use super::lock::LockState;
use crate::tables::SeededHashMap;

/// Maximum number of keys of one application: key numbers have 32 bits.
const MAX_KEYS: usize = 1 << 31;
/// Default limit of memory for the keys of an application in bytes; further keys are refused.
pub const KEY_MEMORY: usize = 2 << 30;
/// Maximum memory of a key besides twice its own bytes. A growing vector has the old and the doubled allocation; a
/// growing hash map too, with one eighth empty and one more byte per entry.
const KEY_OVERHEAD: usize =
    3 * size_of::<(Key, KeyState)>() + 4 * (size_of::<(Key, u32)>() + size_of::<(u32, u32)>() + 2) + 2 * ALLOCATION;
/// Overhead of an allocation in bytes.
const ALLOCATION: usize = 16;
/// Maximum number of callers notified when a counter reaches its threshold; further callers poll.
const MAX_WAITERS: usize = 1024;

/// Unique id of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameId {
    pub(super) endpoint: u32,
    pub(super) flow: u32,
    pub(super) seq: u32,
}

impl FrameId {
    /// Position of the frame in the repeat filter.
    pub(super) fn position(self) -> (u32, u32, u32) {
        (self.endpoint, self.flow, self.seq % W_MAX)
    }
}

/// State of a key.
pub(super) struct KeyState {
    /// Number of the key in the table.
    pub(super) id: u32,
    pub(super) usage: KeyUsage,
    /// Value without the uncommitted additions in the element.
    pub(super) base: i64,
    /// Whether the addition of a committed register exceeded 64 bits.
    overflowed: bool,
    /// Number of the key's register: lane `n % 32`, row `n / 32`, so that frames are dense.
    mapped: Option<u32>,
    /// Whether the logical address belongs to this key.
    logical: bool,
    /// Counter of `CntFwd`.
    pub(super) counter: i64,
    pub(super) reached_by: Option<FrameId>,
    pub(super) waiters: Vec<FrameId>,
    /// Lock state, after the first test-and-set.
    pub(super) lock: Option<Box<LockState>>,
}

impl KeyState {
    /// Adds to the base. Returns false without a change if the sum would exceed 64 bits.
    pub(super) fn add(&mut self, value: i64) -> bool {
        self.base.checked_add(value).map(|sum| self.base = sum).is_some()
    }

    /// Sets the value to that of a store.
    pub(super) fn load(&mut self, base: i64, overflowed: bool) {
        (self.base, self.overflowed) = (base, overflowed);
    }

    /// Lock of this key.
    pub(super) fn lock(&mut self) -> &mut LockState {
        self.lock.get_or_insert_default()
    }

    /// Row of the lock in the element, if any.
    pub(super) fn lock_row(&self) -> Option<u32> {
        self.mapped
    }

    /// Resets value and counter, and releases the lock if `token` is its grant.
    pub(super) fn clear(&mut self, endpoint: u32, token: u64) {
        if let Some(lock) = &mut self.lock {
            lock.release(endpoint, token);
        }
        (self.base, self.overflowed, self.counter, self.reached_by) = (0, false, 0, None);
    }

    /// Adds a frame that waits for the threshold.
    pub(super) fn add_waiter(&mut self, frame: FrameId) {
        if self.waiters.len() < MAX_WAITERS {
            self.waiters.push(frame);
        }
    }

    /// Whether the key has no register and may get one. Keys without a logical address are always sent whole (NetRPC
    /// §5.2.2, collisions).
    pub(super) fn may_be_mapped(&self) -> bool {
        self.mapped.is_none() && self.logical
    }

    /// Whether the key has a register.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    pub(super) fn position_status(&self) -> PairStatus {
        match (self.mapped, self.logical) {
            (Some(_), _) => PairStatus::Mapped,
            (None, true) => PairStatus::Logical,
            (None, false) => PairStatus::Whole,
        }
    }

    /// Lane and row of the register.
    pub(super) fn position(&self) -> (u8, u32) {
        let n = self.mapped.unwrap_or(0);
        ((n % KEYED_LANES as u32) as u8, n / KEYED_LANES as u32)
    }

    /// Value of the key; `None` if it exceeded 64 bits.
    pub(super) fn value(&self) -> Option<i64> {
        (!self.overflowed).then_some(self.base)
    }
}

/// Table of all keys.
pub(super) struct KeyTable {
    ids: SeededHashMap<Key, u32>,
    keys: Vec<(Key, KeyState)>,
    logical: SeededHashMap<u32, u32>,
    /// Key of each register.
    owners: Vec<u32>,
    /// Number of registers for keys, first come, first served.
    registers_max: usize,
    /// Remaining memory for keys in bytes.
    memory_left: usize,
}

impl KeyTable {
    pub(super) fn new(registers_max: usize, memory: usize) -> Self {
        Self {
            ids: SeededHashMap::default(),
            keys: Vec::new(),
            logical: SeededHashMap::default(),
            owners: Vec::new(),
            registers_max,
            memory_left: memory,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn mapped(&self) -> usize {
        self.owners.len()
    }

    /// Keys by register.
    pub(super) fn owners(&self) -> &[u32] {
        &self.owners
    }

    /// State of the key with this number.
    pub(super) fn state(&self, id: u32) -> &KeyState {
        &self.keys[id as usize].1
    }

    /// Key with this number, and its state.
    pub(super) fn entry(&self, id: u32) -> (&Key, &KeyState) {
        let (key, state) = &self.keys[id as usize];
        (key, state)
    }

    /// State of the key with this number, to change it.
    pub(super) fn state_mut(&mut self, id: u32) -> &mut KeyState {
        &mut self.keys[id as usize].1
    }

    /// Gives the register of a key to another key.
    pub(super) fn reassign(&mut self, register: u32, id: u32) -> &mut KeyState {
        let before = std::mem::replace(&mut self.owners[register as usize], id);
        self.keys[before as usize].1.mapped = None;
        let state = &mut self.keys[id as usize].1;
        state.mapped = Some(register);
        state
    }

    /// Removes all registers from keys; `registers_max` registers are available from now on.
    pub(super) fn reset_mapping(&mut self, registers_max: usize) {
        for (_, state) in &mut self.keys {
            state.mapped = None;
            state.lock.iter_mut().for_each(|lock| lock.reset_from_element());
        }
        self.owners.clear();
        self.registers_max = registers_max;
    }

    /// Adds the registers of a generation to the bases of their keys.
    pub(super) fn commit(&mut self, registers: &[i32], evictions: &Evictions) {
        for (owner, register) in self.owners.iter().zip(registers).filter(|(_, register)| **register != 0) {
            let state = &mut self.keys[*owner as usize].1;
            evictions.note_register_use(state, *register);
            if !state.add(i64::from(*register)) {
                state.overflowed = true;
            }
        }
    }

    /// All keys, in the order of their first use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &KeyState)> {
        self.keys.iter().map(|(key, state)| (key, state))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&KeyState> {
        self.ids.get(key).map(|id| &self.keys[*id as usize].1)
    }

    pub(super) fn by_logical(&mut self, address: u32) -> Option<&mut KeyState> {
        self.logical.get(&address).map(|id| &mut self.keys[*id as usize].1)
    }

    /// State of a key, created if new; `None` if the memory limit is reached or the bytes are no valid key.
    pub(super) fn find_or_insert(&mut self, bytes: &[u8]) -> Option<&mut KeyState> {
        if let Some(id) = self.ids.get(bytes).copied() {
            let state = &mut self.keys[id as usize].1;
            if state.may_be_mapped() && self.owners.len() < self.registers_max {
                state.mapped = Some(self.owners.len() as u32);
                self.owners.push(id);
            }
            return Some(state);
        }
        let memory_left = self.memory_left.checked_sub(KEY_OVERHEAD + 2 * bytes.len());
        let memory_left = memory_left.filter(|_| self.keys.len() < MAX_KEYS)?;
        let key = Key::from_bytes(bytes)?;
        self.memory_left = memory_left;
        let id = self.keys.len() as u32;
        // The first key with an address owns it. Only owners may have a register; other keys are always sent whole
        // (NetRPC §5.2.2, collisions).
        let logical = *self.logical.entry(logical_address(bytes)).or_insert(id) == id;
        let mapped = (logical && self.owners.len() < self.registers_max).then_some(self.owners.len() as u32);
        self.owners.extend(mapped.map(|_| id));
        self.ids.insert(key.clone(), id);
        let state = KeyState {
            id,
            usage: KeyUsage::default(),
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

    /// Moves a lock without holder and waiters to the element, if fewer than `rows_max` rows are used.
    pub(super) fn map_lock(&mut self, bytes: &[u8], rows_max: usize) {
        let Some(id) = self.ids.get(bytes).copied() else { return };
        let state = &mut self.keys[id as usize].1;
        let idle = state.lock.as_ref().is_none_or(|lock| lock.holder.is_none() && !lock.is_wanted());
        if state.mapped.is_none() && idle && self.owners.len() < rows_max {
            state.mapped = Some(self.owners.len() as u32);
            state.lock().move_to_element();
            self.owners.push(id);
        }
    }

    /// Number of a known key.
    pub(super) fn id(&self, bytes: &[u8]) -> Option<u32> {
        self.ids.get(bytes).copied()
    }

    /// Lock of the key with this number, and its row in the element.
    pub(super) fn lock_by_id(&mut self, id: u32) -> Option<(&mut LockState, Option<u32>)> {
        let state = &mut self.keys.get_mut(id as usize)?.1;
        let row = state.mapped;
        state.lock.as_deref_mut().map(|lock| (lock, row))
    }

    /// Number of the lock in this row.
    pub(super) fn lock_in_row(&self, row: u32) -> Option<u32> {
        self.owners.get(row as usize).copied()
    }

    /// Releases all locks of an endpoint and removes it from all queues. Returns the numbers of the changed locks.
    pub(super) fn release_all(&mut self, endpoint: u32) -> Vec<u32> {
        let mut changed = Vec::new();
        for (id, (_, state)) in (0..).zip(&mut self.keys) {
            if state.lock.as_mut().is_some_and(|lock| lock.remove_endpoint(endpoint)) {
                changed.push(id);
            }
            state.waiters.retain(|frame| frame.endpoint != endpoint);
        }
        changed
    }

    /// Numbers of all locks with waiters.
    pub(super) fn wanted_locks(&self) -> impl Iterator<Item = u32> {
        let wanted = |state: &KeyState| state.lock.as_ref().is_some_and(|lock| lock.is_wanted());
        (0..).zip(&self.keys).filter(move |(_, (_, state))| wanted(state)).map(|(id, _)| id)
    }
}
