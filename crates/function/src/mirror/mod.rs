//! Mirrored tables as servers hold them: all entries, of which an element holds a part (CLIP §IV-C).
//!
//! ```text
//! handler: lookup, insert, remove, next ─┐
//! controller: entries by key, leases ────┼─► Mirror ─► index: hash table, or longest prefixes ─► slab of entries
//! clock: expire ─────────────────────────┘             wheel: when which grows old
//! ```
//!
//! Entries lie as the handler's C sees them ([`layout`]). An entry that stands in the element is *leased*: packets that
//! use it are not seen here, so it does not grow old; the controller gives it back when it leaves the element.

pub mod layout;
pub mod lpm;
pub mod wheel;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::ir::{Entry, Match, Program, TableId};

use layout::{Key, LayoutError, TableLayout};
pub use lpm::Full;
use lpm::Lpm;
use wheel::Wheel;

/// One mirrored table.
#[derive(Debug)]
pub struct Mirror {
    layout: TableLayout,
    size: u32,
    idle_ms: u64,
    index: Index,
    /// Entries, one after another; a number is an index here.
    entries: Vec<u8>,
    about: Vec<About>,
    free: Vec<u32>,
    wheel: Wheel,
}

#[derive(Debug)]
enum Index {
    Exact(HashTable<u32>, DefaultHashBuilder),
    Longest(Lpm),
}

/// What is known of an entry.
#[derive(Debug, Clone, Copy)]
struct About {
    used_ms: u64,
    /// 0: it stays until it is removed.
    idle_ms: u64,
    live: bool,
    leased: bool,
}

/// What an insertion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// A new key.
    New,
    /// The key had another action or other arguments.
    Changed,
    /// The same was there.
    Same,
}

