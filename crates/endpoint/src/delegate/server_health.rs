//! Circuit breakers of servers that have failed.
//!
//! A server that has not confirmed a request, or that no message reaches, is *avoided*: requests to its service go to
//! other servers.
//!
//! ```text
//! failure ─▶ open: no request for a time ─▶ half-open: one request, the probe ─┬─ no failure ─▶ closed
//!              ▲                                                               │
//!              └────────────── twice the time ◀─────────── failure ────────────┘
//! ```
//!
//! The circuit closes 2 s after the probe, twice the default time-out of requests, or with the server's next load
//! report. If the server does not fail for as long again as it was avoided, its failures are forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// Time for which a server is avoided after its first failure, and the longest such time.
const AVOID_PERIOD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time after a probe for which other requests still avoid the server.
const PROBE_TIME: Duration = Duration::from_secs(2);
/// Most servers with failures that are remembered; those whose failures are oldest are forgotten.
const SERVERS_MAX: usize = 1024;

/// Failures of servers.
#[derive(Debug, Default)]
pub(super) struct ServerHealth(HashMap<SocketAddr, FailedServer>);

#[derive(Debug, Clone, Copy)]
struct FailedServer {
    /// End of the time in which no request goes to the server.
    until: Instant,
    /// Length of that time.
    period: Duration,
    /// Time at which the circuit closes; unknown before a probe is sent.
    closes_at: Option<Instant>,
}

impl FailedServer {
    fn failed_at(&self) -> Duration {
        self.until.since(Instant(0)).saturating_sub(self.period)
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        self.closes_at.unwrap_or(self.until) + self.period <= now
    }

    /// Whether the circuit is open, or half-open with a probe under way.
    fn is_avoided(&self, now: Instant) -> bool {
        let is_probed = self.closes_at.is_some_and(|closes_at| closes_at > now);
        self.until > now || is_probed && !mutant::on(Mutant::DelegateProbesUnlimited)
    }
}

impl ServerHealth {
    /// Records that a server has failed. Failures while the circuit is open count as one: they are of requests that were
    /// sent before.
    pub(super) fn record_failure(&mut self, now: Instant, server: SocketAddr) {
        let before = self.0.get(&server).filter(|before| !before.is_forgotten(now));
        if before.is_some_and(|before| before.until > now) || mutant::on(Mutant::DelegateCircuitIgnored) {
            return;
        }
        let period = before.map_or(AVOID_PERIOD.0, |before| (before.period * 2).min(AVOID_PERIOD.1));
        if self.0.len() >= SERVERS_MAX {
            self.0.retain(|_, failed| !failed.is_forgotten(now));
        }
        if self.0.len() >= SERVERS_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, failed)| failed.until).map(|(server, _)| *server)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(server, FailedServer { until: now + period, period, closes_at: None });
    }

    /// Records that a request is sent to a server: the probe, if the circuit is half-open.
    pub(super) fn record_sent(&mut self, now: Instant, server: SocketAddr) {
        if let Some(failed) = self.0.get_mut(&server).filter(|failed| failed.until <= now) {
            failed.closes_at.get_or_insert(now + PROBE_TIME);
        }
    }

    /// Records a load report of a server, which closes a half-open circuit.
    pub(super) fn record_load(&mut self, now: Instant, server: SocketAddr) {
        if let Some(failed) = self.0.get_mut(&server).filter(|failed| failed.until <= now) {
            failed.closes_at = Some(failed.closes_at.map_or(now, |closes_at| closes_at.min(now)));
        }
    }

    /// Whether requests should go to another server.
    pub(super) fn is_avoided(&self, now: Instant, server: SocketAddr) -> bool {
        self.0.get(&server).is_some_and(|failed| failed.is_avoided(now))
    }

    /// Servers that are avoided, those that failed last first.
    pub(super) fn avoided(&self, now: Instant, most: usize) -> Vec<SocketAddr> {
        let mut avoided: Vec<_> = self.0.iter().filter(|(_, failed)| failed.is_avoided(now)).collect();
        avoided.sort_by_key(|(server, failed)| (std::cmp::Reverse(failed.failed_at()), **server));
        avoided.into_iter().take(most).map(|(server, _)| *server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(5_000_000_000);

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn server_that_fails_again_is_avoided_for_twice_as_long() {
        let (mut health, mut now) = (ServerHealth::default(), START);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            health.record_failure(now, at(1));
            health.record_failure(now, at(1));
            let period = Duration::from_secs(seconds);
            assert!(health.is_avoided(now + (period - Duration::from_millis(1)), at(1)), "{period:?}");
            now = now + period;
            assert!(!health.is_avoided(now, at(1)), "{period:?}");
        }
        health.record_sent(now, at(1));
        now = now + PROBE_TIME + Duration::from_secs(60);
        health.record_failure(now, at(1));
        assert!(!health.is_avoided(now + Duration::from_secs(1), at(1)), "its failures were forgotten");
    }

    #[test]
    fn half_open_circuit_admits_one_request() {
        let mut health = ServerHealth::default();
        health.record_failure(START, at(1));
        health.record_sent(START, at(1));
        let half_open = START + Duration::from_secs(600);
        assert!(!health.is_avoided(half_open, at(1)), "a request while the circuit was open is no probe");
        health.record_sent(half_open, at(1));
        let before_end = half_open + (PROBE_TIME - Duration::from_nanos(1));
        health.record_sent(before_end, at(1));
        assert!(health.is_avoided(half_open, at(1)) && health.is_avoided(before_end, at(1)));
        assert_eq!(health.avoided(half_open, 9), [at(1)]);
        assert!(!health.is_avoided(half_open + PROBE_TIME, at(1)), "the probe did not fail");
        health.record_failure(before_end, at(1));
        assert!(health.is_avoided(half_open + PROBE_TIME + Duration::from_millis(1_999), at(1)), "it did");
    }

    #[test]
    fn load_report_closes_half_open_circuit() {
        let mut health = ServerHealth::default();
        health.record_failure(START, at(1));
        health.record_load(START, at(1));
        assert!(health.is_avoided(START, at(1)), "a server that does not confirm requests may report loads");
        let half_open = START + Duration::from_secs(1);
        health.record_sent(half_open, at(1));
        assert!(health.is_avoided(half_open, at(1)));
        health.record_load(half_open, at(1));
        health.record_sent(half_open, at(1));
        assert!(!health.is_avoided(half_open, at(1)));
    }

    #[test]
    fn latest_failures_are_remembered_and_listed_first() {
        let (mut health, now) = (ServerHealth::default(), START);
        let after = |port: u16| now + Duration::from_micros(port.into());
        let ports = 1..=2 * SERVERS_MAX as u16;
        ports.clone().for_each(|port| health.record_failure(after(port), at(port)));
        assert_eq!(health.0.len(), SERVERS_MAX);
        assert!(!health.is_avoided(now, at(1)) && health.is_avoided(now, at(*ports.end())));
        assert_eq!(health.avoided(now, 2), [at(*ports.end()), at(ports.end() - 1)]);
    }
}
