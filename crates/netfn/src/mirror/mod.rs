//! Mirrored tables of a server: all entries, of which the element holds a part (CLIP §IV-C).
//!
//! ```text
//! handler: lookup, insert, remove, next ─┐
//! controller: entries by key, leases ────┼─► MirroredTable ─► index: hash table, or prefixes ─► slab of entries
//! clock: expire ─────────────────────────┘             wheel: deadlines of entries
//! ```
//!
//! Entries have the layout of the handler's C structs ([`layout`]). An entry that is also in the element is *leased*:
//! the server does not see the packets that use it, so it does not expire; the lease ends when the entry leaves the
//! element.

pub mod layout;
pub mod lpm;
pub mod wheel;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use pathcall_p4::ir::{Match, Program, TableEntry, TableId};

use layout::{LayoutError, MirrorKey, TableLayout};
use lpm::Lpm;
pub use lpm::TableFull;
use wheel::Wheel;

/// Mirrored table.
#[derive(Debug)]
pub struct MirroredTable {
    layout: TableLayout,
    size: u32,
    idle_ms: u64,
    index: Index,
    /// Entries, one after another; an entry's number is its index.
    entries: Vec<u8>,
    states: Vec<EntryState>,
    free: Vec<u32>,
    wheel: Wheel,
}

#[derive(Debug)]
enum Index {
    Exact(HashTable<u32>, DefaultHashBuilder),
    Longest(Lpm),
}

/// State of an entry.
#[derive(Debug, Clone, Copy)]
struct EntryState {
    used_ms: u64,
    /// Idle time after which the entry expires; 0: never.
    idle_ms: u64,
    live: bool,
    leased: bool,
}

/// Result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// A new key was inserted.
    New,
    /// The action or the arguments of the key changed.
    Changed,
    /// The same entry existed already.
    Same,
}

impl MirroredTable {
    /// Empty table as declared by `program`.
    pub fn new(program: &Program, id: TableId, now_ms: u64) -> Result<Self, LayoutError> {
        let table = &program.tables[id.0 as usize];
        let layout = TableLayout::new(program, id)?;
        let index = match layout.prefix_width() {
            Some(width) => Index::Longest(Lpm::new(width, table.size, layout.has_exact())),
            None => Index::Exact(HashTable::new(), DefaultHashBuilder::default()),
        };
        Ok(Self {
            layout,
            size: table.size.min(u32::MAX - 1),
            idle_ms: table.idle_timeout_ms.unwrap_or(0),
            index,
            entries: Vec::new(),
            states: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(now_ms),
        })
    }

    /// Memory layout of the entries.
    #[must_use]
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> u32 {
        (self.states.len() - self.free.len()) as u32
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entry that matches `key`; the lookup counts as a use.
    #[must_use]
    #[inline]
    pub fn lookup(&mut self, key: &MirrorKey, now_ms: u64) -> Option<&[u8]> {
        let id = match &self.index {
            Index::Exact(..) => self.find(key),
            Index::Longest(lpm) => lpm.lookup(key.exact(), key.prefix.value),
        }?;
        self.states[id as usize].used_ms = now_ms;
        Some(self.bytes(id))
    }

    /// Entry that matches `key`; the lookup does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &MirrorKey) -> Option<&[u8]> {
        match &self.index {
            Index::Exact(..) => self.get(key),
            Index::Longest(lpm) => lpm.lookup(key.exact(), key.prefix.value).map(|id| self.bytes(id)),
        }
    }

    /// Entry with exactly this key and prefix; the lookup does not count as a use.
    #[must_use]
    pub fn get(&self, key: &MirrorKey) -> Option<&[u8]> {
        self.find(key).map(|id| self.bytes(id))
    }

    /// Whether the entry with exactly this key is leased; `None` if there is no such entry.
    #[must_use]
    pub fn is_leased(&self, key: &MirrorKey) -> Option<bool> {
        self.find(key).map(|id| self.states[id as usize].leased)
    }

    /// Inserts a normalised entry ([`TableLayout::normalise`]) or replaces the action of its key; it expires after
    /// `idle_ms` without use (`None`: the table's own time, 0: never).
    pub fn insert(&mut self, entry: &[u8], idle_ms: Option<u64>, now_ms: u64) -> Result<Inserted, TableFull> {
        let key = self.layout.key(entry);
        let idle_ms = idle_ms.unwrap_or(self.idle_ms);
        if let Some(id) = self.find(&key) {
            let same = self.bytes(id) == entry;
            let start = id as usize * self.layout.bytes;
            self.entries[start..start + self.layout.bytes].copy_from_slice(entry);
            let state = &mut self.states[id as usize];
            (state.used_ms, state.idle_ms) = (now_ms, idle_ms);
            self.schedule_expiry(id);
            return Ok(if same { Inserted::Same } else { Inserted::Changed });
        }
        if self.len() >= self.size {
            return Err(TableFull);
        }
        let id = self.free.last().copied().unwrap_or(self.states.len() as u32);
        match &mut self.index {
            Index::Longest(lpm) => lpm.insert(key.exact(), key.prefix, id)?,
            Index::Exact(table, hasher) => {
                let hash = hasher.hash_one(key.exact());
                let (layout, entries) = (&self.layout, &self.entries);
                table.insert_unique(hash, id, |&id| hasher.hash_one(key_at(layout, entries, id).exact()));
            }
        }
        let state = EntryState { used_ms: now_ms, idle_ms, live: true, leased: false };
        if self.free.pop().is_some() {
            let start = id as usize * self.layout.bytes;
            self.entries[start..start + self.layout.bytes].copy_from_slice(entry);
            self.states[id as usize] = state;
        } else {
            self.entries.extend_from_slice(entry);
            self.states.push(state);
        }
        self.schedule_expiry(id);
        Ok(Inserted::New)
    }

