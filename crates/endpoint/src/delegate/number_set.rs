//! Sets of message numbers, as ranges, because numbers arrive nearly in order.

/// Set of numbers from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NumberSet {
    /// The set contains all numbers up to this one: usually all numbers there are.
    first: u32,
    /// First and last number of each further range; sorted, with at least one number between two ranges.
    ranges: Vec<(u32, u32)>,
}

impl NumberSet {
    /// Adds a number; returns whether it was new. No sender uses 0: it is refused.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        if number <= self.first {
            return false;
        }
        if number == self.first + 1 {
            self.first = number;
            if self.ranges.first().is_some_and(|next| number.checked_add(1) == Some(next.0)) {
                self.first = self.ranges.remove(0).1;
            }
            return true;
        }
        let after = self.ranges.partition_point(|range| range.0 <= number);
        if after > 0 && self.ranges[after - 1].1 >= number {
            return false;
        }
        let joins_last = after > 0 && self.ranges[after - 1].1 + 1 == number;
        let joins_next = self.ranges.get(after).is_some_and(|next| number.checked_add(1) == Some(next.0));
        match (joins_last, joins_next) {
            (true, true) => self.ranges[after - 1].1 = self.ranges.remove(after).1,
            (true, false) => self.ranges[after - 1].1 = number,
            (false, true) => self.ranges[after].0 = number,
            (false, false) => self.ranges.insert(after, (number, number)),
        }
        true
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= number);
        number > 0 && number <= self.first || after > 0 && self.ranges[after - 1].1 >= number
    }

    /// Count of the numbers from 1 to `last` in the set.
    pub(super) fn up_to(&self, last: u32) -> u32 {
        let beyond = self.ranges.iter().take_while(|range| range.0 <= last);
        self.first.min(last) + beyond.map(|(from, to)| to.min(&last) - from + 1).sum::<u32>()
    }

    /// Numbers from 1 to `last` that are not in the set.
    pub(super) fn missing(&self, last: u32) -> impl Iterator<Item = u32> + '_ {
        let ends_before = std::iter::once(self.first).chain(self.ranges.iter().map(|range| range.1));
        let starts = ends_before.map(|end| end.saturating_add(1));
        let ends = self.ranges.iter().map(|range| range.0 - 1).chain(std::iter::once(u32::MAX));
        starts.zip(ends).flat_map(move |(from, to)| from..=to.min(last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn number_set_equals_model(numbers in proptest::collection::vec(0_u32..40, 0..60), last in 0_u32..45) {
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(set.insert(number), number > 0 && model.insert(number));
            }
            prop_assert_eq!(set.up_to(last) as usize, model.range(..=last).count());
            let missing: Vec<u32> = set.missing(last).collect();
            prop_assert_eq!(missing, (1..=last).filter(|n| !model.contains(n)).collect::<Vec<_>>());
            for number in 1..45 {
                prop_assert_eq!(set.contains(number), model.contains(&number));
            }
        }
    }
}
