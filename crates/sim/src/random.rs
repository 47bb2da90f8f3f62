//! The one source of chance: a seeded generator whose output is the same on every machine.
//!
//! Each part of a run (every link, the scenario) has a generator of its own, forked from the
//! seed's, so that a change in one does not shift what the others draw.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// A probability in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chance(pub u32);

impl Chance {
    /// So many out of a hundred.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }
}

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent generator.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 when `n` is 0. Ours, not `rand`'s, which may change with its version.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of at most n / 2^64 is of no consequence here.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in the range.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// Evenly between 0 and 1, never 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// How long it takes until something happens that happens once in `mean` on average, whatever happened before.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of these, evenly.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Whether it happens.
    pub fn happens(&mut self, chance: Chance) -> bool {
        self.below(1_000_000) < u64::from(chance.0)
    }

    /// A time up to this long.
    pub fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)))
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_fixed_for_ever() {
        // As xoshiro256++, seeded by SplitMix64, gives them in another implementation.
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1000)).collect();
        assert_eq!(drawn, [811, 747, 100, 746]);
    }
}