    /// Removes the entry with exactly this key.
    pub fn remove(&mut self, key: &MirrorKey) -> Option<TableEntry> {
        let id = self.find(key)?;
        let removed = self.layout.to_ir(self.bytes(id));
        self.remove_id(id);
        Some(removed)
    }

    /// Sets the idle time of the entry with exactly this key; false if there is no such entry.
    pub fn set_idle(&mut self, key: &MirrorKey, idle_ms: Option<u64>) -> bool {
        let Some(id) = self.find(key) else { return false };
        self.states[id as usize].idle_ms = idle_ms.unwrap_or(self.idle_ms);
        self.schedule_expiry(id);
        true
    }

    /// Begins or ends the lease of the entry with exactly this key (the end counts as a use); false if there is no such
    /// entry.
    pub fn lease(&mut self, key: &MirrorKey, leased: bool, now_ms: u64) -> bool {
        let Some(id) = self.find(key) else { return false };
        let state = &mut self.states[id as usize];
        state.leased = leased;
        state.used_ms = now_ms;
        self.schedule_expiry(id);
        true
    }

    /// Time of the last use of the entry with exactly this key, here or in the element; `None` if there is no such
    /// entry.
    #[must_use]
    pub fn used_ms(&self, key: &MirrorKey) -> Option<u64> {
        self.find(key).map(|id| self.states[id as usize].used_ms)
    }

    /// Ends all leases after a restart of the element.
    pub fn end_leases(&mut self, now_ms: u64) {
        for state in self.states.iter_mut().filter(|state| state.leased) {
            (state.leased, state.used_ms) = (false, now_ms);
        }
    }

    /// Removes one expired entry and copies it to `entry`; false if there is none.
    pub fn expire(&mut self, now_ms: u64, entry: &mut [u8]) -> bool {
        while let Some(id) = self.wheel.pop(now_ms) {
            let state = self.states[id as usize];
            if state.leased || state.used_ms.saturating_add(state.idle_ms) > now_ms {
                let from_ms = if state.leased { now_ms } else { state.used_ms };
                self.wheel.schedule(id, from_ms.saturating_add(state.idle_ms));
                continue;
            }
            entry.copy_from_slice(self.bytes(id));
            self.remove_id(id);
            return true;
        }
        false
    }

    /// Earliest time at which [`expire`](Self::expire) may find an expired entry.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.wheel.next_ms()
    }

    /// Next entry of an iteration; `cursor` starts at 0. An entry that exists during the whole iteration is returned
    /// exactly once, whatever else is inserted or removed.
    #[must_use]
    pub fn next(&self, cursor: &mut u64) -> Option<&[u8]> {
        let from = usize::try_from(*cursor).ok().filter(|from| *from < self.states.len())?;
        let id = self.states[from..].iter().position(|state| state.live)? + from;
        *cursor = id as u64 + 1;
        Some(self.bytes(id as u32))
    }

    /// Whether a more specific prefix exists beneath this one; false for exact tables.
    #[must_use]
    pub fn has_beneath(&self, key: &MirrorKey) -> bool {
        match &self.index {
            Index::Exact(..) => false,
            Index::Longest(lpm) => lpm.has_beneath(key.exact(), key.prefix),
        }
    }

    /// Entry that matches `key` as an address, and the largest part of its prefix that contains the address and has no
    /// more specific prefix beneath, which can be placed in an element (CLIP §V-A).
    #[must_use]
    pub fn placeable(&self, key: &MirrorKey) -> Option<(&[u8], Option<Match>)> {
        match &self.index {
            Index::Exact(..) => Some((self.get(key)?, None)),
            Index::Longest(lpm) => {
                let id = lpm.lookup(key.exact(), key.prefix.value)?;
                Some((self.bytes(id), lpm.clear_prefix(key.exact(), key.prefix.value)))
            }
        }
    }

    /// Longest-prefix reader for another thread, which returns entry numbers; `None` for exact tables.
    #[must_use]
    pub fn reader(&self) -> Option<lpm::dir::DirReader> {
        match &self.index {
            Index::Exact(..) => None,
            Index::Longest(lpm) => lpm.reader(),
        }
    }

    fn find(&self, key: &MirrorKey) -> Option<u32> {
        match &self.index {
            Index::Exact(table, hasher) => table
                .find(hasher.hash_one(key.exact()), |&id| {
                    key_at(&self.layout, &self.entries, id).exact() == key.exact()
                })
                .copied(),
            Index::Longest(lpm) => lpm.get(key.exact(), key.prefix),
        }
    }

    fn bytes(&self, id: u32) -> &[u8] {
        &self.entries[id as usize * self.layout.bytes..][..self.layout.bytes]
    }

    fn remove_id(&mut self, id: u32) {
        let key = key_at(&self.layout, &self.entries, id);
        match &mut self.index {
            Index::Exact(table, hasher) => {
                if let Ok(found) = table.find_entry(hasher.hash_one(key.exact()), |&other| other == id) {
                    found.remove();
                }
            }
            Index::Longest(lpm) => {
                lpm.remove(key.exact(), key.prefix);
            }
        }
        self.wheel.cancel(id);
        self.states[id as usize].live = false;
        self.free.push(id);
    }

    fn schedule_expiry(&mut self, id: u32) {
        let state = self.states[id as usize];
        match state.idle_ms {
            0 => self.wheel.cancel(id),
            idle_ms => self.wheel.schedule(id, state.used_ms.saturating_add(idle_ms)),
        }
    }
}

fn key_at(layout: &TableLayout, entries: &[u8], id: u32) -> MirrorKey {
    layout.key(&entries[id as usize * layout.bytes..][..layout.bytes])
}
