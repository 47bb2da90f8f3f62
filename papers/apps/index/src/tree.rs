//! Index: a crit-bit tree from keys to slots. An insert writes one node and then one pointer, so concurrent readers
//! find all earlier keys, and a copy needs three small writes.
//!
//! ```text
//! nodes: [bit, child of 0, child of 1, -] …     keys: [key of slot 0, key of slot 1, …]
//!         child: a node, or LEAF | slot
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Flag of a child that is a slot.
const LEAF: u32 = 1 << 31;
/// Words of a node.
const NODE: usize = 4;

/// Tree of a fixed capacity. Any number of threads may read, one at a time may write.
#[derive(Debug)]
pub struct Tree {
    nodes: Box<[AtomicU32]>,
    keys: Box<[AtomicU64]>,
    len: AtomicU32,
}

/// Write to the memory of the tree, for updates of a copy in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeWrite {
    /// Key of a slot.
    Key(u32, u64),
    /// Node by number.
    Node(u32, [u32; 3]),
    /// Child, by the index of its word among the words of all nodes.
    Child(u32, u32),
}

impl Tree {
    /// Creates an empty tree. A look-up needs at least one key in the tree.
    ///
    /// # Panics
    /// Panics if `capacity` is 0 or greater than 2^30.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!((1..=1 << 30).contains(&capacity), "a tree of {capacity} keys");
        let nodes = (0..capacity * NODE).map(|_| AtomicU32::new(LEAF)).collect();
        Self { nodes, keys: (0..capacity).map(|_| AtomicU64::new(u64::MAX)).collect(), len: AtomicU32::new(0) }
    }

    /// Number of keys, which is also the next slot.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// True if the tree is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slot of a key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<u32> {
        let slot = self.nearest(key);
        (key != u64::MAX && self.keys[slot as usize].load(Ordering::Acquire) == key).then_some(slot)
    }

    /// Slot of the key that equals this one in the bits that the nodes compare.
    fn nearest(&self, key: u64) -> u32 {
        let mut at = self.word(1);
        while at & LEAF == 0 {
            let node = at as usize * NODE;
            at = self.word(node + 1 + (key >> self.word(node) & 1) as usize);
        }
        at & !LEAF
    }

    fn word(&self, at: usize) -> u32 {
        self.nodes[at].load(Ordering::Acquire)
    }

    /// Slot of a key, which is inserted if it is missing; `write` receives the writes in order. `u64::MAX` is no valid
    /// key. `None` if the tree is full.
    pub fn insert(&self, key: u64, mut write: impl FnMut(TreeWrite)) -> Option<u32> {
        let slot = self.len.load(Ordering::Acquire);
        let first = slot == 0;
        let near = if first { 0 } else { self.keys[self.nearest(key) as usize].load(Ordering::Acquire) };
        if near == key && !first {
            return Some(self.nearest(key));
        }
        if slot as usize >= self.keys.len() || key == u64::MAX {
            return None;
        }
        let mut apply = |what| {
            self.apply(what);
            write(what);
        };
        apply(TreeWrite::Key(slot, key));
        if first {
            apply(TreeWrite::Child(1, LEAF));
        } else {
            let bit = 63 - (near ^ key).leading_zeros();
            // Descend to nodes that compare lower bits.
            let mut pointer = 1;
            loop {
                let at = self.word(pointer);
                let node = at as usize * NODE;
                if at & LEAF != 0 || self.word(node) < bit {
                    break;
                }
                pointer = node + 1 + (key >> self.word(node) & 1) as usize;
            }
            let (old, new) = (self.word(pointer), LEAF | slot);
            let children = if key >> bit & 1 == 0 { [new, old] } else { [old, new] };
            // Node 0 contains the root pointer, so slot n has node n.
            apply(TreeWrite::Node(slot, [bit, children[0], children[1]]));
            apply(TreeWrite::Child(pointer as u32, slot));
        }
        self.len.store(slot + 1, Ordering::Release);
        Some(slot)
    }

    /// Applies a write of another tree.
    pub fn apply(&self, write: TreeWrite) {
        match write {
            TreeWrite::Key(slot, key) => self.keys[slot as usize].store(key, Ordering::Release),
            TreeWrite::Node(number, words) => {
                let words = words.iter().zip(&self.nodes[number as usize * NODE..]);
                words.for_each(|(word, place)| place.store(*word, Ordering::Release));
            }
            TreeWrite::Child(at, child) => self.nodes[at as usize].store(child, Ordering::Release),
        }
    }

    /// Copies another tree of the same capacity.
    ///
    /// # Panics
    /// Panics if the capacities differ.
    pub fn copy(&self, other: &Self) {
        assert_eq!(self.keys.len(), other.keys.len(), "the trees differ in capacity");
        let ordering = Ordering::Relaxed;
        self.nodes.iter().zip(&other.nodes).for_each(|(to, from)| to.store(from.load(ordering), ordering));
        self.keys.iter().zip(&other.keys).for_each(|(to, from)| to.store(from.load(ordering), ordering));
        self.len.store(other.len.load(ordering), Ordering::Release);
    }

    /// Memory of the tree in the kernels' format: nodes and keys.
    #[must_use]
    pub fn tables(&self) -> [Vec<u8>; 2] {
        let nodes = self.nodes.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        [nodes, self.keys.iter().flat_map(|key| key.load(Ordering::Relaxed).to_le_bytes()).collect()]
    }
}

