//! Owners of a partition's values, in blocks that each belong to at most one server (CLIP §V-B).
//!
//! ```text
//! free ─► given (the element steers there first) ─► asked back ─► returned: no value of it is in use ─► free
//!                     └── its server died ─► quarantined ─► free
//! ```

use std::collections::BTreeMap;

use pathcall_p4::split::balance::block_shift;
use pathcall_wire::{Instant, Mutant, mutant};

use super::ServerId;

/// Block of values: the low bits of a value shifted right by [`Ranges::shift`]; distinct for [`BLOCKS_MAX`](pathcall_p4::split::balance::BLOCKS_MAX) adjacent
/// blocks.
pub type ValueBlock = u16;

/// Owners of the blocks of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    first: u128,
    last: u128,
    shift: u16,
    blocks: BTreeMap<ValueBlock, BlockOwner>,
}

/// Owner of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockOwner {
    Free,
    /// To be given to the server once the element steers the block to it.
    Giving(ServerId),
    Given(ServerId),
    /// Requested back from the server.
    Taking(ServerId),
    Quarantined(Instant),
}

/// Change of a block's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockChange {
    /// The element steers the block to the server, then the server gets it.
    Give(ValueBlock, ServerId),
    /// The server is asked to return the block.
    Take(ValueBlock, ServerId),
}

impl Ranges {
    /// Blocks of the values `first..=last`, without owners.
    #[must_use]
    pub fn new(first: u128, last: u128) -> Self {
        let shift = block_shift(first, last);
        let blocks = (first >> shift..=last >> shift).map(|block| (block as ValueBlock, BlockOwner::Free)).collect();
        Self { first, last, shift, blocks }
    }

    /// Number of low bits of a value that do not affect its block.
    #[must_use]
    pub fn shift(&self) -> u16 {
        self.shift
    }

    /// First and last value of a block.
    #[must_use]
    pub fn values(&self, block: ValueBlock) -> (u128, u128) {
        let base = self.first >> self.shift;
        let low = (base + u128::from(block.wrapping_sub(base as ValueBlock))) << self.shift;
        (low.max(self.first), (low + ((1 << self.shift) - 1)).min(self.last))
    }

    /// Server that owns a block, to which packets are steered.
    #[must_use]
    pub fn owner(&self, block: ValueBlock) -> Option<ServerId> {
        match self.blocks.get(&block)? {
            BlockOwner::Given(server) | BlockOwner::Taking(server) | BlockOwner::Giving(server) => Some(*server),
            BlockOwner::Free | BlockOwner::Quarantined(_) => None,
        }
    }

    /// All blocks.
    pub fn blocks(&self) -> impl Iterator<Item = ValueBlock> {
        self.blocks.keys().copied()
    }

    /// Changes that give each of these servers the same number of blocks, give or take one.
    pub(super) fn balance(&mut self, servers: &[ServerId]) -> Vec<BlockChange> {
        let mut changes = Vec::new();
        let mut counts: BTreeMap<ServerId, usize> = servers.iter().map(|server| (*server, 0)).collect();
        for (block, owner) in &mut self.blocks {
            match owner {
                BlockOwner::Giving(server) | BlockOwner::Given(server) => match counts.get_mut(server) {
                    Some(count) => *count += 1,
                    None => {
                        changes.push(BlockChange::Take(*block, *server));
                        *owner = BlockOwner::Taking(*server);
                    }
                },
                _ => {}
            }
        }
        if servers.is_empty() {
            return changes;
        }
        let free: Vec<ValueBlock> = self.free().collect();
        for block in free {
            let Some((server, count)) = counts.iter_mut().min_by_key(|(server, count)| (**count, **server)) else {
                break;
            };
            *count += 1;
            self.blocks.insert(block, BlockOwner::Giving(*server));
            changes.push(BlockChange::Give(block, *server));
        }
        let fair = self.blocks.len() / servers.len();
        let poor: usize = counts.values().map(|count| fair.saturating_sub(*count)).sum();
        // Blocks that are being returned already will go to the servers with too few.
        let coming = self.blocks.values().filter(|owner| matches!(owner, BlockOwner::Taking(_))).count();
        for _ in coming..poor {
            let Some((rich, count)) = counts.iter_mut().max_by_key(|(server, count)| (**count, **server)) else {
                break;
            };
            if *count <= fair {
                break;
            }
            let of_server = |(_, owner): &(&ValueBlock, &mut BlockOwner)| **owner == BlockOwner::Given(*rich);
            let Some((block, owner)) = self.blocks.iter_mut().rev().find(of_server) else { break };
            let shared = mutant::on(Mutant::FunctionRangeShared);
            *owner = if shared { BlockOwner::Free } else { BlockOwner::Taking(*rich) };
            *count -= 1;
            changes.push(BlockChange::Take(*block, *rich));
        }
        changes
    }

