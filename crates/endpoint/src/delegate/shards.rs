//! Shards of nodes: which one handles a call's requests, and how senders find it.
//!
//! ```text
//! caller's shard i ─ request ─▶ shard i of a server ─ request ─▶ shard i of the next one     once senders know the shards
//!         ▲ ◀───────── replies ────────┴──────────────────────────────┘
//! sender ─ request ─▶ node's address, shard 0 ─▶ the call's shard, in memory                 before that
//!        ◀── ports of the shards ── ShardNotices
//! ```
//!
//! A node of several shards has a caller and a worker in each. All messages about the requests of one call are handled
//! by the same worker, that of [`shard_of_call`], whichever shard receives them: so what this worker knows of a call is
//! all that its node knows. Repeats, aborts and records are handled as by a node of one shard.
//!
//! The rule is the same for all nodes, and a shard makes only calls that belong to shards with its index. So a call stays
//! in shards of one index, if nodes have as many shards as each other. [`PeerShards`] sends messages to the right shards
//! at once. That only saves the way between shards: a message to the wrong one is handled as well.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

pub use pathcall_wire::delegate::SHARDS_MAX;
use pathcall_wire::delegate::{ContextId, DelegateKind, ShardPorts, call_of};
use pathcall_wire::{Instant, Mutant, mutant};

use super::is_for_caller;

/// Shortest time between two notices to one node.
const NOTICE_PAUSE: Duration = Duration::from_millis(1);
/// Nodes that a sender, or a server with shards, remembers at most.
const NODES_MAX: usize = 1024;

/// Shard whose worker handles the requests of a call.
#[must_use]
pub fn shard_of_call(call: ContextId, shards: usize) -> usize {
    if shards == 1 {
        return 0;
    }
    // Calls of one caller differ in their last bits, callers in the first ones: multiplication mixes both.
    let node = call.node().bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (node ^ u64::from(call.number())).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let high = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    ((high * shards as u64) >> 32) as usize
}

/// Shard whose worker handles a message with this head; `None`: the shard that received it.
#[must_use]
pub fn shard_of_message(head: &[u8], shards: usize) -> Option<usize> {
    if shards == 1 || is_for_caller(head) {
        return None;
    }
    if DelegateKind::of(head) == Some(DelegateKind::Ping) && mutant::on(Mutant::DelegateShardIgnored) {
        return Some(0);
    }
    call_of(head).map(|call| shard_of_call(call, shards))
}

/// Notices that a server owes the nodes that do not know its shards.
#[derive(Debug, Default)]
pub struct ShardNotices(HashMap<SocketAddr, Instant>);

impl ShardNotices {
    /// Returns whether the node that has just sent a request to the wrong shard gets a notice.
    pub fn due(&mut self, now: Instant, to: SocketAddr) -> bool {
        if self.0.get(&to).is_some_and(|sent| *sent + NOTICE_PAUSE > now) {
            return false;
        }
        if self.0.len() >= NODES_MAX && !self.0.contains_key(&to) {
            // All but the last ones may get another notice.
            self.0.retain(|_, sent| *sent + NOTICE_PAUSE > now);
            if self.0.len() >= NODES_MAX {
                return false;
            }
        }
        self.0.insert(to, now);
        true
    }
}

/// Shards of the nodes that a node sends messages to, as far as it knows.
#[derive(Debug, Default)]
pub struct PeerShards {
    /// Shards of a node, by its address.
    shards: HashMap<SocketAddr, Box<[SocketAddr]>>,
    /// Node of a further shard.
    nodes: HashMap<SocketAddr, SocketAddr>,
}

impl PeerShards {
    /// Records the shards that a node names. Only the shard at the node's address may name them.
    pub fn record(&mut self, from: SocketAddr, ports: ShardPorts<'_>) {
        let is_full = self.shards.len() >= NODES_MAX && !self.shards.contains_key(&from)
            || self.nodes.len() >= NODES_MAX * SHARDS_MAX;
        if is_full || ports.ports().next() != Some(from.port()) || ports.ports().any(|port| port == 0) {
            return;
        }
        let shards: Box<[_]> = ports.ports().map(|port| SocketAddr::new(from.ip(), port)).collect();
        self.nodes.extend(shards[1..].iter().map(|shard| (*shard, from)));
        self.shards.insert(from, shards);
    }

    /// Address to which a message with this head goes: that of the right shard, if it is known.
    #[must_use]
    pub fn address(&self, to: SocketAddr, head: &[u8]) -> SocketAddr {
        if self.shards.is_empty() {
            return to;
        }
        let shards = self.shards.get(&to);
        shards.and_then(|shards| Some(shards[shard_of_message(head, shards.len())?])).unwrap_or(to)
    }

    /// Address of the node to which a shard with this address belongs.
    #[must_use]
    pub fn node(&self, shard: SocketAddr) -> SocketAddr {
        if self.nodes.is_empty() { shard } else { self.nodes.get(&shard).copied().unwrap_or(shard) }
    }

