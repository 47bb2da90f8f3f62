//! Circuit breakers of servers that have failed.
//!
//! A server that has not confirmed a request, or that no message reaches, is *avoided* for a time, in which requests to
//! its service go to other servers. The time doubles with each further failure. After it, requests go to the server
//! again; if it does not fail within as long, its failures are forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_wire::{Instant, Mutant, mutant};

/// Time for which a server is avoided after its first failure, and the longest such time.
const AVOID_PERIOD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Most servers with failures that are remembered; those whose failures are oldest are forgotten.
const SERVERS_MAX: usize = 1024;

/// Failures of servers.
#[derive(Debug, Default)]
pub(super) struct ServerHealth(HashMap<SocketAddr, FailedServer>);

#[derive(Debug, Clone, Copy)]
struct FailedServer {
    /// End of the time in which the server is avoided.
    until: Instant,
    /// Length of that time.
    period: Duration,
}

impl FailedServer {
    fn is_forgotten(&self, now: Instant) -> bool {
        self.until + self.period <= now
    }
}

impl ServerHealth {
    /// Records that a server has failed. Failures while the server is avoided count as one: they are of requests that
    /// were sent before.
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
        self.0.insert(server, FailedServer { until: now + period, period });
    }

    /// Whether requests should go to another server.
    pub(super) fn is_avoided(&self, now: Instant, server: SocketAddr) -> bool {
        self.0.get(&server).is_some_and(|failed| failed.until > now)
    }

    /// Servers that are avoided, those that failed last first.
    pub(super) fn avoided(&self, now: Instant, most: usize) -> Vec<SocketAddr> {
        let mut avoided: Vec<_> = self.0.iter().filter(|(_, failed)| failed.until > now).collect();
        avoided.sort_by_key(|(server, failed)| {
            (std::cmp::Reverse(failed.until.since(Instant(0)).saturating_sub(failed.period)), **server)
        });
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
        now = now + Duration::from_secs(60);
        health.record_failure(now, at(1));
        assert!(!health.is_avoided(now + Duration::from_secs(1), at(1)), "its failures were forgotten");
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
