//! Zipf distribution over keys, as in YCSB.

use pathcall_sim::random::Random;

/// Prime, larger than most numbers of keys, that spreads ranks over keys.
const SPREAD: u64 = 2_654_435_761;
/// Terms of the sum that are added one by one. An integral approximates the rest.
const TERMS: u64 = 10_000;

/// Zipf distribution over keys numbered from 0, scrambled: popular keys are not neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct Zipf {
    keys: u64,
    /// 1 / (1 - theta).
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// Term of the second key in `zeta`; the first key has 1.
    second: f64,
}

impl Zipf {
    /// Distribution over `keys` keys: the k-th key is `k^-theta` times as frequent as the first.
    ///
    /// # Panics
    /// Panics if there are fewer than two keys, or if `theta` is not between 0 and 1.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys >= 2, "{keys} keys: at least 2 are needed");
        assert!(theta > 0.0 && theta < 1.0, "theta {theta} is not between 0 and 1");
        // Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as YCSB does it.
        let (zeta, second) = (zeta(keys, theta), 0.5_f64.powf(theta));
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - (1.0 + second) / zeta);
        Self { keys, alpha: 1.0 / (1.0 - theta), zeta, eta, second }
    }

    /// Draws a key.
    pub fn draw(&self, random: &mut Random) -> u64 {
        // The map is a bijection if the number of keys is no multiple of the prime, so the distribution is unchanged.
        ((u128::from(self.rank(random.unit())) * u128::from(SPREAD)) % u128::from(self.keys)) as u64
    }

    fn rank(&self, share: f64) -> u64 {
        let at = share * self.zeta;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + self.second {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

/// Sum of `k^-theta` for k from 1 to `keys`. For millions of terms an integral, corrected at both ends.
fn zeta(keys: u64, theta: f64) -> f64 {
    let term = |k: u64| (k as f64).powf(-theta);
    let first: f64 = (1..=keys.min(TERMS)).map(term).sum();
    if keys <= TERMS {
        return first;
    }
    let power = |k: u64| (k as f64).powf(1.0 - theta) / (1.0 - theta);
    first + power(keys) - power(TERMS) + (term(keys) - term(TERMS)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_frequencies_match_zipf_law() {
        let (zipf, mut random, draws) = (Zipf::new(1000, 0.99), Random::new(5), 200_000_u32);
        let mut counts = vec![0_u32; 1000];
        (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for rank in [1_u32, 2] {
            let law = f64::from(rank).powf(-0.99) / zipf.zeta;
            let got = f64::from(counts[rank as usize - 1]) / f64::from(draws);
            assert!((got / law - 1.0).abs() < 0.05, "{rank}: {got} {law}");
        }
    }

    #[test]
    fn approximated_zeta_equals_sum() {
        let slowly: f64 = (1..=200_000_u64).map(|k| (k as f64).powf(-0.99)).sum();
        assert!((zeta(200_000, 0.99) - slowly).abs() < 1e-6);
    }
}
