//! Servers that delegated requests go to: what a node learns of them, and the choice of a service's replica.
//!
//! ```text
//! failures, load reports ─▶ ServerStates ─▶ with_avoided: servers that a request names ─▶ choose: replica
//! ```

use std::hash::Hasher;
use std::net::SocketAddr;

use pathcall_wire::link::LinkSecret;
use pathcall_wire::{Instant, Mutant, mutant};

use super::caller::CallFailure;
use super::load::ServerLoads;
use super::server_health::ServerHealth;

/// Most servers that a request names as to be avoided.
pub const AVOIDED_MAX: usize = 8;

/// Replica of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceReplica<'a> {
    /// Name, by which keys find it.
    pub name: &'a str,
    /// Address of its node.
    pub address: SocketAddr,
    /// Whether it is in the zone of the node that chooses.
    pub in_zone: bool,
}

/// Loads and failures of the servers that a node sends requests to.
#[derive(Debug, Default)]
pub struct ServerStates {
    health: ServerHealth,
    loads: ServerLoads,
}

impl ServerStates {
    /// Records that a request certainly did not reach a server: requests to its services avoid it for a while.
    pub fn record_unreachable(&mut self, now: Instant, server: SocketAddr) {
        self.health.record_failure(now, server);
    }

    /// Records the failure of a call, which may have shown that a server fails.
    pub fn record_call_failure(&mut self, now: Instant, failure: &CallFailure) {
        if let CallFailure::Unconfirmed { server: Some(server), .. } | CallFailure::Unreachable(server) = failure {
            self.health.record_failure(now, *server);
        }
    }

    /// Records a load report of a server.
    pub fn record_load(&mut self, now: Instant, server: SocketAddr, load: u32) {
        self.health.record_load(now, server);
        self.loads.record(now, server, load);
    }

    /// These servers, and those that have just failed, but not more than a request can name.
    #[must_use]
    pub fn with_avoided(&self, now: Instant, avoided: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut avoided = avoided.to_vec();
        avoided.truncate(AVOIDED_MAX);
        for server in self.health.avoided(now, AVOIDED_MAX) {
            if avoided.len() < AVOIDED_MAX && !avoided.contains(&server) {
                avoided.push(server);
            }
        }
        avoided
    }

    /// Replica for a request: the one that a key prefers, or else the less loaded of two that `draw` picks, which
    /// returns a random number below its argument (RackSched §3.3). `None` without replicas.
    #[must_use]
    pub fn choose<'a>(
        &self,
        now: Instant,
        replicas: impl Iterator<Item = ServiceReplica<'a>> + Clone,
        key: Option<&[u8]>,
        avoided: &[SocketAddr],
        draw: impl FnMut(usize) -> usize,
    ) -> Option<SocketAddr> {
        let replicas = self.best_replicas(now, replicas, avoided);
        match key {
            Some(key) => replicas.iter().max_by_key(|replica| weight(replica.name, key)).map(|replica| replica.address),
            None => self.less_loaded(now, &replicas, draw),
        }
    }

    /// Records that a request is sent to a server.
    pub fn record_sent(&mut self, now: Instant, server: SocketAddr) {
        self.health.record_sent(now, server);
        self.loads.record_sent(now, server);
    }

    /// Replicas that a request may go to: of those that are not avoided, those in the zone. If all are avoided, those
    /// that are named last, or all of them: the service may have only just failed.
    fn best_replicas<'a>(
        &self,
        now: Instant,
        replicas: impl Iterator<Item = ServiceReplica<'a>> + Clone,
        avoided: &[SocketAddr],
    ) -> Vec<ServiceReplica<'a>> {
        let avoided = if mutant::on(Mutant::DelegateAvoidIgnored) { &[] } else { avoided };
        let without = |named: &[SocketAddr]| {
            let rest = replicas.clone().filter(|replica| !named.contains(&replica.address));
            rest.collect::<Vec<_>>()
        };
        let mut best = without(avoided);
        best.retain(|replica| !self.health.is_avoided(now, replica.address));
        // The servers that failed in this call are named first.
        for named in (0..=avoided.len()).rev() {
            if best.is_empty() {
                best = without(&avoided[..named]);
            }
        }
        if best.iter().any(|replica| replica.in_zone) {
            best.retain(|replica| replica.in_zone);
        }
        best
    }

    fn less_loaded(
        &self,
        now: Instant,
        replicas: &[ServiceReplica<'_>],
        mut draw: impl FnMut(usize) -> usize,
    ) -> Option<SocketAddr> {
        let one = replicas.get(draw(replicas.len().max(1)))?;
        let mut others = replicas.iter().filter(|other| other.address != one.address);
        let Some(other) = others.clone().count().checked_sub(1).and_then(|last| others.nth(draw(last + 1))) else {
            return Some(one.address);
        };
        let load = |replica: &ServiceReplica<'_>| self.loads.estimate(now, replica.address);
        Some(if load(other) < load(one) { other.address } else { one.address })
    }
}

