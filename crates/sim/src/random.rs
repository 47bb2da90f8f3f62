//! Seeded random generator whose output is the same on every machine.
//!
//! Each part of a run (every link, the scenario) has a generator of its own, forked from the seed's. A change in one
//! part does not shift the numbers of the others.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// A probability in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chance(pub u32);

impl Chance {
    /// Chance of `percent` out of 100.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }
}

/// Seeded random generator.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Creates the generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Creates an independent generator.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 when `n` is 0. Own code, as `rand`'s may change with its version.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of at most n / 2^64 is negligible here.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in the range.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// A number in 0..1, uniformly.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed time with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of these, uniformly.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Whether an event with this chance happens.
    pub fn happens(&mut self, chance: Chance) -> bool {
        self.below(1_000_000) < u64::from(chance.0)
    }

    /// Whether an event with this chance out of 100 happens.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.happens(Chance::percent(percent))
    }

    /// A time up to `longest`.
    pub fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)))
    }

    /// A time between these.
    pub fn between(&mut self, (shortest, longest): (Duration, Duration)) -> Duration {
        shortest + self.up_to(longest.saturating_sub(shortest))
    }

    /// Shuffles the items.
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
    fn random_numbers_match_published_values() {
        // Reference values of another implementation of xoshiro256++, seeded by SplitMix64.
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1000)).collect();
        assert_eq!(drawn, [811, 747, 100, 746]);
    }
}
