//! One direction of a link between two nodes: arrival times of frames, losses and repeats.
//!
//! ```text
//! frame ─► outage? ─► [ queue │ rate ] ─► delay + jitter ─► loss, repeats, reordering ─► arrivals
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::node::MapNodeId;
use crate::random::{Chance, Random};

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

/// Probabilities and limits of the random faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Chance that a frame is lost.
    pub loss: Chance,
    /// Chance that a frame begins a burst of losses.
    pub burst: Chance,
    /// Limit on the length of a burst.
    pub burst_within: Duration,
    /// Chance that a frame is repeated.
    pub repeat: Chance,
    /// Limit on the delay of a repeat. Most are short; a few are close to the limit.
    pub repeat_within: Duration,
    /// Chance that a frame is held back.
    pub reorder: Chance,
    /// Limit on the time that a frame is held back.
    pub reorder_within: Duration,
    /// Chance that a copy of a frame arrives after many more frames on its link.
    pub late: Chance,
    /// Limit on their number; several windows.
    pub late_frames: u64,
    /// Chance of a hostile datagram: a damaged frame, a forged one or random bytes.
    pub hostile: Chance,
}

/// Time in which some links carry nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Sender of the links; `None`: every node.
    pub from: Option<MapNodeId>,
    /// Receiver of the links; `None`: every node.
    pub to: Option<MapNodeId>,
    /// First instant.
    pub since: Instant,
    /// First instant after it.
    pub until: Instant,
}

impl Outage {
    /// Whether the outage affects this link.
    #[must_use]
    pub fn of(&self, from: MapNodeId, to: MapNodeId) -> bool {
        self.from.is_none_or(|node| node == from) && self.to.is_none_or(|node| node == to)
    }
}

/// Arrival of a frame at the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameArrival {
    /// Time of the arrival.
    pub at: Instant,
    /// Whether the frame met a queue over the threshold (ECN).
    pub marked: bool,
}

/// Effects of a link on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkOutcome {
    /// Cause of the loss, if the frame is lost.
    pub lost: Option<LossCause>,
    /// Whether the frame arrives more than once.
    pub repeated: bool,
    /// Whether the frame was held back, so that later ones may overtake it.
    pub delayed: bool,
}

/// Cause of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Random loss.
    Chance,
    /// Full queue.
    QueueFull,
    /// Outage of the link.
    Cut,
    /// Damage: at most invalid bytes arrive in place of the frame.
    Damaged,
}

/// One direction of a link.
#[derive(Debug)]
pub struct FaultyLink {
    spec: WireSpec,
    /// Changes of the properties, by time.
    changes: VecDeque<(Instant, WireSpec)>,
    /// First instant of each outage, and the first instant after it.
    outages: Vec<(Instant, Instant)>,
    faults: Faults,
    faults_until: Instant,
    /// Randomness of the delay, and of the faults.
    jitter: Random,
    random: Random,
    /// Time at which the queue is empty.
    idle_at: Instant,
    last_arrival: Instant,
    /// End of the current burst of losses.
    burst_until: Instant,
}

impl FaultyLink {
    /// Creates an idle link without faults.
    #[must_use]
    pub fn new(spec: WireSpec, random: &mut Random) -> Self {
        Self {
            spec,
            changes: VecDeque::new(),
            outages: Vec::new(),
            faults: Faults::default(),
            faults_until: Instant(0),
            jitter: random.fork(),
            random: random.fork(),
            idle_at: Instant(0),
            last_arrival: Instant(0),
            burst_until: Instant(0),
        }
    }

    /// Adds changes of the properties, the earliest first. Queued frames keep the old rate.
    #[must_use]
    pub fn with_changes(self, changes: impl IntoIterator<Item = (Instant, WireSpec)>) -> Self {
        Self { changes: changes.into_iter().collect(), ..self }
    }

    /// Adds outages: the first instant of each, and the first instant after it.
    #[must_use]
    pub fn with_outages(self, outages: impl IntoIterator<Item = (Instant, Instant)>) -> Self {
        Self { outages: outages.into_iter().collect(), ..self }
    }

    /// Adds random faults until a given time.
    #[must_use]
    pub fn with_faults(self, faults: Faults, faults_until: Instant) -> Self {
        Self { faults, faults_until, ..self }
    }

    /// Carries a frame of `len` bytes that is sent at `now`, and appends its arrivals.
    pub fn transmit(&mut self, now: Instant, len: usize, arrivals: &mut Vec<FrameArrival>) -> LinkOutcome {
        if self.outages.iter().any(|(since, until)| (*since..*until).contains(&now)) {
            return LinkOutcome { lost: Some(LossCause::Cut), ..LinkOutcome::default() };
        }
        let Some(arrival) = self.enqueue(now, len as u64) else {
            return LinkOutcome { lost: Some(LossCause::QueueFull), ..LinkOutcome::default() };
        };
        if now < self.faults_until {
            self.inject_faults(now, arrival, arrivals)
        } else {
            arrivals.push(arrival);
            LinkOutcome::default()
        }
    }

    /// Sends a frame without faults; returns its arrival, or `None` if the queue is full.
    fn enqueue(&mut self, now: Instant, len: u64) -> Option<FrameArrival> {
        while let Some((_, spec)) = self.changes.front().filter(|(at, _)| *at <= now) {
            self.spec = *spec;
            self.changes.pop_front();
        }
        let nanos = u128::from(self.idle_at.0.saturating_sub(now.0));
        let backlog = (nanos * u128::from(self.spec.rate_bytes) / 1_000_000_000) as u64;
        if backlog.saturating_add(len) > self.spec.queue_bytes {
            return None;
        }
        let sending = Duration::from_nanos(len * 1_000_000_000 / self.spec.rate_bytes.max(1));
        self.idle_at = self.idle_at.max(now) + sending;
        let travelling = self.spec.delay + self.jitter.up_to(self.spec.jitter);
        self.last_arrival = self.last_arrival.max(self.idle_at + travelling);
        Some(FrameArrival { at: self.last_arrival, marked: backlog > self.spec.mark_bytes })
    }

