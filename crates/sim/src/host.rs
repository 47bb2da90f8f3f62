//! A node's machine: its clock, what waits to be read, and whether it runs.
//!
//! Time passes at another rate on every machine, from another origin. A machine that pauses, or is
//! slow, lets datagrams wait; what finds no room is lost.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use crate::network::Datagram;

/// What a machine is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// Its clock.
    pub clock: Clock,
    /// Datagrams that may wait; more are lost.
    pub inbox: usize,
    /// Datagrams waiting from which on an element marks congestion.
    pub mark: usize,
    /// Time that a datagram takes it, until the faults end.
    pub frame_time: Duration,
    /// When it stops, and for how long.
    pub pauses: Vec<(Instant, Duration)>,
    /// Whether it looks at its timers before what has come in while it stood still.
    pub timers_first: bool,
}

impl Default for HostPlan {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            inbox: 100_000,
            mark: usize::MAX,
            frame_time: Duration::ZERO,
            pauses: Vec::new(),
            timers_first: false,
        }
    }
}

/// A clock that counts from an origin of its own, at a rate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// What it shows at the start.
    pub origin: Instant,
    /// Its nanoseconds in a million true ones.
    pub rate_ppm: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: Instant(0), rate_ppm: 1_000_000 }
    }
}

impl Clock {
    /// What it shows at a true time.
    #[must_use]
    pub fn shows(&self, at: Instant) -> Instant {
        let passed = u128::from(at.0) * u128::from(self.rate_ppm) / 1_000_000;
        Instant(self.origin.0.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The first true time at which it shows at least `shown`.
    #[must_use]
    pub fn reaches(&self, shown: Instant) -> Instant {
        let to_pass = u128::from(shown.0.saturating_sub(self.origin.0)) * 1_000_000;
        Instant(u64::try_from(to_pass.div_ceil(u128::from(self.rate_ppm.max(1)))).unwrap_or(u64::MAX))
    }
}

/// A machine in a run.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) plan: HostPlan,
    /// It does nothing before.
    pub(crate) busy_until: Instant,
    /// Datagrams that wait, in order.
    pub(crate) inbox: VecDeque<Datagram>,
    /// Whether it is to look at its inbox at a time.
    pub(crate) looks: bool,
    /// When it is to be woken.
    pub(crate) alarm: Option<Instant>,
    /// When it was woken last, and how often at that time.
    pub(crate) rang: (Instant, u32),
}

impl Host {
    pub(crate) fn new(plan: HostPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Has it stand still.
    pub(crate) fn stop(&mut self, until: Instant) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Counts a wake; how many there were at this time.
    pub(crate) fn ring(&mut self, now: Instant) -> u32 {
        self.rang = (now, if self.rang.0 == now { self.rang.1 + 1 } else { 1 });
        self.rang.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_on_a_clock_has_come_when_it_rings() {
        for rate_ppm in [900_000, 999_999, 1_000_000, 1_000_001, 1_100_000] {
            let clock = Clock { origin: Instant(77), rate_ppm };
            for shown in [0, 77, 78, 100, 1_000_003, 1 << 40].map(Instant) {
                let at = clock.reaches(shown);
                assert!(clock.shows(at) >= shown, "{clock:?} {shown:?}");
                assert!(
                    at.0 == 0 || clock.shows(Instant(at.0 - 1)) < shown,
                    "{clock:?} {shown:?}: not later than it must"
                );
            }
            assert_eq!(clock.reaches(Instant(u64::MAX)).0 == u64::MAX, rate_ppm < 1_000_000);
        }
    }
}
