//! What has a context of this node's, and when it wants to be looked at.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use pathcall_wire::Instant;

use super::Context;

/// Anything by contexts that this node has counted out: in the time of a few instructions, without a hash that holds
/// against those who choose keys. Nothing goes through it in order.
pub(crate) type ByContext<V> = HashMap<Context, V, BuildHasherDefault<ByNumber>>;

/// Hashes a context by its number alone: what a node has counted out lies far apart.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, context: &[u8]) {
        let number = context.last_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        // Fibonacci hashing: both ends of the product differ where numbers do.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// How many bytes come: always ten.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Whether a list has so many entries that do not count any more that it is time to leave them out.
pub(super) fn is_crowded(entries: usize, alive: usize) -> bool {
    entries > 2 * alive + 64
}

/// When contexts want to be looked at. Most are over before their time, and most times are put off: an entry is
/// neither moved nor taken out, but counts only as long as its context says that it is set for just then. Whoever is
/// looked at too early is set anew.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Context)>>);

impl Timers {
    /// Has a context looked at by `at`; `set`: for when it is already.
    pub(super) fn set(&mut self, set: &mut Option<Instant>, of: Context, at: Instant) {
        if set.is_none_or(|set| at < set) {
            *set = Some(at);
            self.0.push(Reverse((at, of)));
        }
    }

    /// The next entry, if its time has come; it may not count any more.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Context)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// Not later than when the first wants to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Leaves out what does not count any more, if that is most of it; so many contexts are `alive`.
    pub(super) fn tidy(&mut self, alive: usize, counts: impl Fn(Instant, Context) -> bool) {
        if alive == 0 {
            self.0.clear();
        } else if is_crowded(self.0.len(), alive) {
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

    fn context(number: u8) -> Context {
        Context::new(NodeId::new(7), number.into())
    }

    proptest! {
        /// Whatever is set, put off and forgotten: nobody is looked at too late, nothing piles up.
        #[test]
        fn everybody_is_looked_at_in_time(steps in prop::collection::vec((0_u8..8, 0_u64..50, any::<bool>()), 0..300)) {
            let (mut timers, mut now) = (Timers::default(), Instant(0));
            // Of each: when it wants to be looked at, and for when it is set.
            let mut wanted: BTreeMap<Context, (Instant, Option<Instant>)> = BTreeMap::new();
            for (number, wait, forgets) in steps {
                let of = context(number);
                if forgets {
                    wanted.remove(&of);
                } else {
                    let (at, set) = wanted.entry(of).or_insert((now, None));
                    *at = Instant(now.0 + wait);
                    timers.set(set, of, *at);
                }
                timers.tidy(wanted.len(), |at, of| wanted.get(&of).is_some_and(|(_, set)| *set == Some(at)));
                prop_assert!(!is_crowded(timers.0.len(), wanted.len()));
                now.0 += 3;
                while let Some((at, of)) = timers.due(now) {
                    prop_assert!(at <= now);
                    let Some((wants, set)) = wanted.get_mut(&of).filter(|(_, set)| *set == Some(at)) else { continue };
                    *set = None;
                    if *wants <= now {
                        wanted.remove(&of);
                    } else {
                        timers.set(set, of, *wants);
                    }
                }
                prop_assert!(wanted.values().all(|(at, _)| *at > now), "{now:?} {wanted:?}");
                prop_assert!(timers.next().is_none_or(|next| wanted.values().all(|(at, _)| next <= *at)));
                prop_assert!(wanted.is_empty() || timers.next().is_some());
            }
        }
    }

    #[test]
    fn contexts_that_follow_each_other_are_told_apart() {
        let mut table = ByContext::default();
        for number in 0..=255 {
            assert_eq!(table.insert(context(number), number), None);
        }
        // Records of an earlier process have its node's id.
        table.insert(Context::new(NodeId::new(8), 3), 0);
        assert!((0..=255).all(|number| table[&context(number)] == number));
        assert_eq!(table.len(), 257);
    }
}
