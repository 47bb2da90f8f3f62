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
/// Time after a probe for which other requests still avoid the server.
const PROBE: Duration = Duration::from_secs(2);

/// What a host knows.
#[derive(Debug)]
pub(super) struct HostModel {
    circuits: BTreeMap<SocketAddr, Circuit>,
    /// Loads, with their times.
    loads: BTreeMap<SocketAddr, (f64, Instant)>,
    credit: u32,
    credit_max: u32,
}

/// Circuit breaker of a server that has failed.
#[derive(Debug)]
struct Circuit {
    /// Time before which the server gets no request.
    half_open_at: Instant,
    /// Time for which it gets none.
    period: Duration,
    /// Time from which it gets more than one request.
    closes_at: Option<Instant>,
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

    /// Whether requests go to others: a server's circuit is open, or half-open after its probe.
    pub(super) fn is_avoided(&self, now: Instant, server: SocketAddr) -> bool {
        let circuit = self.circuits.get(&server);
        circuit.is_some_and(|circuit| now < circuit.half_open_at || circuit.closes_at.is_some_and(|time| now < time))
    }

    pub(super) fn record_failure(&mut self, now: Instant, server: SocketAddr) {
        let period = match self.circuits.get(&server) {
            Some(circuit) if now < circuit.half_open_at => return,
            Some(circuit) if now < circuit.closes_at.unwrap_or(circuit.half_open_at) + circuit.period => {
                (circuit.period * 2).min(PERIOD_MAX)
            }
            _ => PERIOD,
        };
        self.circuits.insert(server, Circuit { half_open_at: now + period, period, closes_at: None });
    }

    /// Circuit of a server, if it is half-open or closed.
    fn probed(&mut self, now: Instant, server: SocketAddr) -> Option<&mut Circuit> {
        self.circuits.get_mut(&server).filter(|circuit| circuit.half_open_at <= now)
    }

    pub(super) fn record_call_failure(&mut self, now: Instant, failure: &CallFailure) {
        // The caller itself may reach a server that another one did not.
        if !matches!(failure, CallFailure::Lost { .. } | CallFailure::DelegatedNowhere(_)) {
            failure.server().into_iter().for_each(|server| self.record_failure(now, server));
        }
    }

    pub(super) fn record_load(&mut self, now: Instant, server: SocketAddr, load: u32) {
        if let Some(circuit) = self.probed(now, server) {
            circuit.closes_at = Some(circuit.closes_at.unwrap_or(now).min(now));
        }
        self.loads.insert(server, (load.into(), now));
    }

    pub(super) fn record_sent(&mut self, now: Instant, server: SocketAddr) {
        if let Some(circuit) = self.probed(now, server) {
            circuit.closes_at = circuit.closes_at.or(Some(now + PROBE));
        }
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