    /// Whether the server owns a block that the element steers to it.
    pub(super) fn has_given(&self, server: ServerId) -> bool {
        self.blocks.values().any(|owner| *owner == BlockOwner::Given(server))
    }

    /// Marks a block as steered to its server; returns the server if it is to get the block now.
    pub(super) fn mark_steered(&mut self, block: ValueBlock) -> Option<ServerId> {
        let owner = self.blocks.get_mut(&block)?;
        let BlockOwner::Giving(server) = *owner else { return None };
        *owner = BlockOwner::Given(server);
        Some(server)
    }

    /// Marks a block as returned by a server; false if it was not requested.
    pub(super) fn mark_returned(&mut self, server: ServerId, block: ValueBlock) -> bool {
        let taken = self.blocks.get_mut(&block).filter(|owner| **owner == BlockOwner::Taking(server));
        taken.map(|owner| *owner = BlockOwner::Free).is_some()
    }

    /// Puts the blocks of a dead server into quarantine and returns them.
    pub(super) fn quarantine(&mut self, server: ServerId, until: Instant) -> Vec<ValueBlock> {
        let of_server = |owner: &BlockOwner| match owner {
            BlockOwner::Giving(owner) | BlockOwner::Given(owner) | BlockOwner::Taking(owner) => *owner == server,
            BlockOwner::Free | BlockOwner::Quarantined(_) => false,
        };
        let mut quarantined = Vec::new();
        for (block, owner) in self.blocks.iter_mut().filter(|(_, owner)| of_server(owner)) {
            *owner = BlockOwner::Quarantined(until);
            quarantined.push(*block);
        }
        quarantined
    }

    /// Ends the quarantines that are over.
    pub(super) fn end_quarantines(&mut self, now: Instant) {
        for owner in self.blocks.values_mut() {
            if matches!(owner, BlockOwner::Quarantined(until) if *until <= now) {
                *owner = BlockOwner::Free;
            }
        }
    }

    /// End of the next quarantine.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let until = |owner: &BlockOwner| match owner {
            BlockOwner::Quarantined(until) => Some(*until),
            _ => None,
        };
        self.blocks.values().filter_map(until).min()
    }

    fn free(&self) -> impl Iterator<Item = ValueBlock> {
        self.blocks.iter().filter(|(_, owner)| **owner == BlockOwner::Free).map(|(block, _)| *block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(ranges: &Ranges, server: ServerId) -> usize {
        ranges.blocks().filter(|block| ranges.owner(*block) == Some(server)).count()
    }

    #[test]
    fn blocks_partition_all_values() {
        for (first, last, shift, count) in [
            (1024, 65535, 10, 63),
            // More bits than the number of a block has.
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
                // The element computes the block in the same way.
                assert!([low, high].iter().all(|value| (value >> shift) as ValueBlock == block), "{block}");
                next = high + 1;
            }
            assert_eq!(next, last + 1);
        }
        assert_eq!(Ranges::new(10, 12).blocks().count(), 3);
        assert_eq!(Ranges::new(0, u128::MAX).blocks().count(), 64);
    }

    #[test]
    fn block_has_one_owner_and_is_reassigned_only_after_return() {
        let mut ranges = Ranges::new(0, 63);
        let given = ranges.balance(&[1, 2]);
        assert_eq!(given.len(), 64);
        for change in given {
            let BlockChange::Give(block, server) = change else { panic!("{change:?}") };
            assert_eq!(ranges.mark_steered(block), Some(server));
        }
        let taken = ranges.balance(&[1, 2, 3]);
        assert_eq!(taken.len(), 21, "a third");
        assert_eq!(owned(&ranges, 3), 0);
        assert!(ranges.balance(&[1, 2, 3]).is_empty(), "requested only once");
        for change in taken {
            let BlockChange::Take(block, server) = change else { panic!("{change:?}") };
            assert_eq!(ranges.owner(block), Some(server), "steered to the owner until returned");
            assert!(!ranges.mark_returned(9, block), "another server cannot return it");
            assert!(ranges.mark_returned(server, block));
        }
        assert_eq!(ranges.balance(&[1, 2, 3]).len(), 21);
        assert_eq!(owned(&ranges, 3), 21);
    }

    #[test]
    fn blocks_of_dead_server_are_quarantined() {
        let mut ranges = Ranges::new(0, 63);
        ranges.balance(&[1, 2]);
        assert_eq!(ranges.quarantine(1, Instant(100)).len(), 32);
        ranges.end_quarantines(Instant(99));
        assert!(ranges.balance(&[2]).is_empty());
        assert_eq!(ranges.next_at(), Some(Instant(100)));
        ranges.end_quarantines(Instant(100));
        assert_eq!(ranges.balance(&[2]).len(), 32);
    }
}
