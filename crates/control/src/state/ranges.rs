//! Allocator of contiguous ranges of rows, lanes or slots, first fit.

use std::collections::BTreeMap;

/// Used part of `0..len`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges {
    len: u32,
    /// Length by base; no two overlap, none is empty.
    used: BTreeMap<u32, u32>,
}

impl Ranges {
    pub(super) fn new(len: u32) -> Self {
        Self { len, used: BTreeMap::new() }
    }

    /// Takes the beginning of the first gap of at least `len`; returns its base. `None` for length 0.
    pub(super) fn take(&mut self, len: u32) -> Option<u32> {
        let (base, _) = self.gaps().find(|&(_, gap)| len > 0 && gap >= len)?;
        self.used.insert(base, len);
        Some(base)
    }

    /// Takes this range; false if a part of it is in use or outside.
    #[must_use]
    pub(super) fn take_at(&mut self, base: u32, len: u32) -> bool {
        let end = base.saturating_add(len);
        let free = len > 0 && self.gaps().any(|(start, gap)| start <= base && end <= start + gap && end - base == len);
        if free {
            self.used.insert(base, len);
        }
        free
    }

    /// Frees the range that begins at `base`.
    pub(super) fn release(&mut self, base: u32) {
        self.used.remove(&base);
    }

    /// Length of the longest gap.
    pub(super) fn largest(&self) -> u32 {
        self.gaps().map(|(_, gap)| gap).max().unwrap_or(0)
    }

    /// Total length in use.
    pub(super) fn used(&self) -> u32 {
        // No overflow: the ranges do not overlap and lie within a u32.
        self.used.values().sum()
    }

    /// Free ranges as (base, length), in order.
    fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let starts = std::iter::once(0).chain(self.used.iter().map(|(base, len)| base + len));
        let ends = self.used.keys().copied().chain(std::iter::once(self.len));
        starts.zip(ends).map(|(start, end)| (start, end - start)).filter(|&(_, gap)| gap > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_sufficient_gap_is_taken() {
        let mut ranges = Ranges::new(100);
        assert_eq!(ranges.take(40), Some(0));
        assert_eq!(ranges.take(20), Some(40));
        assert_eq!(ranges.take(40), Some(60));
        assert_eq!((ranges.take(1), ranges.largest(), ranges.used()), (None, 0, 100));
        ranges.release(40);
        ranges.release(0);
        assert_eq!(ranges.largest(), 60);
        assert_eq!(ranges.take(61), None);
        assert_eq!(ranges.take(60), Some(0));
    }

    #[test]
    fn take_at_accepts_free_ranges_only() {
        let mut ranges = Ranges::new(10);
        assert!(ranges.take_at(2, 3));
        for (base, len) in [(0, 3), (4, 1), (2, 3), (1, 5), (9, 2), (10, 1), (5, 0), (u32::MAX, 1), (5, u32::MAX)] {
            assert!(!ranges.take_at(base, len), "{base} {len}");
        }
        assert!(ranges.take_at(0, 2) && ranges.take_at(5, 5));
        assert_eq!(ranges.used(), 10);
        assert_eq!(Ranges::new(u32::MAX).take(u32::MAX), Some(0));
        assert_eq!(Ranges::new(0).take(1), None);
    }

    proptest! {
        #[test]
        fn ranges_match_flag_model(steps in prop::collection::vec((any::<bool>(), 0u32..12, 0u32..24), 1..60)) {
            const LEN: u32 = 24;
            let mut ranges = Ranges::new(LEN);
            let mut flags = [None; LEN as usize];
            for (take, len, base) in steps {
                if take {
                    let fits = |&base: &usize| base + len as usize <= flags.len()
                        && flags[base..base + len as usize].iter().all(Option::is_none);
                    let expected = (0..flags.len()).find(fits).filter(|_| len > 0);
                    let got = ranges.take(len);
                    prop_assert_eq!(got, expected.map(|base| base as u32));
                    if let Some(base) = expected {
                        flags[base..base + len as usize].fill(Some(base));
                    }
                } else {
                    ranges.release(base);
                    flags.iter_mut().filter(|flag| **flag == Some(base as usize)).for_each(|flag| *flag = None);
                }
                prop_assert_eq!(ranges.used() as usize, flags.iter().flatten().count());
                let gap = flags.split(Option::is_some).map(<[_]>::len).max();
                prop_assert_eq!(ranges.largest() as usize, gap.unwrap_or(0));
            }
        }
    }
}
