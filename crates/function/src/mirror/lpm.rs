//! Tables with a key of prefixes, and any exact keys before it.
//!
//! ```text
//! exact part ─► group ─┬─► dir (up to 32 bits), shared or its own: look-ups
//!                      └─► trie: look-ups of wider keys; which prefixes there are, for updates and placement
//! ```
//!
//! What one exact part (a tenant, say) holds is a *group*. Prefixes of up to 32 bits are looked up in [`Dir`], wider ones
//! in the trie itself. Small groups share one, four cells deep; a group of [`LARGE`] prefixes gets its own, whose first
//! level takes 24 bits: 64 MiB, 1 KiB for each of its prefixes at most. Placement asks the trie: only a prefix with
//! nothing more specific beneath may go to an element alone (CLIP §V-A).

pub mod dir;

use hashbrown::HashMap;
use prefix_trie::PrefixMap;

use crate::ir::Match;

use dir::{At, Dir, Reader, View};

/// Exact parts that a table tells apart.
pub const GROUPS_MAX: usize = 1 << 16;
/// Bits of an address that [`Dir`] takes.
const DIR_BITS: u16 = 32;
/// From so many prefixes on, a group's first level takes 24 bits (64 MiB); the only group's of a smaller table 16.
pub const LARGE: usize = 1 << 16;

/// There is no room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table is full")]
pub struct Full;

/// Prefixes and the numbers of their entries.
#[derive(Debug)]
pub struct Lpm {
    width: u16,
    /// What brings an address to the top of a word for `dir`.
    dir_shift: u32,
    /// Of all groups but those that have their own.
    dir: Option<Dir>,
    nodes_max: usize,
    /// The only group has no name here.
    names: HashMap<Box<[u8]>, u32>,
    named: bool,
    groups: Vec<Group>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Group {
    trie: PrefixMap<(u128, u8), u32>,
    own: Option<Box<Dir>>,
}

impl Lpm {
    /// An empty table for `size` prefixes of addresses of `width` bits, `1 <= width <= 128`; with an exact part beside them
    /// if `grouped`. Nodes of [`Dir`] are 1 KiB; a quarter more than prefixes are allowed, and some for small tables.
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
        Self { width, dir_shift, dir, nodes_max, names: HashMap::new(), named: grouped, groups, free: Vec::new() }
    }

    /// The entry with the longest prefix of `address`.
    #[must_use]
    #[inline]
    pub fn lookup(&self, exact: &[u8], address: u128) -> Option<u32> {
        match &self.dir {
            Some(dir) if !self.named => dir.lookup(0, (address as u32) << self.dir_shift),
            _ => self.lookup_group(exact, address),
        }
    }

