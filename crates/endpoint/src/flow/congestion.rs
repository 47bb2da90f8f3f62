//! Round-trip time estimate, and AIMD congestion window `cw ≤ w_max` (NetRPC §5.1).

use std::time::Duration;

use pathcall_wire::W_MAX;

/// Initial window.
const INITIAL: f64 = 64.0;
/// Minimum margin of the timeout above the mean round-trip time (RFC 6298, 2.3).
const GRANULARITY: Duration = Duration::from_millis(1);
/// Minimum window.
const LEAST: f64 = 2.0;

/// Congestion window: additive increase, multiplicative decrease.
#[derive(Debug)]
pub(super) struct Window {
    size: f64,
    /// Slow-start threshold: below it, the window grows by one per acknowledgement, above it by one per window.
    threshold: f64,
    /// Congestion signals for sequence numbers below this one belong to the last decrease.
    recover: u32,
    /// Whether the window follows congestion signals.
    adapts: bool,
}

impl Window {
    /// Window that follows congestion if `adapts`, and has the constant size `w_max` otherwise.
    pub(super) fn new(adapts: bool) -> Self {
        let size = if adapts { INITIAL } else { f64::from(W_MAX) };
        Self { size, threshold: f64::from(W_MAX), recover: 0, adapts }
    }

    pub(super) fn size(&self) -> u32 {
        // In [LEAST, W_MAX], so the cast is exact enough.
        self.size as u32
    }

    pub(super) fn grow(&mut self) {
        let step = if self.size < self.threshold { 1.0 } else { 1.0 / self.size };
        self.size = (self.size + step).min(f64::from(W_MAX));
    }

    /// Halves the window, once for all signals about items in flight at the first signal.
    pub(super) fn shrink(&mut self, seq: u32, next_seq: u32) {
        self.shrink_to(0.5, seq, next_seq);
    }

    /// Reduces the window to four fifths: a loss without a queue is probably not congestion (TCP Veno, Fu and Liew
    /// 2003). Also once for all signals about items in flight at the first signal.
    pub(super) fn shrink_slightly(&mut self, seq: u32, next_seq: u32) {
        self.shrink_to(0.8, seq, next_seq);
    }

    fn shrink_to(&mut self, share: f64, seq: u32, next_seq: u32) {
        if self.adapts && seq >= self.recover {
            self.size = (self.size * share).max(LEAST);
            self.threshold = self.size;
            self.recover = next_seq;
        }
    }
}

/// Round-trip time estimator (RFC 6298).
#[derive(Debug, Default)]
pub(super) struct Rtt {
    smoothed: Option<(Duration, Duration)>,
    least: Duration,
}

impl Rtt {
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.least = if self.smoothed.is_none() { rtt } else { self.least.min(rtt) };
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((mean, deviation)) => {
                let error = mean.abs_diff(rtt);
                (mean * 7 / 8 + rtt / 8, deviation * 3 / 4 + error / 4)
            }
        });
    }

    /// Mean and deviation, after the first sample.
    pub(super) fn smoothed(&self) -> Option<(Duration, Duration)> {
        self.smoothed
    }

    /// Minimum of all samples.
    pub(super) fn minimum(&self) -> Duration {
        self.least
    }

    pub(super) fn rto(&self) -> Option<Duration> {
        self.smoothed.map(|(mean, deviation)| mean + (deviation * 4).max(GRANULARITY))
    }
}