impl Mirror {
    /// An empty table as `program` declares it.
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
            about: Vec::new(),
            free: Vec::new(),
            wheel: Wheel::new(now_ms),
        })
    }

    /// How its entries lie in memory.
    #[must_use]
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// Entries in it.
    #[must_use]
    pub fn len(&self) -> u32 {
        (self.about.len() - self.free.len()) as u32
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry that matches `key`, which is used by that.
    #[must_use]
    #[inline]
    pub fn lookup(&mut self, key: &Key, now_ms: u64) -> Option<&[u8]> {
        let id = match &self.index {
            Index::Exact(..) => self.find(key),
            Index::Longest(lpm) => lpm.lookup(key.exact(), key.prefix.value),
        }?;
        self.about[id as usize].used_ms = now_ms;
        Some(self.bytes(id))
    }

    /// The same, but it is not used by that.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<&[u8]> {
        match &self.index {
            Index::Exact(..) => self.get(key),
            Index::Longest(lpm) => lpm.lookup(key.exact(), key.prefix.value).map(|id| self.bytes(id)),
        }
    }

    /// The entry of this very key (with its prefix), which is not used by that.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&[u8]> {
        self.find(key).map(|id| self.bytes(id))
    }

    /// Whether the element has the entry of this very key; none if there is no such entry.
    #[must_use]
    pub fn is_leased(&self, key: &Key) -> Option<bool> {
        self.find(key).map(|id| self.about[id as usize].leased)
    }

    /// Puts an entry in, in its one form ([`TableLayout::normalise`]), or gives its key another action; it goes after
    /// `idle_ms` in which nothing used it (none: the table's own time, 0: never).
    pub fn insert(&mut self, entry: &[u8], idle_ms: Option<u64>, now_ms: u64) -> Result<Inserted, Full> {
        let key = self.layout.key(entry);
        let idle_ms = idle_ms.unwrap_or(self.idle_ms);
        if let Some(id) = self.find(&key) {
            let same = self.bytes(id) == entry;
            let start = id as usize * self.layout.bytes;
            self.entries[start..start + self.layout.bytes].copy_from_slice(entry);
            let about = &mut self.about[id as usize];
            (about.used_ms, about.idle_ms) = (now_ms, idle_ms);
            self.watch(id);
            return Ok(if same { Inserted::Same } else { Inserted::Changed });
        }
        if self.len() >= self.size {
            return Err(Full);
        }
        let id = self.free.last().copied().unwrap_or(self.about.len() as u32);
        match &mut self.index {
            Index::Longest(lpm) => lpm.insert(key.exact(), key.prefix, id)?,
            Index::Exact(table, hasher) => {
                let hash = hasher.hash_one(key.exact());
                let (layout, entries) = (&self.layout, &self.entries);
                table.insert_unique(hash, id, |&id| hasher.hash_one(key_at(layout, entries, id).exact()));
            }
        }
        let about = About { used_ms: now_ms, idle_ms, live: true, leased: false };
        if self.free.pop().is_some() {
            let start = id as usize * self.layout.bytes;
            self.entries[start..start + self.layout.bytes].copy_from_slice(entry);
            self.about[id as usize] = about;
        } else {
            self.entries.extend_from_slice(entry);
            self.about.push(about);
        }
        self.watch(id);
        Ok(Inserted::New)
    }

    /// Takes the entry of this very key out.
    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let id = self.find(key)?;
        let removed = self.layout.to_ir(self.bytes(id));
        self.take(id);
        Some(removed)
    }

    /// Another idle time for the entry of this very key; false if there is none.
    pub fn set_idle(&mut self, key: &Key, idle_ms: Option<u64>) -> bool {
        let Some(id) = self.find(key) else { return false };
        self.about[id as usize].idle_ms = idle_ms.unwrap_or(self.idle_ms);
        self.watch(id);
        true
    }

    /// The element has the entry of this very key from now on, or has it no more (which counts as a use); false if there
    /// is none.
    pub fn lease(&mut self, key: &Key, leased: bool, now_ms: u64) -> bool {
        let Some(id) = self.find(key) else { return false };
        let about = &mut self.about[id as usize];
        about.leased = leased;
        about.used_ms = now_ms;
        self.watch(id);
        true
    }

    /// When the entry of this very key was last used, by packets here or in the element; none if there is none.
    #[must_use]
    pub fn used_ms(&self, key: &Key) -> Option<u64> {
        self.find(key).map(|id| self.about[id as usize].used_ms)
    }

    /// Marks all entries as not in the element: it has been started anew.
    pub fn end_leases(&mut self, now_ms: u64) {
        for about in self.about.iter_mut().filter(|about| about.leased) {
            (about.leased, about.used_ms) = (false, now_ms);
        }
    }

    /// Takes out one entry that nothing used for its idle time, into `entry`; false if there is none.
    pub fn expire(&mut self, now_ms: u64, entry: &mut [u8]) -> bool {
        while let Some(id) = self.wheel.pop(now_ms) {
            let about = self.about[id as usize];
            if about.leased || about.used_ms.saturating_add(about.idle_ms) > now_ms {
                let from_ms = if about.leased { now_ms } else { about.used_ms };
                self.wheel.schedule(id, from_ms.saturating_add(about.idle_ms));
                continue;
            }
            entry.copy_from_slice(self.bytes(id));
            self.take(id);
            return true;
        }
        false
    }

    /// When [`expire`](Self::expire) may find something next, at the earliest.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.wheel.next_ms()
    }

    /// Entries one after another, from a cursor that starts as 0. An entry that is there all the while is seen once,
    /// whatever else comes and goes meanwhile.
    #[must_use]
    pub fn next(&self, cursor: &mut u64) -> Option<&[u8]> {
        let from = usize::try_from(*cursor).ok().filter(|from| *from < self.about.len())?;
        let id = self.about[from..].iter().position(|about| about.live)? + from;
        *cursor = id as u64 + 1;
        Some(self.bytes(id as u32))
    }

    /// Whether a more specific prefix stands beneath this one. Exact tables have none.
    #[must_use]
    pub fn has_beneath(&self, key: &Key) -> bool {
        match &self.index {
            Index::Exact(..) => false,
            Index::Longest(lpm) => lpm.has_beneath(key.exact(), key.prefix),
        }
    }

    /// The entry that matches `key` as an address, and the largest part of its prefix around it with nothing more specific
    /// beneath, which may go to an element as it is (CLIP §V-A).
    #[must_use]
    pub fn placeable(&self, key: &Key) -> Option<(&[u8], Option<Match>)> {
        match &self.index {
            Index::Exact(..) => Some((self.get(key)?, None)),
            Index::Longest(lpm) => {
                let id = lpm.lookup(key.exact(), key.prefix.value)?;
                Some((self.bytes(id), lpm.derived(key.exact(), key.prefix.value)))
            }
        }
    }

    /// A reader of longest prefixes for another thread, which tells entries by their numbers. None for other tables.
    #[must_use]
    pub fn reader(&self) -> Option<lpm::dir::Reader> {
        match &self.index {
            Index::Exact(..) => None,
            Index::Longest(lpm) => lpm.reader(),
        }
    }

    fn find(&self, key: &Key) -> Option<u32> {
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

    fn take(&mut self, id: u32) {
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
        self.about[id as usize].live = false;
        self.free.push(id);
    }

    fn watch(&mut self, id: u32) {
        let about = self.about[id as usize];
        match about.idle_ms {
            0 => self.wheel.cancel(id),
            idle_ms => self.wheel.schedule(id, about.used_ms.saturating_add(idle_ms)),
        }
    }
}

fn key_at(layout: &TableLayout, entries: &[u8], id: u32) -> Key {
    layout.key(&entries[id as usize * layout.bytes..][..layout.bytes])
}
