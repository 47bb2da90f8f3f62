//! Latencies of all calls in an HDR histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant digits.
const DIGITS: u8 = 3;
/// Longer latencies count as this.
const LONGEST: Duration = Duration::from_secs(3600);

/// Latencies of calls, with three digits.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let longest = LONGEST.as_nanos() as u64;
        Self(Histogram::new_with_bounds(1, longest, DIGITS).expect("valid bounds"))
    }
}

impl Latencies {
    /// Records a call.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos().min(LONGEST.as_nanos()) as u64);
    }

    /// Adds all calls of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("equal bounds");
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Latency that this share of the calls, 0 to 1, did not exceed; 0 without calls.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// Mean latency; 0 without calls.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_three_digits() {
        let mut all = Latencies::default();
        for part in 0..10 {
            let mut latencies = Latencies::default();
            (0..1000).for_each(|i| latencies.record(Duration::from_micros(part * 1000 + i + 1)));
            all.add(&latencies);
        }
        assert_eq!(all.count(), 10_000);
        for (share, us) in [(0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let got = all.quantile(share).as_secs_f64() * 1e6;
            assert!((got / us - 1.0).abs() < 2e-3, "{share}: {got}");
        }
    }

    #[test]
    fn empty_histogram_is_zero_and_long_calls_are_clamped() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.99), Duration::ZERO);
        latencies.record(Duration::MAX);
        assert!(latencies.quantile(0.5) >= LONGEST);
    }
}