    /// One group, to look up many addresses in it, which come with their highest bit at the top of the word; none for wide
    /// keys, and for groups that are not there.
    #[must_use]
    pub fn view(&self, exact: &[u8]) -> Option<View<'_>> {
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
            (None, None) => group.trie.get_lpm(&(self.left(address), 128)).map(|(_, id)| *id),
        }
    }

    /// A reader for another thread, which takes addresses with their highest bit at the top of the word; none for wide keys,
    /// and for tables with an exact part.
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        self.dir.as_ref().filter(|_| !self.named).map(Dir::reader)
    }

    /// The entry of this very prefix.
    #[must_use]
    pub fn get(&self, exact: &[u8], prefix: Match) -> Option<u32> {
        self.groups[self.group(exact)? as usize].trie.get(&self.key(prefix)).copied()
    }

    /// Puts a prefix in, or gives it another entry.
    pub fn insert(&mut self, exact: &[u8], prefix: Match, id: u32) -> Result<(), Full> {
        let group = match self.group(exact) {
            Some(group) => group,
            None => self.name(exact)?,
        };
        let key = self.key(prefix);
        let of = &mut self.groups[group as usize];
        let is_new = !of.trie.contains_key(&key);
        let done = match (&mut of.own, &mut self.dir) {
            (Some(own), _) => own.insert(at(0, key), id, is_new),
            (None, Some(dir)) => dir.insert(at(group, key), id, is_new),
            (None, None) => Ok(()),
        };
        if let Err(full) = done {
            self.forget_if_empty(exact, group);
            return Err(full);
        }
        of.trie.insert(key, id);
        if self.named && of.trie.len() == LARGE && of.own.is_none() {
            self.part(group);
        }
        Ok(())
    }

    /// Gives a group that has become large a table of its own: once, and it takes some 50 ms.
    fn part(&mut self, group: u32) {
        let Some(dir) = &mut self.dir else { return };
        let of = &mut self.groups[group as usize];
        let mut own = Dir::single(24, self.nodes_max);
        if of.trie.iter().all(|(key, id)| own.insert(at(0, key), *id, true).is_ok()) {
            dir.clear(group);
            of.own = Some(Box::new(own));
        }
    }

    /// Takes a prefix out: a shorter one that it hid matches again.
    pub fn remove(&mut self, exact: &[u8], prefix: Match) -> Option<u32> {
        let group = self.group(exact)?;
        let key = self.key(prefix);
        let of = &mut self.groups[group as usize];
        let id = of.trie.remove(&key)?;
        let covering = of.trie.get_lpm(&key).map(|(_, id)| *id);
        match (&mut of.own, &mut self.dir) {
            (Some(own), _) => own.remove(at(0, key), id, covering),
            (None, Some(dir)) => dir.remove(at(group, key), id, covering),
            (None, None) => {}
        }
        self.forget_if_empty(exact, group);
        Some(id)
    }

    /// Whether a more specific prefix stands beneath `prefix`.
    #[must_use]
    pub fn has_beneath(&self, exact: &[u8], prefix: Match) -> bool {
        self.group(exact).is_some_and(|group| beneath(&self.groups[group as usize].trie, self.key(prefix)))
    }

    /// The largest prefix around `address` that its entry covers and that has nothing more specific beneath (CLIP §V-A); the
    /// entry's own prefix, if it is that. None if nothing matches.
    #[must_use]
    pub fn derived(&self, exact: &[u8], address: u128) -> Option<Match> {
        let trie = &self.groups[self.group(exact)? as usize].trie;
        let address = self.left(address);
        let ((_, matched), _) = trie.get_lpm(&(address, 128))?;
        // What stands beneath a prefix only becomes less as that grows longer.
        let (mut low, mut high) = (matched, self.width as u8);
        while low < high {
            let middle = low + (high - low) / 2;
            // Nothing that matches the address is longer than `matched`: what is there is beneath, or beside.
            if occupied(trie, (masked(address, middle), middle), matched) { low = middle + 1 } else { high = middle }
        }
        let value = masked(address, low) >> (128 - self.width);
        Some(Match { value, prefix_bits: u16::from(low) })
    }

    #[inline]
    fn group(&self, exact: &[u8]) -> Option<u32> {
        if self.named { self.names.get(exact).copied() } else { Some(0) }
    }

    fn name(&mut self, exact: &[u8]) -> Result<u32, Full> {
        let group = match self.free.pop() {
            Some(group) => group,
            None if self.groups.len() == GROUPS_MAX => return Err(Full),
            None => {
                self.groups.push(Group::default());
                (self.groups.len() - 1) as u32
            }
        };
        self.names.insert(exact.into(), group);
        Ok(group)
    }

    fn forget_if_empty(&mut self, exact: &[u8], group: u32) {
        if self.named && self.groups[group as usize].trie.is_empty() {
            self.groups[group as usize].own = None;
            self.names.remove(exact);
            self.free.push(group);
        }
    }

    fn key(&self, prefix: Match) -> (u128, u8) {
        let len = prefix.prefix_bits.min(self.width) as u8;
        (masked(self.left(prefix.value), len), len)
    }

    fn left(&self, value: u128) -> u128 {
        value << (128 - self.width)
    }
}

fn at(group: u32, (value, len): (u128, u8)) -> At {
    At { group, address: (value >> 96) as u32, len }
}

fn masked(value: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { value & u128::MAX << (128 - len) }
}

fn beneath(trie: &PrefixMap<(u128, u8), u32>, key: (u128, u8)) -> bool {
    trie.children(&key).any(|((_, len), _)| len > key.1)
}

/// Whether prefixes longer than `matched` stand at or beneath `key`.
fn occupied(trie: &PrefixMap<(u128, u8), u32>, key: (u128, u8), matched: u8) -> bool {
    trie.children(&key).any(|((_, len), _)| len > matched)
}
