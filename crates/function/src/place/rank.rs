//! The largest of what was reported, and which of those that are placed go for them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something with its size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked<T> {
    /// Packets.
    pub size: u64,
    /// What.
    pub what: T,
}

/// The `count` largest, largest first, by a heap of that size (the paper's max-heap, §VII-B). Of those alike, the
/// greater ones.
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

/// A small generator of its own: which flows strategy `random` takes is no protocol's business, only reproducible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(super) fn roll(&mut self) -> u64 {
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
    fn the_largest_come_first() {
        let sizes = [5, 1, 9, 7, 7, 0, 3];
        let all = sizes.iter().enumerate().map(|(what, size)| Ranked { size: *size, what });
        let best: Vec<_> = top(all, 4).into_iter().map(|one| (one.size, one.what)).collect();
        assert_eq!(best, [(9, 2), (7, 4), (7, 3), (5, 0)]);
        assert!(top(Vec::<Ranked<u8>>::new(), 4).is_empty());
    }
}
