//! How long answers take: when a call that nobody answers is sent again (RFC 6298's estimate, which learns).

use std::time::Duration;

/// Smoothed latency and how much it varies.
#[derive(Debug)]
pub(super) struct Latency {
    mean: Option<Duration>,
    deviation: Duration,
    /// How much longer than the estimate answers are waited for. Times with a long tail have many beyond it, and each
    /// that is asked for again in vain has two answers.
    patience: f64,
}

/// Before anything was measured a call is sent again after so many times the shortest time.
const UNKNOWN: u32 = 8;
/// What becomes of the patience with each call that was sent again in vain, and with each answer: they hold the
/// balance at one in 1,800.
const LATER: f64 = 1.25;
const SOONER: f64 = 1.0 - 1.0 / 8192.0;
const PATIENCE_MAX: f64 = 16.0;

impl Default for Latency {
    fn default() -> Self {
        Self { mean: None, deviation: Duration::ZERO, patience: 1.0 }
    }
}

impl Latency {
    /// A request was answered after this time.
    pub(super) fn measured(&mut self, latency: Duration) {
        self.patience = (self.patience * SOONER).max(1.0);
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(latency), latency / 2);
            return;
        };
        self.deviation = (self.deviation * 3 + mean.abs_diff(latency)) / 4;
        self.mean = Some((mean * 7 + latency) / 8);
    }

    /// A call was sent again, and what it was sent as before is answered all the same.
    pub(super) fn sent_in_vain(&mut self) {
        self.patience = (self.patience * LATER).min(PATIENCE_MAX);
    }

    /// When to send again what was sent `again` times already.
    pub(super) fn retry_after(&self, again: u32, min: Duration, max: Duration) -> Duration {
        let once = self.mean.map_or(min * UNKNOWN, |mean| mean + self.deviation * 4);
        once.max(min).mul_f64(self.patience).saturating_mul(1 << again.min(16)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_pause_follows_what_is_measured() {
        let mut latency = Latency::default();
        assert_eq!(latency.retry_after(0, ms(1), ms(100)), ms(8));
        for _ in 0..100 {
            latency.measured(ms(10));
        }
        assert_eq!(latency.retry_after(0, ms(1), ms(100)).as_millis(), 10);
        assert_eq!(latency.retry_after(1, ms(1), ms(100)).as_millis(), 20);
        assert_eq!(latency.retry_after(9, ms(1), ms(100)), ms(100));
    }

    #[test]
    fn what_is_sent_in_vain_is_sent_later_the_next_time() {
        let mut latency = Latency::default();
        let (mut vain, calls) = (0, 200_000_u64);
        // One in thirty takes ten times as long.
        for call in 0..calls {
            let took = if call % 30 == 0 { ms(50) } else { ms(5) };
            if took > latency.retry_after(0, ms(1), ms(1_000)) {
                latency.sent_in_vain();
                vain += 1;
            }
            latency.measured(took);
        }
        assert!((1..calls / 1_000).contains(&vain), "{vain}");
        (0..1_000).for_each(|_| latency.sent_in_vain());
        assert!(latency.retry_after(0, ms(1), ms(10_000)) < ms(2_000), "patience has an end");
    }
}
