//! Longest-prefix-match index of a table, with optional exact keys before the prefix.
//!
//! ```text
//! exact part ─► group ─┬─► dir (up to 32 bits), shared or its own: look-ups
//!                      └─► trie: look-ups of wider keys; which prefixes there are, for updates and placement
//! ```
//!
//! Entries with the same exact part (a tenant, say) form a *group*. Prefixes of up to 32 bits are looked up in [`Dir`],
//! wider ones in the trie itself. Small groups share one `Dir` of four levels. A group of [`LARGE`] prefixes gets a
//! `Dir` of its own, whose first level takes 24 bits: 64 MiB, at most 1 KiB for each of the prefixes. Placement queries
//! the trie: only a prefix with no more specific prefix beneath it may be placed in an element alone (CLIP §V-A).

pub mod dir;

use hashbrown::HashMap;
use prefix_trie::PrefixMap;

use pathcall_p4::ir::Match;

use dir::{Dir, DirPrefix, DirReader, GroupView};

/// Most groups of a table.
pub const GROUPS_MAX: usize = 1 << 16;
/// Bits of an address that [`Dir`] handles.
const DIR_BITS: u16 = 32;
/// Number of prefixes from which a group's first level takes 24 bits (64 MiB); for the only group of a smaller table it
/// takes 16.
pub const LARGE: usize = 1 << 16;

/// Error of an insertion into a full table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table is full")]
pub struct TableFull;

/// Index from prefixes to entry numbers.
#[derive(Debug)]
pub struct Lpm {
    width: u16,
    /// Left shift that moves an address to the top of a word for `dir`.
    dir_shift: u32,
    /// Index of all groups without a `Dir` of their own.
    dir: Option<Dir>,
    nodes_max: usize,
    /// Groups by exact part; empty in a table without exact keys.
    group_ids: HashMap<Box<[u8]>, u32>,
    grouped: bool,
    groups: Vec<Group>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Group {
    trie: PrefixMap<(u128, u8), u32>,
    own: Option<Box<Dir>>,
}

impl Lpm {
    /// Empty index for `size` prefixes of addresses of `width` bits, `1 <= width <= 128`, with an exact part if
    /// `grouped`. Nodes of [`Dir`] are 1 KiB each; the limit is a quarter more than the number of prefixes, plus some
    /// for small tables.
    #[must_use]
    pub fn new(width: u16, size: u32, grouped: bool) -> Self {
        let nodes_max = size as usize + size as usize / 4 + 4096;
        let dir = (width <= DIR_BITS).then(|| match (grouped, size as usize >= LARGE) {
            (true, _) => Dir::groups(GROUPS_MAX, nodes_max),
            (false, true) => Dir::single(24, nodes_max),
            (false, false) => Dir::single(16, nodes_max),
        });
        let groups = if grouped { Vec::new() } else { vec![Group::default()] };
        let dir_shift = u32::from(DIR_BITS.saturating_sub(width));
        Self { width, dir_shift, dir, nodes_max, group_ids: HashMap::new(), grouped, groups, free: Vec::new() }
    }

    /// Entry with the longest prefix of `address`.
    #[must_use]
    #[inline]
    pub fn lookup(&self, exact: &[u8], address: u128) -> Option<u32> {
        match &self.dir {
            Some(dir) if !self.grouped => dir.lookup(0, (address as u32) << self.dir_shift),
            _ => self.lookup_group(exact, address),
        }
    }

    /// One group, for many lookups; addresses are left-aligned. `None` for wide keys and for unknown groups.
    #[must_use]
    pub fn view(&self, exact: &[u8]) -> Option<GroupView<'_>> {
        let number = self.group(exact)?;
        match &self.groups[number as usize].own {
            Some(own) => Some(own.view(0)),
            None => Some(self.dir.as_ref()?.view(number)),
        }
    }

    fn lookup_group(&self, exact: &[u8], address: u128) -> Option<u32> {
        let number = self.group(exact)?;
        let group = &self.groups[number as usize];
        let short = (address as u32) << self.dir_shift;
        match (&group.own, &self.dir) {
            (Some(own), _) => own.lookup(0, short),
            (None, Some(dir)) => dir.lookup(number, short),
            (None, None) => group.trie.get_lpm(&(self.left_align(address), 128)).map(|(_, id)| *id),
        }
    }

    /// Reader for another thread; addresses are left-aligned. `None` for wide keys and for tables with an exact part.
    #[must_use]
    pub fn reader(&self) -> Option<DirReader> {
        self.dir.as_ref().filter(|_| !self.grouped).map(Dir::reader)
    }

    /// Entry of exactly this prefix.
    #[must_use]
    pub fn get(&self, exact: &[u8], prefix: Match) -> Option<u32> {
        self.groups[self.group(exact)? as usize].trie.get(&self.key(prefix)).copied()
    }

