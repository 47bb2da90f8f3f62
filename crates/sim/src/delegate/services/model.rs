//! Model of what a host knows of servers, and of the budget of its further attempts: rules of the documentation, in the
//! plainest form.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pathcall_endpoint::delegate::caller::CallFailure;
use pathcall_wire::Instant;

/// Credit of an attempt; a call adds one.
const ATTEMPT: u32 = 5;
/// Half-life of a load without news, in nanoseconds.
const HALF_LIFE_NS: f64 = 50e6;
/// Time for which a server is avoided after its first failure, and the longest such time.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(60);

/// What a host knows.
#[derive(Debug)]
pub(super) struct HostModel {
    /// End and length of the time for which each failed server is avoided.
    circuits: BTreeMap<SocketAddr, (Instant, Duration)>,
    /// Loads, with their times.
    loads: BTreeMap<SocketAddr, (f64, Instant)>,
    credit: u32,
    credit_max: u32,
}

impl HostModel {
    pub(super) fn new(burst: u32) -> Self {
        let credit = burst * ATTEMPT;
        Self { circuits: BTreeMap::new(), loads: BTreeMap::new(), credit, credit_max: credit }
    }

    pub(super) fn add_call(&mut self) {
        self.credit = self.credit_max.min(self.credit + 1);
    }

    pub(super) fn has_budget(&self) -> bool {
        self.credit >= ATTEMPT
    }

    pub(super) fn spend(&mut self) -> bool {
        let has_budget = self.has_budget();
        self.credit = self.credit.saturating_sub(ATTEMPT);
        has_budget
    }

    /// Whether a server's circuit is open: requests go to others.
    pub(super) fn is_open(&self, now: Instant, server: SocketAddr) -> bool {
        self.circuits.get(&server).is_some_and(|(until, _)| now < *until)
    }

    pub(super) fn record_failure(&mut self, now: Instant, server: SocketAddr) {
        let period = match self.circuits.get(&server) {
            Some((until, _)) if now < *until => return,
            Some((until, period)) if now < *until + *period => (*period * 2).min(PERIOD_MAX),
            _ => PERIOD,
        };
        self.circuits.insert(server, (now + period, period));
    }

    pub(super) fn record_call_failure(&mut self, now: Instant, failure: &CallFailure) {
        // The caller itself may reach a server that another one did not.
        if !matches!(failure, CallFailure::Lost { .. } | CallFailure::DelegatedNowhere(_)) {
            failure.server().into_iter().for_each(|server| self.record_failure(now, server));
        }
    }

    pub(super) fn record_load(&mut self, now: Instant, server: SocketAddr, load: u32) {
        self.loads.insert(server, (load.into(), now));
    }

    pub(super) fn record_sent(&mut self, now: Instant, server: SocketAddr) {
        let load = self.load(now, server) + 1.0;
        self.loads.insert(server, (load, now));
    }

    /// Whether all other servers have a lower load, by more than rounding.
    pub(super) fn has_highest_load(&self, now: Instant, server: SocketAddr, servers: &[SocketAddr]) -> bool {
        let load = self.load(now, server) * (1.0 - 1e-9);
        servers.iter().filter(|other| **other != server).all(|other| self.load(now, *other) < load)
    }

    fn load(&self, now: Instant, server: SocketAddr) -> f64 {
        self.loads.get(&server).map_or(0.0, |(load, at)| load * 0.5_f64.powf((now.0 - at.0) as f64 / HALF_LIFE_NS))
    }
}
