//! One direction of a link between two nodes: when, how often and whether a frame arrives.
//!
//! ```text
//! frame ─► [ queue │ rate ] ─► delay + jitter ─► loss, repeats, reordering ─► arrivals
//!            a [`Wire`]                             a [`Faulty`] around it
//! ```

use std::time::Duration;

use pathcall_wire::Instant;

use crate::random::{Chance, Random};

/// A frame arriving at the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Whether it met a queue over the threshold (ECN).
    pub marked: bool,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fate {
    /// It does not arrive.
    pub lost: Option<Loss>,
    /// It arrives more than once.
    pub repeated: bool,
    /// It was held back, so that later ones may overtake it.
    pub delayed: bool,
}

/// Why a frame does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// By chance.
    Chance,
    /// The queue was full.
    QueueFull,
}

/// One direction of a link. Faults of any kind are implementations of this.
pub trait Link {
    /// Takes a frame of `len` bytes that is sent at `now` and adds its arrivals.
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate;
}

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
    random: Random,
    /// When the last frame that was taken has left the sender.
    idle_at: Instant,
    last_arrival: Instant,
}

impl Wire {
    /// An idle link.
    #[must_use]
    pub fn new(spec: WireSpec, random: Random) -> Self {
        Self { spec, random, idle_at: Instant(0), last_arrival: Instant(0) }
    }

    /// Bytes that have been taken and not sent.
    fn backlog(&self, now: Instant) -> u64 {
        let nanos = u128::from(self.idle_at.0.saturating_sub(now.0));
        (nanos * u128::from(self.spec.rate_bytes) / 1_000_000_000) as u64
    }
}

impl Link for Wire {
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate {
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

/// How often things go wrong, and how badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A frame is lost.
    pub loss: Chance,
    /// A frame arrives again.
    pub repeat: Chance,
    /// How much later it arrives again at most. Most come soon; a few after almost all of it.
    pub repeat_within: Duration,
    /// A frame is held back.
    pub reorder: Chance,
    /// For how long at most.
    pub reorder_within: Duration,
}

/// A link on which things go wrong until a time.
#[derive(Debug)]
pub struct Faulty<L> {
    inner: L,
    faults: Faults,
    until: Instant,
    random: Random,
}

impl<L: Link> Faulty<L> {
    /// `inner`, with faults before `until`.
    #[must_use]
    pub fn new(inner: L, faults: Faults, until: Instant, random: Random) -> Self {
        Self { inner, faults, until, random }
    }

    /// Some time up to `longest`, of a magnitude chosen first: short ones and long ones alike.
    fn magnitude(&mut self, longest: Duration) -> Duration {
        let tenths = self.random.below(5) as u32;
        self.random.up_to(longest / 10u32.pow(tenths))
    }
}

impl<L: Link> Link for Faulty<L> {
    fn carry(&mut self, now: Instant, len: usize, arrivals: &mut Vec<Arrival>) -> Fate {
        let first = arrivals.len();
        let mut fate = self.inner.carry(now, len, arrivals);
        if fate.lost.is_some() || now >= self.until {
            return fate;
        }
        if self.random.happens(self.faults.loss) {
            arrivals.truncate(first);
            fate.lost = Some(Loss::Chance);
            return fate;
        }
        if self.random.happens(self.faults.reorder) {
            fate.delayed = true;
            let held_back = self.magnitude(self.faults.reorder_within);
            for arrival in &mut arrivals[first..] {
                arrival.at = arrival.at + held_back;
            }
        }
        if self.random.happens(self.faults.repeat) {
            fate.repeated = true;
            let arrival = arrivals[first];
            let later = self.magnitude(self.faults.repeat_within);
            arrivals.push(Arrival { at: arrival.at + later, ..arrival });
        }
        fate
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
    fn faults_happen_about_as_often_as_asked_and_stop() {
        let faults = Faults {
            loss: Chance::percent(10),
            repeat: Chance::percent(5),
            repeat_within: Duration::from_secs(1),
            reorder: Chance::percent(20),
            reorder_within: Duration::from_millis(1),
        };
        let wire = Wire::new(WireSpec::default(), Random::new(3));
        let mut link = Faulty::new(wire, faults, Instant(1_000_000), Random::new(4));
        let mut count = [0; 3];
        for now in 0..100_000 {
            let (arrivals, fate) = carry(&mut link, now, 1);
            count[0] += usize::from(fate.lost.is_some());
            count[1] += usize::from(fate.repeated);
            count[2] += usize::from(fate.delayed);
            assert_eq!(arrivals.len(), if fate.lost.is_some() { 0 } else { 1 + usize::from(fate.repeated) });
        }
        assert!((9_500..10_500).contains(&count[0]), "{count:?}");
        assert!((4_200..4_800).contains(&count[1]), "5 % of what is not lost: {count:?}");
        assert!((17_500..18_500).contains(&count[2]), "{count:?}");
        for now in 1_000_000..1_001_000 {
            assert_eq!(carry(&mut link, now, 1).1, Fate::default());
        }
    }
}
