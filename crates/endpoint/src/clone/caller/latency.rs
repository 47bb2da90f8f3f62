//! Latency estimate of answers, which sets the time of repeats (RFC 6298, with an adaptive margin).

use std::time::Duration;

/// Smoothed latency and its deviation.
#[derive(Debug)]
pub(super) struct Latency {
    mean: Option<Duration>,
    deviation: Duration,
    /// Adaptive factor on the estimate. Latencies with a long tail often exceed the estimate, and each premature repeat
    /// causes a redundant answer.
    margin: f64,
}

/// Factor on the shortest time for the first repeat, before any measurement.
const INITIAL_FACTOR: u32 = 8;
/// Factors on the margin for each premature repeat, and for each answer: they balance at one premature repeat in 1,800
/// answers.
const MARGIN_INCREASE: f64 = 1.25;
const MARGIN_DECREASE: f64 = 1.0 - 1.0 / 8192.0;
const MARGIN_MAX: f64 = 16.0;

impl Default for Latency {
    fn default() -> Self {
        Self { mean: None, deviation: Duration::ZERO, margin: 1.0 }
    }
}

impl Latency {
    /// Records the latency of an answered request.
    pub(super) fn record(&mut self, latency: Duration) {
        self.margin = (self.margin * MARGIN_DECREASE).max(1.0);
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(latency), latency / 2);
            return;
        };
        self.deviation = (self.deviation * 3 + mean.abs_diff(latency)) / 4;
        self.mean = Some((mean * 7 + latency) / 8);
    }

    /// Records a premature repeat: the earlier attempt was answered after all.
    pub(super) fn record_premature_retry(&mut self) {
        self.margin = (self.margin * MARGIN_INCREASE).min(MARGIN_MAX);
    }

    /// Delay of the next repeat, after `again` repeats.
    pub(super) fn retry_delay(&self, again: u32, min: Duration, max: Duration) -> Duration {
        let once = self.mean.map_or(min * INITIAL_FACTOR, |mean| mean + self.deviation * 4);
        once.max(min).mul_f64(self.margin).saturating_mul(1 << again.min(16)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn retry_delay_follows_measured_latency() {
        let mut latency = Latency::default();
        assert_eq!(latency.retry_delay(0, ms(1), ms(100)), ms(8));
        for _ in 0..100 {
            latency.record(ms(10));
        }
        assert_eq!(latency.retry_delay(0, ms(1), ms(100)).as_millis(), 10);
        assert_eq!(latency.retry_delay(1, ms(1), ms(100)).as_millis(), 20);
        assert_eq!(latency.retry_delay(9, ms(1), ms(100)), ms(100));
    }

    #[test]
    fn premature_retries_increase_the_margin() {
        let mut latency = Latency::default();
        let (mut premature, calls) = (0, 200_000_u64);
        // One in thirty takes ten times as long.
        for call in 0..calls {
            let took = if call % 30 == 0 { ms(50) } else { ms(5) };
            if took > latency.retry_delay(0, ms(1), ms(1_000)) {
                latency.record_premature_retry();
                premature += 1;
            }
            latency.record(took);
        }
        assert!((1..calls / 1_000).contains(&premature), "{premature}");
        (0..1_000).for_each(|_| latency.record_premature_retry());
        assert!(latency.retry_delay(0, ms(1), ms(10_000)) < ms(2_000), "the margin is bounded");
    }
}
