//! Link without faults: delay, rate, queue, congestion marks.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::{FrameArrival, LinkModel, LinkOutcome, LossCause};
use crate::random::Random;

/// Properties of a link without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireSpec {
    /// Minimum delay from one end to the other.
    pub delay: Duration,
    /// Limit on the additional random delay; frames stay in order.
    pub jitter: Duration,
    /// Bytes per second.
    pub rate_bytes: u64,
    /// Capacity of the queue in bytes; frames beyond it are lost.
    pub queue_bytes: u64,
    /// Queue length in bytes from which frames are marked.
    pub mark_bytes: u64,
}

impl Default for WireSpec {
    /// 10 Gb/s, 10 µs and an unlimited queue.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(10),
            jitter: Duration::ZERO,
            rate_bytes: 1_250_000_000,
            queue_bytes: u64::MAX,
            mark_bytes: u64::MAX,
        }
    }
}

/// Link that sends frame after frame, without faults.
#[derive(Debug)]
pub struct Wire {
    spec: WireSpec,
    /// Changes of the properties, by time.
    changes: VecDeque<(Instant, WireSpec)>,
    random: Random,
    /// Time at which the queue is empty.
    idle_at: Instant,
    last_arrival: Instant,
}

impl Wire {
    /// Creates an idle link.
    #[must_use]
    pub fn new(spec: WireSpec, random: Random) -> Self {
        Self { spec, changes: VecDeque::new(), random, idle_at: Instant(0), last_arrival: Instant(0) }
    }

    /// Adds changes of the properties, the earliest first. Queued frames keep the old rate.
    #[must_use]
    pub fn with_changes(self, changes: impl IntoIterator<Item = (Instant, WireSpec)>) -> Self {
        Self { changes: changes.into_iter().collect(), ..self }
    }

    /// Number of queued bytes.
    fn backlog(&self, now: Instant) -> u64 {
        let nanos = u128::from(self.idle_at.0.saturating_sub(now.0));
        (nanos * u128::from(self.spec.rate_bytes) / 1_000_000_000) as u64
    }
}

impl LinkModel for Wire {
    fn transmit(&mut self, now: Instant, len: usize, arrivals: &mut Vec<FrameArrival>) -> LinkOutcome {
        while let Some((_, spec)) = self.changes.front().filter(|(at, _)| *at <= now) {
            self.spec = *spec;
            self.changes.pop_front();
        }
        let (len, backlog) = (len as u64, self.backlog(now));
        if backlog.saturating_add(len) > self.spec.queue_bytes {
            return LinkOutcome { lost: Some(LossCause::QueueFull), ..LinkOutcome::default() };
        }
        let sending = Duration::from_nanos(len * 1_000_000_000 / self.spec.rate_bytes.max(1));
        self.idle_at = self.idle_at.max(now) + sending;
        let travelling = self.spec.delay + self.random.up_to(self.spec.jitter);
        self.last_arrival = self.last_arrival.max(self.idle_at + travelling);
        arrivals.push(FrameArrival { at: self.last_arrival, marked: backlog > self.spec.mark_bytes });
        LinkOutcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(link: &mut impl LinkModel, now: u64, len: usize) -> (Vec<FrameArrival>, LinkOutcome) {
        let mut arrivals = Vec::new();
        let outcome = link.transmit(Instant(now), len, &mut arrivals);
        (arrivals, outcome)
    }

    #[test]
    fn queue_delays_marks_and_drops_frames() {
        // One byte per nanosecond.
        let spec = WireSpec {
            delay: Duration::from_nanos(50),
            jitter: Duration::ZERO,
            rate_bytes: 1_000_000_000,
            queue_bytes: 250,
            mark_bytes: 99,
        };
        let mut wire = Wire::new(spec, Random::new(1));
        let arrived = |at, marked| (vec![FrameArrival { at: Instant(at), marked }], LinkOutcome::default());
        assert_eq!(transmit(&mut wire, 0, 100), arrived(150, false));
        assert_eq!(transmit(&mut wire, 0, 100), arrived(250, true));
        assert_eq!(transmit(&mut wire, 0, 100).1.lost, Some(LossCause::QueueFull));
        assert_eq!(transmit(&mut wire, 190, 100), arrived(350, false));
    }

    #[test]
    fn jitter_keeps_frame_order() {
        let spec = WireSpec { jitter: Duration::from_millis(1), ..WireSpec::default() };
        let mut wire = Wire::new(spec, Random::new(2));
        let times: Vec<_> = (0..100).map(|i| transmit(&mut wire, i, 10).0[0].at).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times[99].0 > 500_000, "{:?}", times[99]);
    }

    #[test]
    fn link_limits_change_over_time() {
        let slow = WireSpec { delay: Duration::ZERO, rate_bytes: 1_000_000, ..WireSpec::default() };
        let fast = WireSpec { rate_bytes: 1_000_000_000, ..slow };
        let mut wire = Wire::new(slow, Random::new(1)).with_changes([(Instant(50), fast), (Instant(5_000), slow)]);
        assert_eq!(transmit(&mut wire, 0, 1).0[0].at, Instant(1_000));
        assert_eq!(transmit(&mut wire, 2_000, 1).0[0].at, Instant(2_001));
        assert_eq!(transmit(&mut wire, 9_000, 1).0[0].at, Instant(10_000));
    }
}