    /// Inserts a prefix, or replaces its entry.
    pub fn insert(&mut self, exact: &[u8], prefix: Match, id: u32) -> Result<(), TableFull> {
        let group = match self.group(exact) {
            Some(group) => group,
            None => self.get_or_create_group(exact)?,
        };
        let key = self.key(prefix);
        let of = &mut self.groups[group as usize];
        let is_new = !of.trie.contains_key(&key);
        let done = match (&mut of.own, &mut self.dir) {
            (Some(own), _) => own.insert(dir_prefix(0, key), id, is_new),
            (None, Some(dir)) => dir.insert(dir_prefix(group, key), id, is_new),
            (None, None) => Ok(()),
        };
        if let Err(full) = done {
            self.forget_if_empty(exact, group);
            return Err(full);
        }
        of.trie.insert(key, id);
        if self.grouped && of.trie.len() == LARGE && of.own.is_none() {
            self.move_to_own_dir(group);
        }
        Ok(())
    }

    /// Moves a group that has become large to a `Dir` of its own: once per group, in some 50 ms.
    fn move_to_own_dir(&mut self, group: u32) {
        let Some(dir) = &mut self.dir else { return };
        let of = &mut self.groups[group as usize];
        let mut own = Dir::single(24, self.nodes_max);
        if of.trie.iter().all(|(key, id)| own.insert(dir_prefix(0, key), *id, true).is_ok()) {
            dir.clear(group);
            of.own = Some(Box::new(own));
        }
    }

    /// Removes a prefix; addresses under it match the next shorter prefix again.
    pub fn remove(&mut self, exact: &[u8], prefix: Match) -> Option<u32> {
        let group = self.group(exact)?;
        let key = self.key(prefix);
        let of = &mut self.groups[group as usize];
        let id = of.trie.remove(&key)?;
        let covering = of.trie.get_lpm(&key).map(|(_, id)| *id);
        match (&mut of.own, &mut self.dir) {
            (Some(own), _) => own.remove(dir_prefix(0, key), id, covering),
            (None, Some(dir)) => dir.remove(dir_prefix(group, key), id, covering),
            (None, None) => {}
        }
        self.forget_if_empty(exact, group);
        Some(id)
    }

    /// Whether a more specific prefix exists beneath `prefix`.
    #[must_use]
    pub fn has_beneath(&self, exact: &[u8], prefix: Match) -> bool {
        self.group(exact).is_some_and(|group| beneath(&self.groups[group as usize].trie, self.key(prefix)))
    }

    /// Largest prefix that contains `address`, lies in the matching entry's prefix and has no more specific prefix
    /// beneath (CLIP §V-A); possibly the entry's own prefix. `None` if nothing matches.
    #[must_use]
    pub fn clear_prefix(&self, exact: &[u8], address: u128) -> Option<Match> {
        let trie = &self.groups[self.group(exact)? as usize].trie;
        let address = self.left_align(address);
        let ((_, matched), _) = trie.get_lpm(&(address, 128))?;
        // Binary search: a longer prefix never has more prefixes beneath than a shorter one.
        let (mut low, mut high) = (matched, self.width as u8);
        while low < high {
            let middle = low + (high - low) / 2;
            // No prefix longer than `matched` contains the address: any that is found lies beneath the candidate.
            if has_longer_than(trie, (masked(address, middle), middle), matched) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        let value = masked(address, low) >> (128 - self.width);
        Some(Match { value, prefix_bits: u16::from(low) })
    }

    #[inline]
    fn group(&self, exact: &[u8]) -> Option<u32> {
        if self.grouped { self.group_ids.get(exact).copied() } else { Some(0) }
    }

    fn get_or_create_group(&mut self, exact: &[u8]) -> Result<u32, TableFull> {
        let group = match self.free.pop() {
            Some(group) => group,
            None if self.groups.len() == GROUPS_MAX => return Err(TableFull),
            None => {
                self.groups.push(Group::default());
                (self.groups.len() - 1) as u32
            }
        };
        self.group_ids.insert(exact.into(), group);
        Ok(group)
    }

    fn forget_if_empty(&mut self, exact: &[u8], group: u32) {
        if self.grouped && self.groups[group as usize].trie.is_empty() {
            self.groups[group as usize].own = None;
            self.group_ids.remove(exact);
            self.free.push(group);
        }
    }

    fn key(&self, prefix: Match) -> (u128, u8) {
        let len = prefix.prefix_bits.min(self.width) as u8;
        (masked(self.left_align(prefix.value), len), len)
    }

    fn left_align(&self, value: u128) -> u128 {
        value << (128 - self.width)
    }
}

fn dir_prefix(group: u32, (value, len): (u128, u8)) -> DirPrefix {
    DirPrefix { group, address: (value >> 96) as u32, len }
}

fn masked(value: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { value & u128::MAX << (128 - len) }
}

fn beneath(trie: &PrefixMap<(u128, u8), u32>, key: (u128, u8)) -> bool {
    trie.children(&key).any(|((_, len), _)| len > key.1)
}

/// Whether a prefix longer than `matched` exists at or beneath `key`.
fn has_longer_than(trie: &PrefixMap<(u128, u8), u32>, key: (u128, u8), matched: u8) -> bool {
    trie.children(&key).any(|((_, len), _)| len > matched)
}
