//! Order of dependent requests: those of one address, or of one message, by arrival.
//!
//! A *chain* has the unfinished requests of one key. The first ones are in flight: reads on any paths, or requests
//! that follow each other on paths of one class, which keeps order. If one of them fails, the chain is *broken*: no
//! request of it is sent until none is in flight; then the first one is sent again.

use pathcall_wire::{Mutant, mutant};

/// Index for "no entry".
pub(super) const NONE: u32 = u32::MAX;

/// Link of an entry without an order.
const NO_LINK: HardwareLink = HardwareLink { chain: NONE, before: NONE, behind: NONE, flying: false, read: false };

/// Chains. Entries are indexes of the selector's table; an entry without a chain has no order.
#[derive(Debug)]
pub(super) struct DependencyOrder {
    links: Vec<HardwareLink>,
    chains: Vec<Chain>,
    /// First free chain.
    free: u32,
    /// First chain of each hash bucket.
    buckets: Vec<u32>,
}

/// Position of an entry in its chain.
#[derive(Debug, Clone, Copy)]
struct HardwareLink {
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
    /// Class of the paths in use; `None` if they have several, or keep no order.
    class: Option<u16>,
    flying: u32,
    flying_writes: u32,
    head: u32,
    tail: u32,
    /// Next chain of the same bucket, or next free chain.
    next: u32,
}

impl DependencyOrder {
    /// Creates an order for at most `max` entries.
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

    /// Appends an entry to the chain of its key.
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
        self.links[at as usize] = HardwareLink { chain, before, behind: NONE, flying: false, read };
    }

    /// Whether an entry may take any path: it has no chain, or is the first of a chain without requests in flight, or
    /// is a read behind reads in flight only.
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

    /// Class of the paths of the entries before this one, if all are in flight in order on one that keeps it; and the
    /// last of these entries.
    pub(super) fn class_ahead(&self, at: u32) -> Option<(u16, u32)> {
        let link = &self.links[at as usize];
        let chain = self.chains.get(link.chain as usize)?;
        let ahead = self.links.get(link.before as usize)?;
        if chain.broken || !ahead.flying { None } else { Some((chain.class?, link.before)) }
    }

    /// Next entry in the chain.
    pub(super) fn behind(&self, at: u32) -> Option<u32> {
        Some(self.links[at as usize].behind).filter(|next| *next != NONE)
    }

    /// Records that an entry is in flight.
    pub(super) fn record_in_flight(&mut self, at: u32, class: Option<u16>) {
        let link = &mut self.links[at as usize];
        if let Some(chain) = self.chains.get_mut(link.chain as usize) {
            link.flying = true;
            chain.class = if chain.flying == 0 || chain.class == class { class } else { None };
            chain.flying += 1;
            chain.flying_writes += u32::from(!link.read);
        }
    }

    /// Records that an entry is no longer in flight.
    pub(super) fn record_end(&mut self, at: u32) {
        let link = &mut self.links[at as usize];
        if let Some(chain) = self.chains.get_mut(link.chain as usize) {
            link.flying = false;
            chain.flying -= 1;
            chain.flying_writes -= u32::from(!link.read);
        }
    }

    /// Records that an entry must be sent again; false if it has no chain.
    pub(super) fn failed(&mut self, at: u32) -> bool {
        match self.chains.get_mut(self.links[at as usize].chain as usize) {
            Some(chain) => {
                chain.broken = !mutant::on(Mutant::PlaceFailedPassed);
                true
            }
            None => false,
        }
    }

    /// First entry of an entry's chain, if none of the chain is in flight.
    pub(super) fn head_if_idle(&mut self, at: u32) -> Option<u32> {
        let chain = self.chains.get_mut(self.links[at as usize].chain as usize)?;
        if chain.flying > 0 {
            return None;
        }
        chain.broken = false;
        Some(chain.head)
    }

    /// Removes an entry that is not in flight from its chain; returns the chain's first entry, if none is in flight.
    pub(super) fn leave(&mut self, at: u32) -> Option<u32> {
        let HardwareLink { chain, before, behind, .. } = std::mem::replace(&mut self.links[at as usize], NO_LINK);
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

    /// Frees an empty chain.
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

    /// Hash bucket of a key: both halves of a product, to mix all bits of the key.
    fn bucket(&self, space: u8, key: u64) -> usize {
        let product = u128::from(key ^ (u64::from(space) << 63)) * 0x9e37_79b9_7f4a_7c15;
        ((product >> 64) ^ product) as usize & (self.buckets.len() - 1)
    }
}