impl TreeWrite {
    /// Index in [`Tree::tables`], offset, and bytes of the write.
    #[must_use]
    pub fn bytes(self) -> (usize, usize, Vec<u8>) {
        match self {
            Self::Key(slot, key) => (1, slot as usize * 8, key.to_le_bytes().to_vec()),
            Self::Node(number, words) => {
                (0, number as usize * NODE * 4, words.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
            Self::Child(at, child) => (0, at as usize * 4, child.to_le_bytes().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tree_and_updated_copy_equal_reference_map(
            keys in proptest::collection::vec(prop_oneof![any::<u64>(), 0..40_u64], 1..200),
        ) {
            let keys: Vec<u64> = keys.into_iter().filter(|key| *key != u64::MAX).collect();
            let (tree, copy, mut map) = (Tree::new(200), Tree::new(200), HashMap::new());
            let mut bytes = copy.tables();
            for key in &keys {
                let next = map.len() as u32;
                let slot = *map.entry(*key).or_insert(next);
                let mut follow = |write: TreeWrite| {
                    copy.apply(write);
                    let (table, at, what) = write.bytes();
                    bytes[table][at..at + what.len()].copy_from_slice(&what);
                    // During an insert all earlier keys are found.
                    for (key, slot) in map.iter().filter(|(_, slot)| **slot < next) {
                        assert_eq!(copy.find(*key), Some(*slot));
                    }
                };
                prop_assert_eq!(tree.insert(*key, &mut follow), Some(slot));
                prop_assert_eq!(copy.find(*key), Some(slot));
            }
            prop_assert_eq!(tree.len(), map.len());
            for key in (0..50).chain(keys.iter().map(|key| key ^ 1)) {
                prop_assert_eq!(tree.find(key), map.get(&key).copied().filter(|_| !map.is_empty()));
            }
            prop_assert_eq!(bytes, tree.tables());
        }
    }

    #[test]
    fn full_tree_rejects_inserts_and_keeps_keys() {
        let tree = Tree::new(2);
        let insert = |key| tree.insert(key, |_| {});
        assert_eq!(
            [insert(7), insert(u64::MAX), insert(9), insert(7), insert(8)],
            [Some(0), None, Some(1), Some(0), None]
        );
        assert_eq!([tree.find(7), tree.find(9), tree.find(8)], [Some(0), Some(1), None]);
    }
}
