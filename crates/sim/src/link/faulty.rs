//! Loss, repeats and reordering by chance.

use std::time::Duration;

use pathcall_wire::Instant;

use super::{Arrival, Fate, Link, Loss};
use crate::random::{Chance, Random};

/// How often things go wrong, and how badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A frame is lost.
    pub loss: Chance,
    /// A frame is lost, and all that follow it for some time.
    pub burst: Chance,
    /// For how long at most.
    pub burst_within: Duration,
    /// A frame arrives again.
    pub repeat: Chance,
    /// How much later it arrives again at most. Most come soon; a few after almost all of it.
    pub repeat_within: Duration,
    /// A frame is held back.
    pub reorder: Chance,
    /// For how long at most.
    pub reorder_within: Duration,
    /// A frame arrives again once many more have passed on its link.
    pub late: Chance,
    /// How many at most: several windows.
    pub late_frames: u64,
    /// Something else arrives: a damaged frame, a forged copy or junk.
    pub hostile: Chance,
}

/// A link on which things go wrong until a time.
#[derive(Debug)]
pub struct Faulty<L> {
    inner: L,
    faults: Faults,
    until: Instant,
    random: Random,
    /// Nothing passes before it.
    burst_until: Instant,
}

impl<L: Link> Faulty<L> {
    /// `inner`, with faults before `until`.
    #[must_use]
    pub fn new(inner: L, faults: Faults, until: Instant, random: Random) -> Self {
        Self { inner, faults, until, random, burst_until: Instant(0) }
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
        if self.random.happens(self.faults.burst) {
            self.burst_until = now + self.magnitude(self.faults.burst_within);
        }
        if now < self.burst_until || self.random.happens(self.faults.loss) {
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
    use crate::link::{Wire, WireSpec};

    fn carry(link: &mut impl Link, now: u64, len: usize) -> (Vec<Arrival>, Fate) {
        let mut arrivals = Vec::new();
        let fate = link.carry(Instant(now), len, &mut arrivals);
        (arrivals, fate)
    }

    #[test]
    fn faults_happen_about_as_often_as_asked_and_stop() {
        let faults = Faults {
            loss: Chance::percent(10),
            repeat: Chance::percent(5),
            repeat_within: Duration::from_secs(1),
            reorder: Chance::percent(20),
            reorder_within: Duration::from_millis(1),
            ..Faults::default()
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
