//! Machine of a node: clock, inbox, pauses.
//!
//! Each machine's clock has a rate and an origin of its own. A machine that is paused or slow queues datagrams in its
//! inbox; a full inbox drops them.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_wire::Instant;

use super::network::Datagram;

/// Configuration of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// Clock of the machine.
    pub clock: Clock,
    /// Capacity of the inbox in datagrams.
    pub inbox: usize,
    /// Inbox length from which an element marks congestion.
    pub mark: usize,
    /// Time to process a datagram, until the end of the faults.
    pub frame_time: Duration,
    /// Pauses: start and length.
    pub pauses: Vec<(Instant, Duration)>,
    /// Whether timers run before the inbox after a pause.
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

/// Clock with its own origin and rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Clock reading at the start of the run.
    pub origin: Instant,
    /// Nanoseconds that the clock counts in a million true ones.
    pub rate_ppm: u32,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: Instant(0), rate_ppm: 1_000_000 }
    }
}

impl Clock {
    /// Clock reading at a true time.
    #[must_use]
    pub fn local_time(&self, at: Instant) -> Instant {
        let passed = u128::from(at.0) * u128::from(self.rate_ppm) / 1_000_000;
        Instant(self.origin.0.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// First true time at which the clock reads at least `shown`.
    #[must_use]
    pub fn world_time(&self, shown: Instant) -> Instant {
        let to_pass = u128::from(shown.0.saturating_sub(self.origin.0)) * 1_000_000;
        Instant(u64::try_from(to_pass.div_ceil(u128::from(self.rate_ppm.max(1)))).unwrap_or(u64::MAX))
    }
}

/// State of a machine during a run.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) plan: HostPlan,
    /// End of the current pause, or of the processing of a datagram.
    pub(crate) busy_until: Instant,
    /// Received datagrams, in order.
    pub(crate) inbox: VecDeque<Datagram>,
    /// Whether an inbox event is scheduled.
    pub(crate) looks: bool,
    /// Time of the scheduled wake-up.
    pub(crate) alarm: Option<Instant>,
    /// Time of the last wake-up, and number of wake-ups at that time.
    pub(crate) last_wake_up: (Instant, u32),
}

impl Host {
    pub(crate) fn new(plan: HostPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Pauses the machine.
    pub(crate) fn stop(&mut self, until: Instant) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Counts a wake-up; returns the number of wake-ups at this time.
    pub(crate) fn ring(&mut self, now: Instant) -> u32 {
        self.last_wake_up = (now, if self.last_wake_up.0 == now { self.last_wake_up.1 + 1 } else { 1 });
        self.last_wake_up.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_has_reached_deadline_at_wake_up() {
        for rate_ppm in [900_000, 999_999, 1_000_000, 1_000_001, 1_100_000] {
            let clock = Clock { origin: Instant(77), rate_ppm };
            for shown in [0, 77, 78, 100, 1_000_003, 1 << 40].map(Instant) {
                let at = clock.world_time(shown);
                assert!(clock.local_time(at) >= shown, "{clock:?} {shown:?}");
                assert!(
                    at.0 == 0 || clock.local_time(Instant(at.0 - 1)) < shown,
                    "{clock:?} {shown:?}: not later than it must"
                );
            }
            assert_eq!(clock.world_time(Instant(u64::MAX)).0 == u64::MAX, rate_ppm < 1_000_000);
        }
    }
}
