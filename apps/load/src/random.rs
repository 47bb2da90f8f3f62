//! Seeded random numbers, so that a load is reproducible.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Seeded generator.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Random number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a double holds.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of at most n / 2^64 does not matter here.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// True with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Time from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_mean_and_tail() {
        let (mut random, mean, draws) = (Random::new(1), Duration::from_micros(25), 200_000);
        let mut drawn: Vec<f64> = (0..draws).map(|_| random.exponential(mean).as_secs_f64() * 1e6).collect();
        drawn.sort_by(f64::total_cmp);
        let average = drawn.iter().sum::<f64>() / f64::from(draws);
        assert!((average - 25.0).abs() < 0.5, "{average}");
        // ln 100 times the mean.
        let p99 = drawn[draws as usize * 99 / 100];
        assert!((p99 - 115.1).abs() < 4.0, "{p99}");
    }

    #[test]
    fn seed_gives_same_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.below(1000), random.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