    /// Forgets the shards of a node to which a message was not delivered: it may have been started anew, with others.
    pub fn forget(&mut self, node: SocketAddr) {
        self.shards.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use pathcall_wire::delegate::{DelegateMessage, NodeId, Ping, PingSubject, Pong, ResponseGrant, ShardPorts, parse};

    use super::*;

    fn calls() -> impl Iterator<Item = ContextId> {
        (0..100).flat_map(|node| (1..=100).map(move |number| ContextId::new(NodeId::new(node), number)))
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn ping(call: ContextId) -> Ping {
        let subject = PingSubject::Request(call.request(1).inherited(0));
        Ping { call, subject, abort: true, round: 1, first: 1 }
    }

    fn record(peers: &mut PeerShards, from: SocketAddr, ports: &[u16]) {
        let ports = ports.iter().flat_map(|port| port.to_be_bytes());
        let notice: Vec<u8> = ShardPorts::encode_head().iter().copied().chain(ports).collect();
        let Ok((DelegateMessage::Shards(ports), _)) = parse(&notice) else { panic!("{notice:?}") };
        peers.record(from, ports);
    }

    #[test]
    fn calls_are_spread_evenly_over_shards() {
        for shards in [1, 2, 3, 7, SHARDS_MAX] {
            let mut counts = vec![0; shards];
            calls().for_each(|call| counts[shard_of_call(call, shards)] += 1);
            let even = 10_000 / shards;
            assert!(counts.iter().all(|count| (even / 2..=even * 2).contains(count)), "{counts:?}");
        }
        // One caller that makes every second call to this node, or begins anew for each call.
        let every_second = |n: u32| ContextId::new(NodeId::new(7), 2 * n);
        let anew = |n: u32| ContextId::new(NodeId::new(n.into()), 1);
        for of in [every_second, anew] {
            let first = (0..1000).filter(|n| shard_of_call(of(*n), 2) == 0).count();
            assert!((400..=600).contains(&first), "{first}");
        }
    }

    #[test]
    fn all_messages_to_servers_of_a_call_have_its_shard() {
        for call in calls().step_by(97) {
            let shard = Some(shard_of_call(call, 5));
            assert_eq!(shard_of_message(&ping(call).encode(), 5), shard);
            let grant = ResponseGrant { call, context: ContextId::default(), responses: 1 };
            assert_eq!(shard_of_message(&grant.encode(), 5), shard);
            assert_eq!(shard_of_message(&grant.encode(), 1), None, "there is no other");
            let Ping { subject, round, first, .. } = ping(call);
            let (flags, requests, responses, code) = (0, 0, 0, 0);
            let (context, sender) = (call, call.node());
            let pong = Pong { call, subject, round, flags, context, requests, responses, first, code, sender };
            assert_eq!(shard_of_message(&pong.encode(0), 5), None, "it is for the caller");
        }
        assert_eq!(shard_of_message(b"no", 5), None);
        assert_eq!(shard_of_message(&[0xff; 40], 5), None);
    }

    #[test]
    fn messages_go_to_the_shards_that_their_node_names() {
        let (mut peers, call) = (PeerShards::default(), ContextId::new(NodeId::new(1), 1));
        let head = ping(call).encode();
        assert_eq!(peers.address(at(1), &head), at(1), "unknown");
        record(&mut peers, at(1), &[1, 8, 9]);
        let shard = [at(1), at(8), at(9)][shard_of_call(call, 3)];
        assert_eq!(peers.address(at(1), &head), shard);
        assert_eq!(peers.address(at(2), &head), at(2), "another node");
        assert_eq!((peers.node(at(9)), peers.node(at(1)), peers.node(at(2))), (at(1), at(1), at(2)));
        peers.forget(at(1));
        assert_eq!(peers.address(at(1), &head), at(1));
        assert_eq!(peers.node(at(9)), at(1), "messages to it may still be returned");
    }

    #[test]
    fn node_cannot_name_shards_of_another_one() {
        let mut peers = PeerShards::default();
        for ports in [&[2, 1][..], &[1, 0], &[3, 1, 2]] {
            record(&mut peers, at(1), ports);
        }
        assert!(peers.shards.is_empty() && peers.nodes.is_empty());
    }

    #[test]
    fn tables_of_nodes_are_bounded() {
        let (mut peers, mut notices) = (PeerShards::default(), ShardNotices::default());
        for port in 1..=2 * NODES_MAX as u16 {
            record(&mut peers, at(port), &[port, 9]);
            notices.due(Instant(0), at(port));
        }
        assert_eq!((peers.shards.len(), notices.0.len()), (NODES_MAX, NODES_MAX));
        let later = Instant(0) + NOTICE_PAUSE;
        assert!(!notices.due(Instant(1), at(1)) && notices.due(later, at(1)) && notices.due(later, at(5000)));
    }
}
