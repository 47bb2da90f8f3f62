//! How long answers take: when a call that nobody answers is sent again (RFC 6298's estimate).

use std::time::Duration;

/// Smoothed latency and how much it varies.
#[derive(Debug, Default)]
pub(super) struct Latency {
    mean: Option<Duration>,
    deviation: Duration,
}

/// Before anything was measured a call is sent again after so many times the shortest time.
const UNKNOWN: u32 = 8;

impl Latency {
    /// A request was answered after this time.
    pub(super) fn measured(&mut self, latency: Duration) {
        let Some(mean) = self.mean else {
            (self.mean, self.deviation) = (Some(latency), latency / 2);
            return;
        };
        self.deviation = (self.deviation * 3 + mean.abs_diff(latency)) / 4;
        self.mean = Some((mean * 7 + latency) / 8);
    }

    /// When to send again what was sent `again` times already.
    pub(super) fn retry_after(&self, again: u32, min: Duration, max: Duration) -> Duration {
        let once = self.mean.map_or(min * UNKNOWN, |mean| mean + self.deviation * 4);
        once.max(min).saturating_mul(1 << again.min(16)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_follows_what_is_measured() {
        let ms = Duration::from_millis;
        let mut latency = Latency::default();
        assert_eq!(latency.retry_after(0, ms(1), ms(100)), ms(8));
        for _ in 0..100 {
            latency.measured(ms(10));
        }
        assert_eq!(latency.retry_after(0, ms(1), ms(100)).as_millis(), 10);
        assert_eq!(latency.retry_after(1, ms(1), ms(100)).as_millis(), 20);
        assert_eq!(latency.retry_after(9, ms(1), ms(100)), ms(100));
    }
}
