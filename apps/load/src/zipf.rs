//! Zipf distribution of keys: few keys are requested often, most rarely.

use crate::Random;

/// Prime larger than most numbers of keys, which spreads ranks over keys.
const SPREAD: u64 = 2_654_435_761;

/// Zipf distribution over keys numbered from 0, scrambled so that popular keys are not neighbours.
#[derive(Debug, Clone)]
pub struct Zipf {
    keys: u64,
    /// 1 / (1 - theta).
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// Parts of `zeta` for the most popular key, and for the two most popular ones.
    first: f64,
    second: f64,
}

impl Zipf {
    /// Distribution of `keys` keys; the k-th most popular one is requested `k^-theta` times as often as the first. The
    /// papers' theta is 0.99. The time is proportional to `keys`.
    ///
    /// # Panics
    /// Panics if there are fewer than two keys, or if `theta` is not between 0 and 1.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys >= 2, "{keys} keys have no order");
        assert!(theta > 0.0 && theta < 1.0, "theta {theta} is not between 0 and 1");
        // Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as in YCSB.
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-theta)).sum();
        let second = 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - (1.0 + second) / zeta);
        Self { keys, alpha: 1.0 / (1.0 - theta), zeta, eta, first: 1.0, second }
    }

    /// Number of keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Draws a key.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let rank = self.rank(random.unit());
        // A bijection if the number of keys is not a multiple of the prime, so the distribution is unchanged.
        ((u128::from(rank) * u128::from(SPREAD)) % u128::from(self.keys)) as u64
    }

    fn rank(&self, share: f64) -> u64 {
        let at = share * self.zeta;
        if at < self.first {
            return 0;
        }
        if at < self.first + self.second {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn key_frequencies_match_zipf_law() {
        let (zipf, mut random, draws) = (Zipf::new(1000, 0.99), Random::new(5), 400_000_u32);
        let mut counts = vec![0_u32; 1000];
        (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |rank: f64| rank.powf(-0.99) / zipf.zeta;
        for rank in [1_u32, 2] {
            let (got, law) = (f64::from(counts[rank as usize - 1]) / f64::from(draws), share(f64::from(rank)));
            assert!((got / law - 1.0).abs() < 0.05, "{rank}: {got} {law}");
        }
        // Further down the method is approximate, but sums over ranges of keys match.
        let part = |from: usize, to: usize| counts[from..to].iter().sum::<u32>();
        let law: f64 = (1..=100).map(|rank| share(f64::from(rank))).sum();
        let got = f64::from(part(0, 100)) / f64::from(draws);
        assert!((got / law - 1.0).abs() < 0.05, "{got} {law}");
    }

    #[test]
    fn ranks_map_to_keys_one_to_one() {
        for keys in [2_u64, 1000, 10_000] {
            let spread: HashSet<u64> = (0..keys).map(|rank| rank * SPREAD % keys).collect();
            assert_eq!(spread.len() as u64, keys);
        }
    }
}
