//! Record of latencies from which quantiles are read, with the error that chance causes.
//!
//! Buckets grow with their value, 32 for each doubling from 1 us to 17 s, so a quantile is exact to 3 % before
//! interpolation. A record has a fixed size and needs no allocation for a latency.

use std::time::Duration;

/// Buckets for each doubling.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.ilog2();
/// Powers of two of the least and the greatest latency in nanoseconds.
const LEAST_BITS: u32 = 10;
const MOST_BITS: u32 = 34;
const BUCKETS: usize = (MOST_BITS - LEAST_BITS) as usize * STEPS;
/// Standard deviations of an estimate that chance may cause.
const DEVIATIONS: f64 = 2.0;

/// Latencies of one policy. Older ones can be given less weight.
#[derive(Debug, Clone)]
pub(super) struct LatencyRecord {
    weights: [f32; BUCKETS],
    total: f64,
}

/// Estimate of a quantile in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QuantileEstimate {
    pub(super) low: f64,
    pub(super) likely: f64,
    pub(super) high: f64,
}

impl QuantileEstimate {
    /// Whether it is more than `factor` times the other one, and chance does not explain that it is greater.
    pub(super) fn exceeds(self, other: Self, factor: f64) -> bool {
        self.likely > factor * other.likely && self.low > other.high
    }
}

impl Default for LatencyRecord {
    fn default() -> Self {
        Self { weights: [0.0; BUCKETS], total: 0.0 }
    }
}

impl LatencyRecord {
    /// Records a latency.
    pub(super) fn record(&mut self, latency: Duration) {
        self.weights[bucket(latency)] += 1.0;
        self.total += 1.0;
    }

    /// Records calls that have waited too long to be counted with their latency.
    pub(super) fn record_without_end(&mut self, calls: u32) {
        self.weights[BUCKETS - 1] += calls as f32;
        self.total += f64::from(calls);
    }

    /// Gives all latencies so far less weight.
    pub(super) fn fade(&mut self, factor: f32) {
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self.total *= f64::from(factor);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Latency that this share of the calls does not exceed.
    pub(super) fn quantile(&self, share: f64) -> QuantileEstimate {
        // The number of latencies below a quantile is binomial.
        let deviation = DEVIATIONS * (share * (1.0 - share) / self.total.max(1.0)).sqrt();
        let [low, likely, high] = self.values([share - deviation, share, share + deviation]);
        QuantileEstimate { low, likely, high }
    }

    /// Quantiles that are compared.
    pub(super) fn median_and_tail(&self) -> [QuantileEstimate; 2] {
        [0.5, 0.99].map(|share| self.quantile(share))
    }

    /// Whether the median or the tail exceeds that of other latencies by this factor. Without latencies, nothing does.
    pub(super) fn exceeds_any(&self, other: [QuantileEstimate; 2], factor: f64) -> bool {
        let mut pairs = self.median_and_tail().into_iter().zip(other);
        self.total > 0.0 && pairs.any(|(ours, other)| ours.exceeds(other, factor))
    }

    /// Values of ascending shares. Beyond the last latency, a share has no upper limit.
    fn values(&self, shares: [f64; 3]) -> [f64; 3] {
        let mut found = [f64::INFINITY; 3];
        let (mut next, mut below) = (0, 0.0);
        for (at, weight) in self.weights.iter().enumerate() {
            let weight = f64::from(*weight);
            while next < shares.len() && weight > 0.0 && below + weight >= shares[next] * self.total {
                let part = ((shares[next] * self.total - below) / weight).clamp(0.0, 1.0);
                found[next] = lower(at) + part * (lower(at + 1) - lower(at));
                next += 1;
            }
            below += weight;
        }
        found
    }
}

fn bucket(latency: Duration) -> usize {
    let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).clamp(1 << LEAST_BITS, (1 << MOST_BITS) - 1);
    let power = ns.ilog2();
    (power - LEAST_BITS) as usize * STEPS + (ns >> (power - STEP_BITS)) as usize - STEPS
}

/// Least latency of a bucket in nanoseconds.
fn lower(bucket: usize) -> f64 {
    (((STEPS + bucket % STEPS) as u64) << (bucket / STEPS + (LEAST_BITS - STEP_BITS) as usize)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_wire::SplitMix64;

    const US: f64 = 1e3;

    #[test]
    fn bucket_contains_its_latencies() {
        let mut random = SplitMix64::new(7);
        for _ in 0..10_000 {
            let ns = (random.bits() >> (30 + random.below(20))).clamp(1 << LEAST_BITS, (1 << MOST_BITS) - 1);
            let at = bucket(Duration::from_nanos(ns));
            assert!((lower(at)..lower(at + 1)).contains(&(ns as f64)), "{ns} in {at}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_lie_within_their_estimates() {
        let (mut random, mut within) = (SplitMix64::new(7), 0);
        for _ in 0..200 {
            let mut record = LatencyRecord::default();
            for _ in 0..1_000 {
                let uniform = (f64::from(random.below(1 << 30)) + 0.5) / f64::from(1 << 30);
                record.record(Duration::from_nanos((-100.0 * US * uniform.ln()) as u64));
            }
            let (half, tail) = (record.quantile(0.5), record.quantile(0.99));
            assert!((60.0 * US..80.0 * US).contains(&half.likely), "{half:?}");
            within += u32::from((tail.low..tail.high).contains(&(460.5 * US)));
        }
        // 95 % of the estimates are within two deviations.
        assert!((180..200).contains(&within), "{within}");
    }

    #[test]
    fn few_latencies_have_no_upper_estimate() {
        let mut record = LatencyRecord::default();
        assert!(record.quantile(0.99).low > 1e18);
        (0..20).for_each(|_| record.record(Duration::from_micros(50)));
        let (half, tail) = (record.quantile(0.5), record.quantile(0.99));
        assert!((48.0 * US..52.0 * US).contains(&half.high), "{half:?}");
        assert!(tail.high.is_infinite() && !half.exceeds(tail, 0.1), "{tail:?}");
        record.record_without_end(5);
        assert!(record.quantile(0.99).likely > 16e9);
        record.fade(0.5);
        assert!((12.0..13.0).contains(&record.total));
    }
}
