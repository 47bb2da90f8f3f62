//! Histogram of latencies in buckets of 1/64 of their value.

use std::time::Duration;

/// Buckets per power of two.
const STEPS: usize = 64;
const STEP_BITS: u32 = STEPS.ilog2();

/// Histogram of latencies, with an error of at most 1.6 %.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: Duration,
}

impl Histogram {
    /// Adds a latency.
    pub fn record(&mut self, latency: Duration) {
        let at = bucket(latency.as_nanos() as u64);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.count += 1;
        self.total += latency;
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.count += other.count;
        self.total += other.total;
    }

    /// Number of latencies.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Mean latency; zero if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.total.as_nanos() / u128::from(self.count.max(1))) as u64)
    }

    /// Latency quantile: 0.99 for the 99th percentile. Zero if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper(at));
            }
        }
        Duration::ZERO
    }
}

/// Index of the bucket of a value: one bucket per nanosecond below [`STEPS`], then [`STEPS`] buckets per power of two.
fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    (shift as usize + 1) * STEPS + (ns >> shift) as usize - STEPS
}

/// Largest value of a bucket.
fn upper(at: usize) -> u64 {
    if at < STEPS {
        return at as u64;
    }
    let shift = at / STEPS - 1;
    // The last bucket ends at 2^64.
    (((at % STEPS + STEPS + 1) as u128) << shift).saturating_sub(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_within_bucket_width() {
        let mut histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        for (share, us) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.999, 9_990.0), (0.0, 1.0), (1.0, 10_000.0)] {
            let got = histogram.quantile(share).as_secs_f64() * 1e6;
            assert!((us..us * 1.017).contains(&got), "{share}: {got} for {us}");
        }
        assert_eq!((histogram.count(), histogram.mean()), (10_000, Duration::from_nanos(5_000_500)));
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn every_value_has_bucket() {
        for ns in (0..1 << 20).chain([u64::MAX, u64::MAX / 3]) {
            let at = bucket(ns);
            assert!(ns <= upper(at) && (at == 0 || ns > upper(at - 1)), "{ns} in {at}");
        }
    }

    #[test]
    fn merged_histograms_equal_one() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_nanos(10));
        other.record(Duration::from_millis(1));
        one.merge(&other);
        assert_eq!((one.count(), one.quantile(0.5)), (2, Duration::from_nanos(10)));
    }
}
