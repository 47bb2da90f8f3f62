//! Link with random loss, repeats and reordering.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{FrameArrival, LinkModel, LinkOutcome, LossCause};
use crate::random::{Chance, Random};

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

/// Link with random faults until a given time.
#[derive(Debug)]
pub struct FaultyLink<L> {
    inner: L,
    faults: Faults,
    until: Instant,
    random: Random,
    /// End of the current burst of losses.
    burst_until: Instant,
}

impl<L: LinkModel> FaultyLink<L> {
    /// Wraps a link; faults happen before `until`.
    #[must_use]
    pub fn new(inner: L, faults: Faults, until: Instant, random: Random) -> Self {
        Self { inner, faults, until, random, burst_until: Instant(0) }
    }

    /// Random time up to `longest`, with a random order of magnitude.
    fn magnitude(&mut self, longest: Duration) -> Duration {
        let tenths = self.random.below(5) as u32;
        self.random.up_to(longest / 10u32.pow(tenths))
    }
}

impl<L: LinkModel> LinkModel for FaultyLink<L> {
    fn transmit(&mut self, now: Instant, len: usize, arrivals: &mut Vec<FrameArrival>) -> LinkOutcome {
        let first = arrivals.len();
        let mut outcome = self.inner.transmit(now, len, arrivals);
        if outcome.lost.is_some() || now >= self.until {
            return outcome;
        }
        if self.random.happens(self.faults.burst) {
            self.burst_until = now + self.magnitude(self.faults.burst_within);
        }
        if now < self.burst_until || self.random.happens(self.faults.loss) {
            arrivals.truncate(first);
            outcome.lost = Some(LossCause::Chance);
            return outcome;
        }
        if self.random.happens(self.faults.reorder) {
            outcome.delayed = true;
            let held_back = self.magnitude(self.faults.reorder_within);
            for arrival in &mut arrivals[first..] {
                arrival.at = arrival.at + held_back;
            }
        }
        if self.random.happens(self.faults.repeat) {
            outcome.repeated = true;
            let arrival = arrivals[first];
            let later = self.magnitude(self.faults.repeat_within);
            arrivals.push(FrameArrival { at: arrival.at + later, ..arrival });
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Wire, WireSpec};

    fn transmit(link: &mut impl LinkModel, now: u64, len: usize) -> (Vec<FrameArrival>, LinkOutcome) {
        let mut arrivals = Vec::new();
        let outcome = link.transmit(Instant(now), len, &mut arrivals);
        (arrivals, outcome)
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
        let wire = Wire::new(WireSpec::default(), Random::new(3));
        let mut link = FaultyLink::new(wire, faults, Instant(1_000_000), Random::new(4));
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
