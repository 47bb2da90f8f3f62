//! Who waits for whom: requests of one address, or of one message, in the order in which they came.
//!
//! A *chain* has the requests of one key that are not done. Those in flight are its first: reads on any paths, or
//! requests that followed each other onto paths of one class, which keeps the order of what it is given. When one of
//! them fails the chain is *broken*: nothing of it goes until nothing of it is in flight, and then the first goes again.

use pathcall_wire::{Mutant, mutant};

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// The place of an entry that has no order to keep.
const NO_LINK: Link = Link { chain: NONE, before: NONE, behind: NONE, flying: false, read: false };

/// The chains. Entries are named by their index in the selector's table; one without a chain has no order to keep.
#[derive(Debug)]
pub(super) struct Order {
    links: Vec<Link>,
    chains: Vec<Chain>,
    /// First of the chains that nobody has.
    free: u32,
    /// First chain of each hash.
    buckets: Vec<u32>,
}

/// An entry's place in its chain.
#[derive(Debug, Clone, Copy)]
struct Link {
    chain: u32,
    before: u32,
    behind: u32,
    flying: bool,
    read: bool,
}

#[derive(Debug, Clone, Copy)]
struct Chain {
    key: u64,
    space: u8,
    broken: bool,
    /// Class of the paths of those in flight; none if they are of several, or keep no order.
    class: Option<u16>,
    flying: u32,
    flying_writes: u32,
    head: u32,
    tail: u32,
    /// The next of the same hash, or the next that is free.
    next: u32,
}

impl Order {
    /// Room for so many entries.
    pub(super) fn new(max: u32) -> Self {
        let blank = Chain {
            key: 0,
            space: 0,
            broken: false,
            class: None,
            flying: 0,
            flying_writes: 0,
            head: NONE,
            tail: NONE,
            next: NONE,
        };
        Self {
            links: vec![NO_LINK; max as usize],
            chains: (1..=max).map(|next| Chain { next: if next == max { NONE } else { next }, ..blank }).collect(),
            free: 0,
            buckets: vec![NONE; (max as usize).next_power_of_two()],
        }
    }

    /// Appends an entry to its key's chain.
    pub(super) fn join(&mut self, at: u32, space: u8, key: u64, read: bool) {
        let bucket = self.bucket(space, key);
        let mut chain = self.buckets[bucket];
        while chain != NONE && (self.chains[chain as usize].key, self.chains[chain as usize].space) != (key, space) {
            chain = self.chains[chain as usize].next;
        }
        let first = chain == NONE;
        if first {
            chain = self.free;
            let entry = &mut self.chains[chain as usize];
            self.free = entry.next;
            let next = std::mem::replace(&mut self.buckets[bucket], chain);
            *entry =
                Chain { key, space, broken: false, class: None, flying: 0, flying_writes: 0, head: at, tail: at, next };
        }
        let entry = &mut self.chains[chain as usize];
        let before = if first { NONE } else { std::mem::replace(&mut entry.tail, at) };
        if before != NONE {
            self.links[before as usize].behind = at;
        }
        self.links[at as usize] = Link { chain, before, behind: NONE, flying: false, read };
    }

    /// Whether an entry may take any path: it has no chain, or is the first and nothing of its chain is in flight, or is
    /// a read and all before it are reads in flight.
    pub(super) fn is_free(&self, at: u32) -> bool {
        let link = &self.links[at as usize];
        let Some(chain) = self.chains.get(link.chain as usize) else { return true };
        let reads_ahead = || self.links.get(link.before as usize).is_some_and(|ahead| ahead.flying);
        (chain.head == at && chain.flying == 0)
            || (link.read
                && !chain.broken
                && (chain.flying_writes == 0 || mutant::on(Mutant::PlaceReadsPass))
                && reads_ahead())
    }

    /// The class of the paths that those before an entry are on, if all are in flight, in order, on one that keeps it;
    /// and the last of those.
    pub(super) fn class_ahead(&self, at: u32) -> Option<(u16, u32)> {
        let link = &self.links[at as usize];
        let chain = self.chains.get(link.chain as usize)?;
        let ahead = self.links.get(link.before as usize)?;
        if chain.broken || !ahead.flying { None } else { Some((chain.class?, link.before)) }
    }

    /// The entry behind one in its chain.
    pub(super) fn behind(&self, at: u32) -> Option<u32> {
        Some(self.links[at as usize].behind).filter(|next| *next != NONE)
    }

    /// An entry is in flight now.
    pub(super) fn flies(&mut self, at: u32, class: Option<u16>) {
        let link = &mut self.links[at as usize];
        if let Some(chain) = self.chains.get_mut(link.chain as usize) {
            link.flying = true;
            chain.class = if chain.flying == 0 || chain.class == class { class } else { None };
            chain.flying += 1;
            chain.flying_writes += u32::from(!link.read);
        }
    }

    /// An entry is no longer in flight.
    pub(super) fn landed(&mut self, at: u32) {
        let link = &mut self.links[at as usize];
        if let Some(chain) = self.chains.get_mut(link.chain as usize) {
            link.flying = false;
            chain.flying -= 1;
            chain.flying_writes -= u32::from(!link.read);
        }
    }

    /// An entry that is no longer in flight is to go again; false if it has no chain.
    pub(super) fn failed(&mut self, at: u32) -> bool {
        match self.chains.get_mut(self.links[at as usize].chain as usize) {
            Some(chain) => {
                chain.broken = !mutant::on(Mutant::PlaceFailedPassed);
                true
            }
            None => false,
        }
    }

    /// The first of an entry's chain, if nothing of the chain is in flight.
    pub(super) fn head_if_idle(&mut self, at: u32) -> Option<u32> {
        let chain = self.chains.get_mut(self.links[at as usize].chain as usize)?;
        if chain.flying > 0 {
            return None;
        }
        chain.broken = false;
        Some(chain.head)
    }

    /// Takes an entry, not in flight, out of its chain; the chain's first, if nothing of it is in flight.
    pub(super) fn leave(&mut self, at: u32) -> Option<u32> {
        let Link { chain, before, behind, .. } = std::mem::replace(&mut self.links[at as usize], NO_LINK);
        if chain == NONE {
            return None;
        }
        match before {
            NONE => self.chains[chain as usize].head = behind,
            before => self.links[before as usize].behind = behind,
        }
        match behind {
            NONE => self.chains[chain as usize].tail = before,
            behind => self.links[behind as usize].before = before,
        }
        match self.chains[chain as usize].head {
            NONE => {
                self.forget(chain);
                None
            }
            head => self.head_if_idle(head),
        }
    }

    /// Gives a chain back that has no entries.
    fn forget(&mut self, chain: u32) {
        let Chain { key, space, next, .. } = self.chains[chain as usize];
        let bucket = self.bucket(space, key);
        if self.buckets[bucket] == chain {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.chains[before as usize].next != chain {
                before = self.chains[before as usize].next;
            }
            self.chains[before as usize].next = next;
        }
        self.chains[chain as usize].next = self.free;
        self.free = chain;
    }

    /// Where a key's chain is looked for: both halves of a product, which all bits of the key reach.
    fn bucket(&self, space: u8, key: u64) -> usize {
        let product = u128::from(key ^ (u64::from(space) << 63)) * 0x9e37_79b9_7f4a_7c15;
        ((product >> 64) ^ product) as usize & (self.buckets.len() - 1)
    }
}
