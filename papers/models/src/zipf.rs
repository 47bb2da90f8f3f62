//! Which of many keys is asked for: few very often, most hardly ever, as YCSB draws them.

use pathcall_sim::random::Random;

/// A prime that is larger than most numbers of keys: ranks are spread over keys by it.
const SPREAD: u64 = 2_654_435_761;
/// Terms of the sum that are added one by one; what is left is an integral.
const TERMS: u64 = 10_000;

/// Zipf's distribution over keys numbered from 0, scrambled: those that are asked for most are not neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct Zipf {
    keys: u64,
    /// 1 / (1 - theta).
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// What the second key has of `zeta`, where the first has 1.
    second: f64,
}

impl Zipf {
    /// Of `keys` keys, where the k-th is asked for `k^-theta` times as often as the first.
    ///
    /// # Panics
    /// When there are fewer than two keys, or `theta` is not between 0 and 1.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys >= 2, "{keys} keys have no order");
        assert!(theta > 0.0 && theta < 1.0, "theta {theta} is not between 0 and 1");
        // Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as YCSB does it.
        let (zeta, second) = (zeta(keys, theta), 0.5_f64.powf(theta));
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - (1.0 + second) / zeta);
        Self { keys, alpha: 1.0 / (1.0 - theta), zeta, eta, second }
    }

    /// A key.
    pub fn draw(&self, random: &mut Random) -> u64 {
        // One to one where the number of keys is no multiple of the prime, so the distribution stays.
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

/// The sum of `k^-theta` for k from 1 to `keys`: of millions of terms, an integral with the ends put right.
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
    fn frequent_keys_are_as_frequent_as_the_law_says() {
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
    fn a_long_sum_is_the_sum() {
        let slowly: f64 = (1..=200_000_u64).map(|k| (k as f64).powf(-0.99)).sum();
        assert!((zeta(200_000, 0.99) - slowly).abs() < 1e-6);
    }
}
