//! Values of a partition, in blocks that each belong to one server at most (CLIP §V-B).
//!
//! ```text
//! free ─► given (the element steers there first) ─► asked back ─► returned: no value of it is in use ─► free
//!                     └── its server died ─► quarantined ─► free
//! ```

use std::collections::BTreeMap;

use pathcall_wire::{Instant, Mutant, mutant};

use super::ServerId;

/// A block of values: the low bits of what is above [`Ranges::shift`] in them. [`BLOCKS_MAX`] side by side differ there.
pub type Block = u16;

/// Blocks at most: entries that the element's table has room for.
pub const BLOCKS_MAX: u32 = 64;

/// Who has which block of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    first: u128,
    last: u128,
    shift: u16,
    blocks: BTreeMap<Block, Owner>,
}

/// Whose a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Free,
    /// It is to be given when the element steers to it.
    Giving(ServerId),
    Given(ServerId),
    /// It was asked back.
    Taking(ServerId),
    Quarantined(Instant),
}

/// What becomes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The element steers it there, then the server has it.
    Give(Block, ServerId),
    /// Asked back.
    Take(Block, ServerId),
}

impl Ranges {
    /// The values `first..=last`, nobody's.
    #[must_use]
    pub fn new(first: u128, last: u128) -> Self {
        let shift = shift(first, last);
        let blocks = (first >> shift..=last >> shift).map(|block| (block as Block, Owner::Free)).collect();
        Self { first, last, shift, blocks }
    }

    /// Low bits of a value that its block does not depend on.
    #[must_use]
    pub fn shift(&self) -> u16 {
        self.shift
    }

    /// The values of a block, both ends included.
    #[must_use]
    pub fn values(&self, block: Block) -> (u128, u128) {
        let base = self.first >> self.shift;
        let low = (base + u128::from(block.wrapping_sub(base as Block))) << self.shift;
        (low.max(self.first), (low + ((1 << self.shift) - 1)).min(self.last))
    }

    /// The server that owns a block: packets are steered to it.
    #[must_use]
    pub fn owner(&self, block: Block) -> Option<ServerId> {
        match self.blocks.get(&block)? {
            Owner::Given(server) | Owner::Taking(server) | Owner::Giving(server) => Some(*server),
            Owner::Free | Owner::Quarantined(_) => None,
        }
    }

    /// All blocks.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.blocks.keys().copied()
    }

    /// What to do so that each of these servers has as many blocks as the others, give or take one.
    pub(super) fn balance(&mut self, servers: &[ServerId]) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut counts: BTreeMap<ServerId, usize> = servers.iter().map(|server| (*server, 0)).collect();
        for (block, owner) in &mut self.blocks {
            match owner {
                Owner::Giving(server) | Owner::Given(server) => match counts.get_mut(server) {
                    Some(count) => *count += 1,
                    None => {
                        changes.push(Change::Take(*block, *server));
                        *owner = Owner::Taking(*server);
                    }
                },
                _ => {}
            }
        }
        if servers.is_empty() {
            return changes;
        }
        let free: Vec<Block> = self.free().collect();
        for block in free {
            let Some((server, count)) = counts.iter_mut().min_by_key(|(server, count)| (**count, **server)) else {
                break;
            };
            *count += 1;
            self.blocks.insert(block, Owner::Giving(*server));
            changes.push(Change::Give(block, *server));
        }
        let fair = self.blocks.len() / servers.len();
        let poor: usize = counts.values().map(|count| fair.saturating_sub(*count)).sum();
        // What is being taken already comes to the poor when it is back.
        let coming = self.blocks.values().filter(|owner| matches!(owner, Owner::Taking(_))).count();
        for _ in coming..poor {
            let Some((rich, count)) = counts.iter_mut().max_by_key(|(server, count)| (**count, **server)) else {
                break;
            };
            if *count <= fair {
                break;
            }
            let theirs = |(_, owner): &(&Block, &mut Owner)| **owner == Owner::Given(*rich);
            let Some((block, owner)) = self.blocks.iter_mut().rev().find(theirs) else { break };
            let shared = mutant::on(Mutant::FunctionRangeShared);
            *owner = if shared { Owner::Free } else { Owner::Taking(*rich) };
            *count -= 1;
            changes.push(Change::Take(*block, *rich));
        }
        changes
    }

    /// Whether the element steers some block to this server.
    pub(super) fn has_given(&self, server: ServerId) -> bool {
        self.blocks.values().any(|owner| *owner == Owner::Given(server))
    }

    /// The element steers this block to its server now; whether the server is to be told.
    pub(super) fn steered(&mut self, block: Block) -> Option<ServerId> {
        let owner = self.blocks.get_mut(&block)?;
        let Owner::Giving(server) = *owner else { return None };
        *owner = Owner::Given(server);
        Some(server)
    }

    /// A server has no value of this block any more; whether it was asked.
    pub(super) fn returned(&mut self, server: ServerId, block: Block) -> bool {
        let taken = self.blocks.get_mut(&block).filter(|owner| **owner == Owner::Taking(server));
        taken.map(|owner| *owner = Owner::Free).is_some()
    }

    /// A server is dead: nobody may have its values for a while. The blocks that it had.
    pub(super) fn died(&mut self, server: ServerId, until: Instant) -> Vec<Block> {
        let theirs =
            |owner: &Owner| matches!(owner, Owner::Giving(s) | Owner::Given(s) | Owner::Taking(s) if *s == server);
        let mut had = Vec::new();
        for (block, owner) in self.blocks.iter_mut().filter(|(_, owner)| theirs(owner)) {
            *owner = Owner::Quarantined(until);
            had.push(*block);
        }
        had
    }

    /// Quarantines that are over end.
    pub(super) fn rested(&mut self, now: Instant) {
        for owner in self.blocks.values_mut() {
            if matches!(owner, Owner::Quarantined(until) if *until <= now) {
                *owner = Owner::Free;
            }
        }
    }

    /// When a quarantine ends.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let until = |owner: &Owner| match owner {
            Owner::Quarantined(until) => Some(*until),
            _ => None,
        };
        self.blocks.values().filter_map(until).min()
    }

    fn free(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().filter(|(_, owner)| **owner == Owner::Free).map(|(block, _)| *block)
    }
}

