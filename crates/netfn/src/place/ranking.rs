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
