//! Ranking of flows and entries by size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Item with its size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked<T> {
    /// Size, packets.
    pub size: u64,
    /// Ranked item.
    pub item: T,
}

/// The `count` largest items, largest first, by a heap of that size (the paper's max-heap, §VII-B). Items of equal size
/// are ordered by their value.
pub fn top<T: Ord>(all: impl IntoIterator<Item = Ranked<T>>, count: usize) -> Vec<Ranked<T>> {
    let mut heap = BinaryHeap::new();
    for one in all {
        heap.push(Reverse(one));
        if heap.len() > count {
            heap.pop();
        }
    }
    heap.into_sorted_vec().into_iter().map(|Reverse(one)| one).collect()
}

/// Deterministic random numbers of the random strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Next number (SplitMix64).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_items_rank_first() {
        let sizes = [5, 1, 9, 7, 7, 0, 3];
        let all = sizes.iter().enumerate().map(|(item, size)| Ranked { size: *size, item });
        let best: Vec<_> = top(all, 4).into_iter().map(|one| (one.size, one.item)).collect();
        assert_eq!(best, [(9, 2), (7, 4), (7, 3), (5, 0)]);
        assert!(top(Vec::<Ranked<u8>>::new(), 4).is_empty());
    }
}