/// Low bits that make no difference between blocks, so that there are [`BLOCKS_MAX`] of them at most.
#[must_use]
pub fn shift(first: u128, last: u128) -> u16 {
    (0..128).find(|shift| (last >> shift) - (first >> shift) < u128::from(BLOCKS_MAX)).unwrap_or(127)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ranges: &Ranges, server: ServerId) -> usize {
        ranges.blocks().filter(|block| ranges.owner(*block) == Some(server)).count()
    }

    #[test]
    fn blocks_cover_the_values_once() {
        for (first, last, shift, count) in [
            (1024, 65535, 10, 63),
            // Of more bits than a block's number has.
            (0xc000_0200, 0xc000_020f, 0, 16),
            (0x0a4d_0100, 0x0a4d_01ff, 2, 64),
            (0x0003_fff0, 0x0004_0010, 0, 33),
            (0x0123_4567_89ab_cdef, u64::MAX.into(), 58, 64),
        ] {
            let ranges = Ranges::new(first, last);
            let mut values: Vec<_> = ranges.blocks().map(|block| (ranges.values(block), block)).collect();
            values.sort_unstable();
            assert_eq!((ranges.shift(), values.len()), (shift, count), "{first:#x}");
            let mut next = first;
            for ((low, high), block) in values {
                assert!(low == next && high >= low, "{block}: {low:#x} to {high:#x}, not from {next:#x}");
                // As the element finds it.
                assert!([low, high].iter().all(|value| (value >> shift) as Block == block), "{block}");
                next = high + 1;
            }
            assert_eq!(next, last + 1);
        }
        assert_eq!(Ranges::new(10, 12).blocks().count(), 3);
        assert_eq!(Ranges::new(0, u128::MAX).blocks().count(), 64);
    }

    #[test]
    fn no_block_is_ever_two_servers_and_none_is_given_before_it_is_back() {
        let mut ranges = Ranges::new(0, 63);
        let given = ranges.balance(&[1, 2]);
        assert_eq!(given.len(), 64);
        for change in given {
            let Change::Give(block, server) = change else { panic!("{change:?}") };
            assert_eq!(ranges.steered(block), Some(server));
        }
        let taken = ranges.balance(&[1, 2, 3]);
        assert_eq!(taken.len(), 21, "a third");
        assert_eq!(owned(&ranges, 3), 0);
        assert!(ranges.balance(&[1, 2, 3]).is_empty(), "asked once");
        for change in taken {
            let Change::Take(block, server) = change else { panic!("{change:?}") };
            assert_eq!(ranges.owner(block), Some(server), "steered there until it is back");
            assert!(!ranges.returned(9, block), "another's word does not count");
            assert!(ranges.returned(server, block));
        }
        assert_eq!(ranges.balance(&[1, 2, 3]).len(), 21);
        assert_eq!(owned(&ranges, 3), 21);
    }

    #[test]
    fn a_dead_servers_values_rest() {
        let mut ranges = Ranges::new(0, 63);
        ranges.balance(&[1, 2]);
        assert_eq!(ranges.died(1, Instant(100)).len(), 32);
        ranges.rested(Instant(99));
        assert!(ranges.balance(&[2]).is_empty());
        assert_eq!(ranges.next_at(), Some(Instant(100)));
        ranges.rested(Instant(100));
        assert_eq!(ranges.balance(&[2]).len(), 32);
    }
}