/// Weight of a key at a node: the same on every host (highest random weight hashing).
#[must_use]
pub fn weight(name: &str, key: &[u8]) -> u64 {
    let mut hasher = LinkSecret::hasher();
    hasher.write(name.as_bytes());
    // No name contains this byte.
    hasher.write_u8(0xff);
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOW: Instant = Instant(5_000_000_000);

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn replicas(ports: std::ops::Range<u16>) -> impl Iterator<Item = ServiceReplica<'static>> + Clone {
        ports.map(|port| ServiceReplica {
            name: ["a", "b", "c", "d"][usize::from(port)],
            address: at(port),
            in_zone: false,
        })
    }

    /// Replicas that are chosen for some draw.
    fn chosen(states: &ServerStates, avoided: &[SocketAddr]) -> BTreeSet<u16> {
        let draws = (0..4).flat_map(|one| (0..3).map(move |other| [one, other]));
        let choose = |draws: [usize; 2]| {
            let mut draws = draws.into_iter();
            let draw = |below| draws.next().expect("at most two draws") % below;
            states.choose(NOW, replicas(0..4), None, avoided, draw).expect("a replica").port()
        };
        draws.map(choose).collect()
    }

    #[test]
    fn replica_is_the_less_loaded_of_two() {
        let mut states = ServerStates::default();
        assert_eq!(chosen(&states, &[]), [0, 1, 2, 3].into());
        states.record_load(NOW, at(2), 9);
        assert_eq!(chosen(&states, &[]), [0, 1, 3].into(), "any other one has a lower load");
        (0..10).for_each(|_| states.record_sent(NOW, at(0)));
        assert_eq!(chosen(&states, &[]), [1, 2, 3].into());
        assert_eq!(states.choose(NOW, replicas(0..0), None, &[], |_| 0), None);
        assert_eq!(states.choose(NOW, replicas(0..1), None, &[], |_| 0), Some(at(0)));
    }

    #[test]
    fn failed_replicas_are_chosen_last() {
        let mut states = ServerStates::default();
        states.record_call_failure(NOW, &CallFailure::Unconfirmed { server: Some(at(0)), millis: 1 });
        states.record_unreachable(NOW, at(1));
        assert_eq!(chosen(&states, &[]), [2, 3].into());
        assert_eq!(chosen(&states, &[at(2)]), [3].into());
        assert_eq!(chosen(&states, &[at(2), at(3)]), [0, 1].into(), "those failed in another call only");
        assert_eq!(states.with_avoided(NOW, &[at(3)]), [at(3), at(0), at(1)]);
        let many: Vec<_> = (0..20).map(at).collect();
        assert_eq!(states.with_avoided(NOW, &many), many[..AVOIDED_MAX]);
    }

    #[test]
    fn key_prefers_the_same_replica_until_it_is_avoided() {
        let states = ServerStates::default();
        let home = |key: u8, avoided: &[SocketAddr]| {
            states.choose(NOW, replicas(0..4), Some(&[key]), avoided, |_| unreachable!("nothing is drawn")).unwrap()
        };
        for key in 0..=255 {
            let before = home(key, &[]);
            assert_eq!(home(key, &[at(2)]) == before, before != at(2), "key {key}");
        }
    }
}
