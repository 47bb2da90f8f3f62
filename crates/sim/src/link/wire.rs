//! A link that sends frame after frame: delay, rate, a queue, congestion marks.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::{Arrival, Fate, Link, Loss};
use crate::random::Random;

/// What a link is like without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireSpec {
    /// Shortest time from one end to the other.
    pub delay: Duration,
    /// What is added to the delay at most; frames stay in order.
    pub jitter: Duration,
    /// Bytes a second.
    pub rate_bytes: u64,
    /// Bytes that may wait; more are lost.
    pub queue_bytes: u64,
    /// Bytes waiting from which on frames are marked.
    pub mark_bytes: u64,
}

impl Default for WireSpec {
    /// 10 Gb/s, 10 µs and a queue that nothing here fills.
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

/// A link that sends frame after frame, without faults.
#[derive(Debug)]
pub struct Wire {
    spec: WireSpec,
    /// What it is like from some time on, by time.
    changes: VecDeque<(Instant, WireSpec)>,
    random: Random,
    /// When the last frame that was taken has left the sender.
    idle_at: Instant,
    last_arrival: Instant,
}

impl Wire {
    /// An idle link.
    #[must_use]
    pub fn new(spec: WireSpec, random: Random) -> Self {
        Self { spec, changes: VecDeque::new(), random, idle_at: Instant(0), last_arrival: Instant(0) }
    }

    /// The same, but for changes at these times, the earliest first. What has been taken before
    /// leaves at the old rate.
    #[must_use]
    pub fn with_changes(self, changes: impl IntoIterator<Item = (Instant, WireSpec)>) -> Self {
        Self { changes: changes.into_iter().collect(), ..self }
    }

    /// Bytes that have been taken and not sent.
    fn backlog(&self, now: Instant) -> u64 {
        let nanos = u128::from(self.idle_at.0.saturating_sub(now.0));
        (nanos * u128::from(self.spec.rate_bytes) / 1_000_000_000) as u64
    }
}

impl Link for Wire {
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate {
        while let Some((_, spec)) = self.changes.front().filter(|(at, _)| *at <= now) {
            self.spec = *spec;
            self.changes.pop_front();
        }
        let (len, backlog) = (len as u64, self.backlog(now));
        if backlog.saturating_add(len) > self.spec.queue_bytes {
            return Fate { lost: Some(Loss::QueueFull), ..Fate::default() };
        }
        let sending = Duration::from_nanos(len * 1_000_000_000 / self.spec.rate_bytes.max(1));
        self.idle_at = self.idle_at.max(now) + sending;
        let travelling = self.spec.delay + self.random.up_to(self.spec.jitter);
        self.last_arrival = self.last_arrival.max(self.idle_at + travelling);
        arrivals.push(Arrival { at: self.last_arrival, marked: backlog > self.spec.mark_bytes });
        Fate::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(link: &mut impl Link, now: u64, len: usize) -> (Vec<Arrival>, Fate) {
        let mut arrivals = Vec::new();
        let fate = link.carry(Instant(now), len, &mut arrivals);
        (arrivals, fate)
    }

    #[test]
    fn a_wire_delays_marks_and_drops_by_its_queue() {
        // One byte a nanosecond.
        let spec = WireSpec {
            delay: Duration::from_nanos(50),
            jitter: Duration::ZERO,
            rate_bytes: 1_000_000_000,
            queue_bytes: 250,
            mark_bytes: 99,
        };
        let mut wire = Wire::new(spec, Random::new(1));
        let arrived = |at, marked| (vec![Arrival { at: Instant(at), marked }], Fate::default());
        assert_eq!(carry(&mut wire, 0, 100), arrived(150, false));
        assert_eq!(carry(&mut wire, 0, 100), arrived(250, true));
        assert_eq!(carry(&mut wire, 0, 100).1.lost, Some(Loss::QueueFull));
        assert_eq!(carry(&mut wire, 190, 100), arrived(350, false));
    }

    #[test]
    fn jitter_keeps_the_order() {
        let spec = WireSpec { jitter: Duration::from_millis(1), ..WireSpec::default() };
        let mut wire = Wire::new(spec, Random::new(2));
        let times: Vec<_> = (0..100).map(|i| carry(&mut wire, i, 10).0[0].at).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times[99].0 > 500_000, "{:?}", times[99]);
    }

    #[test]
    fn limits_change_with_time() {
        let slow = WireSpec { delay: Duration::ZERO, rate_bytes: 1_000_000, ..WireSpec::default() };
        let fast = WireSpec { rate_bytes: 1_000_000_000, ..slow };
        let mut wire = Wire::new(slow, Random::new(1)).with_changes([(Instant(50), fast), (Instant(5_000), slow)]);
        assert_eq!(carry(&mut wire, 0, 1).0[0].at, Instant(1_000));
        assert_eq!(carry(&mut wire, 2_000, 1).0[0].at, Instant(2_001));
        assert_eq!(carry(&mut wire, 9_000, 1).0[0].at, Instant(10_000));
    }
}
