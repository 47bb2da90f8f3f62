//! Maps and timers by context of a node.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use pathcall_wire::Instant;

use super::ContextId;

/// Map by contexts that this node has numbered. The hash takes a few instructions, and does not resist chosen keys. Its
/// order is not used.
pub type ContextMap<V> = HashMap<ContextId, V, BuildHasherDefault<ContextHasher>>;

/// Hashes a context by its number alone: numbers of one node differ.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContextHasher(u64);

impl Hasher for ContextHasher {
    fn write(&mut self, context: &[u8]) {
        let number = context.last_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        // Fibonacci hashing: both ends of the product differ where numbers do.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Length of the key: always ten.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns whether a list has so many obsolete entries that they should be removed.
pub(super) fn is_mostly_obsolete(entries: usize, alive: usize) -> bool {
    entries > 2 * alive + 64
}

/// Timers of contexts. Most contexts end before their time, and most times become later. So an entry is neither moved
/// nor removed: it is valid only while its context names it as its timer. A context whose entry is too early sets a new
/// one.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, ContextId)>>);

impl Timers {
    /// Sets a timer of a context for `at`; `set`: the time of its present timer.
    pub(super) fn set(&mut self, set: &mut Option<Instant>, of: ContextId, at: Instant) {
        if set.is_none_or(|set| at < set) {
            *set = Some(at);
            self.0.push(Reverse((at, of)));
        }
    }

    /// Removes and returns the next entry, if it is due; it may be obsolete.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, ContextId)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// Time of the first entry, which may be obsolete.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes the obsolete entries if they are the majority; `alive` is the number of contexts.
    pub(super) fn remove_obsolete(&mut self, alive: usize, counts: impl Fn(Instant, ContextId) -> bool) {
        if alive == 0 {
            self.0.clear();
        } else if is_mostly_obsolete(self.0.len(), alive) {
            self.0.retain(|Reverse((at, of))| counts(*at, *of));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pathcall_wire::delegate::NodeId;
    use proptest::prelude::*;

    use super::*;

    fn context(number: u8) -> ContextId {
        ContextId::new(NodeId::new(7), number.into())
    }

    proptest! {
        /// With timers set, moved and forgotten, no context is late, and obsolete entries are bounded.
        #[test]
        fn context_timers_are_never_late(steps in prop::collection::vec((0_u8..8, 0_u64..50, any::<bool>()), 0..300)) {
            let (mut timers, mut now) = (Timers::default(), Instant(0));
            // For each context: its wanted time, and the time of its timer.
            let mut expected: BTreeMap<ContextId, (Instant, Option<Instant>)> = BTreeMap::new();
            for (number, wait, forgets) in steps {
                let of = context(number);
                if forgets {
                    expected.remove(&of);
                } else {
                    let (at, set) = expected.entry(of).or_insert((now, None));
                    *at = Instant(now.0 + wait);
                    timers.set(set, of, *at);
                }
                timers.remove_obsolete(expected.len(), |at, of| expected.get(&of).is_some_and(|(_, set)| *set == Some(at)));
                prop_assert!(!is_mostly_obsolete(timers.0.len(), expected.len()));
                now.0 += 3;
                while let Some((at, of)) = timers.due(now) {
                    prop_assert!(at <= now);
                    let Some((wants, set)) = expected.get_mut(&of).filter(|(_, set)| *set == Some(at)) else { continue };
                    *set = None;
                    if *wants <= now {
                        expected.remove(&of);
                    } else {
                        timers.set(set, of, *wants);
                    }
                }
                prop_assert!(expected.values().all(|(at, _)| *at > now), "{now:?} {expected:?}");
                prop_assert!(timers.next().is_none_or(|next| expected.values().all(|(at, _)| next <= *at)));
                prop_assert!(expected.is_empty() || timers.next().is_some());
            }
        }
    }

    #[test]
    fn consecutive_contexts_are_distinct_keys() {
        let mut table = ContextMap::default();
        for number in 0..=255 {
            assert_eq!(table.insert(context(number), number), None);
        }
        // Records of an earlier process have another node id.
        table.insert(ContextId::new(NodeId::new(8), 3), 0);
        assert!((0..=255).all(|number| table[&context(number)] == number));
        assert_eq!(table.len(), 257);
    }
}