    fn inject_faults(
        &mut self,
        now: Instant,
        mut arrival: FrameArrival,
        arrivals: &mut Vec<FrameArrival>,
    ) -> LinkOutcome {
        let mut outcome = LinkOutcome::default();
        if self.random.happens(self.faults.burst) {
            self.burst_until = now + self.magnitude(self.faults.burst_within);
        }
        if now < self.burst_until || self.random.happens(self.faults.loss) {
            return LinkOutcome { lost: Some(LossCause::Chance), ..outcome };
        }
        if self.random.happens(self.faults.reorder) {
            outcome.delayed = true;
            arrival.at = arrival.at + self.magnitude(self.faults.reorder_within);
        }
        arrivals.push(arrival);
        if self.random.happens(self.faults.repeat) {
            outcome.repeated = true;
            let later = self.magnitude(self.faults.repeat_within);
            arrivals.push(FrameArrival { at: arrival.at + later, ..arrival });
        }
        outcome
    }

    /// Random time up to `longest`, with a random order of magnitude.
    fn magnitude(&mut self, longest: Duration) -> Duration {
        let tenths = self.random.below(5) as u32;
        self.random.up_to(longest / 10u32.pow(tenths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(spec: WireSpec) -> FaultyLink {
        FaultyLink::new(spec, &mut Random::new(3))
    }

    fn transmit(link: &mut FaultyLink, now: u64, len: usize) -> (Vec<FrameArrival>, LinkOutcome) {
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
        let mut link = link(spec);
        let arrived = |at, marked| (vec![FrameArrival { at: Instant(at), marked }], LinkOutcome::default());
        assert_eq!(transmit(&mut link, 0, 100), arrived(150, false));
        assert_eq!(transmit(&mut link, 0, 100), arrived(250, true));
        assert_eq!(transmit(&mut link, 0, 100).1.lost, Some(LossCause::QueueFull));
        assert_eq!(transmit(&mut link, 190, 100), arrived(350, false));
    }

    #[test]
    fn jitter_keeps_frame_order() {
        let spec = WireSpec { jitter: Duration::from_millis(1), ..WireSpec::default() };
        let mut link = link(spec);
        let times: Vec<_> = (0..100).map(|i| transmit(&mut link, i, 10).0[0].at).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times[99].0 > 500_000, "{:?}", times[99]);
    }

    #[test]
    fn link_limits_change_over_time() {
        let slow = WireSpec { delay: Duration::ZERO, rate_bytes: 1_000_000, ..WireSpec::default() };
        let fast = WireSpec { rate_bytes: 1_000_000_000, ..slow };
        let mut link = link(slow).with_changes([(Instant(50), fast), (Instant(5_000), slow)]);
        assert_eq!(transmit(&mut link, 0, 1).0[0].at, Instant(1_000));
        assert_eq!(transmit(&mut link, 2_000, 1).0[0].at, Instant(2_001));
        assert_eq!(transmit(&mut link, 9_000, 1).0[0].at, Instant(10_000));
    }

    #[test]
    fn frames_are_lost_during_outage() {
        let outages = [(Instant(10), Instant(20)), (Instant(30), Instant(31))];
        let mut link = link(WireSpec::default()).with_outages(outages);
        let mut passes = |now| link.transmit(Instant(now), 1, &mut Vec::new()).lost != Some(LossCause::Cut);
        assert_eq!([9, 10, 19, 20, 30, 31].map(&mut passes), [true, false, false, true, false, true]);
    }

    #[test]
    fn outage_affects_one_direction() {
        let (caller, owner) = (MapNodeId::Caller(0, 1), MapNodeId::Owner(0));
        let outage = Outage { from: Some(caller), to: None, since: Instant(0), until: Instant(1) };
        assert!(outage.of(caller, owner) && outage.of(caller, MapNodeId::Element(0)));
        assert!(!outage.of(owner, caller));
    }

    #[test]
    fn fault_rates_match_and_faults_end() {
        let faults = Faults {
            loss: Chance::percent(10),
            repeat: Chance::percent(5),
            repeat_within: Duration::from_secs(1),
            reorder: Chance::percent(20),
            reorder_within: Duration::from_millis(1),
            ..Faults::default()
        };
        let mut link = link(WireSpec::default()).with_faults(faults, Instant(1_000_000));
        let mut count = [0; 3];
        for now in 0..100_000 {
            let (arrivals, outcome) = transmit(&mut link, now, 1);
            count[0] += usize::from(outcome.lost.is_some());
            count[1] += usize::from(outcome.repeated);
            count[2] += usize::from(outcome.delayed);
            assert_eq!(arrivals.len(), if outcome.lost.is_some() { 0 } else { 1 + usize::from(outcome.repeated) });
        }
        assert!((9_500..10_500).contains(&count[0]), "{count:?}");
        assert!((4_200..4_800).contains(&count[1]), "5 % of what is not lost: {count:?}");
        assert!((17_500..18_500).contains(&count[2]), "{count:?}");
        for now in 1_000_000..1_001_000 {
            assert_eq!(transmit(&mut link, now, 1).1, LinkOutcome::default());
        }
    }
}
