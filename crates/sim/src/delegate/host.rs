//! Host of the delegate simulation: clock, callers, workers and running handlers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::attempts::RetryBudget;
use pathcall_endpoint::delegate::load::LoadReports;
use pathcall_endpoint::delegate::servers::ServerStates;
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{DelegateWorkerConfig, DelegatedRequest, RequestOrder};
use pathcall_endpoint::delegate::{ContextId, MessageOutbox, NodeId, PeerNode, RequestId};
use pathcall_wire::Instant;

use super::checker::MessageTag;
use super::plan::{DEPTH_MAX, DelegatePlan};
use super::shards::{ShardedCaller, ShardedWorker};

/// Time for which workers remember an aborted call. It must exceed the time in which a server that missed the abort
/// notices that the caller no longer asks, and the travel time of the requests that it then sent on.
pub(super) const ABORTED_FOR: Duration = Duration::from_millis(350);

/// Length of the tag in a payload.
const TAG_LEN: usize = 24;

/// Outbox that collects the messages of a host.
#[derive(Debug, Default)]
pub(super) struct OutgoingMessages {
    /// Shard that sends the next messages.
    pub(super) shard: usize,
    /// Messages, with the shards that send them.
    pub(super) messages: Vec<(usize, SocketAddr, Bytes)>,
}

impl MessageOutbox for OutgoingMessages {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.messages.push((self.shard, to, [head, payload].concat().into()));
    }
}

/// Running handler.
#[derive(Debug)]
pub(super) struct RunningHandler {
    /// Call and request that the handler runs; `None`: a request of no plan.
    pub(super) tag: Option<MessageTag>,
    pub(super) work: DelegatedRequest,
    /// Number of replies sent.
    pub(super) replies: usize,
    /// Record that becomes durable.
    pub(super) record: Option<RequestRecord>,
    /// Servers that the request names as to be avoided.
    pub(super) avoided: Vec<SocketAddr>,
}

/// A host.
#[derive(Debug)]
pub(super) struct DelegateHost {
    pub(super) index: usize,
    pub(super) incarnation: u32,
    pub(super) up: bool,
    rate_ppm: i64,
    pub(super) slots: usize,
    pub(super) worker: ShardedWorker,
    pub(super) caller: ShardedCaller,
    pub(super) handlers: BTreeMap<ContextId, RunningHandler>,
    /// Records that survive the process.
    pub(super) durable: BTreeMap<(ContextId, RequestId), RequestRecord>,
    /// Calls whose records were deleted.
    pub(super) deleted: Vec<ContextId>,
    pub(super) wake: Option<Instant>,
    /// What it knows of services' replicas, and what they know of it.
    pub(super) servers: ServerStates,
    pub(super) load_reports: LoadReports,
    pub(super) retries: Arc<RetryBudget>,
}

/// Address of a host, and of its first shard.
pub(super) fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

/// Host with this address.
pub(super) fn host_at(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[..3] == [10, 0, 0] => usize::from(ip.octets()[3]).checked_sub(1),
        _ => None,
    }
}

/// Address without a host.
pub(super) fn nowhere() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 1)
}

impl DelegateHost {
    pub(super) fn new(plan: &DelegatePlan, index: usize, incarnation: u32) -> Self {
        let (rate_ppm, slots) = plan.hosts[index];
        let peers: Vec<_> =
            (0..plan.shards(index, incarnation)).map(|shard| peer((index, incarnation), shard)).collect();
        let config = DelegateWorkerConfig {
            order: if plan.oldest_first { RequestOrder::OldestCall } else { RequestOrder::FairShare },
            flush: plan.flush,
            depth_max: DEPTH_MAX as u8,
            aborted_for: ABORTED_FOR,
            ..DelegateWorkerConfig::new(peers[0].node, peers[0].address)
        };
        Self {
            index,
            incarnation,
            up: true,
            rate_ppm,
            slots,
            worker: ShardedWorker::new(&peers, config),
            caller: ShardedCaller::new(&peers),
            handlers: BTreeMap::new(),
            durable: BTreeMap::new(),
            deleted: Vec::new(),
            wake: None,
            servers: ServerStates::default(),
            load_reports: LoadReports::default(),
            retries: Arc::new(RetryBudget::new(plan.services.as_ref().map_or(0, |services| services.burst))),
        }
    }

    /// Peer identity of a shard of the host.
    pub(super) fn peer(&self, shard: usize) -> PeerNode {
        peer((self.index, self.incarnation), shard)
    }

    /// Time on this host's clock.
    pub(super) fn local(&self, now: Instant) -> Instant {
        let drift = i128::from(now.0) * i128::from(self.rate_ppm) / 1_000_000;
        Instant((i128::from(now.0) + drift + self.offset()) as u64)
    }

    /// True time at which this host's clock shows `local`.
    pub(super) fn global(&self, local: Instant) -> Instant {
        let elapsed = (i128::from(local.0) - self.offset()).max(0);
        Instant((elapsed * 1_000_000 / i128::from(1_000_000 + self.rate_ppm)) as u64 + 1)
    }

    fn offset(&self) -> i128 {
        (self.index as i128 + 1) * 1_000_000_000
    }
}

/// Peer identity of a shard of a host's process; its id is unique for each host, incarnation and shard.
fn peer((index, incarnation): (usize, u32), shard: usize) -> PeerNode {
    let mixed =
        (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(incarnation).wrapping_mul(0xc2b2_ae3d);
    // In each byte, so that no forgery of one bit makes the id of another shard.
    let node = NodeId::new(mixed ^ (shard as u64 * 0x0101_0101_0101));
    let first = address(index);
    PeerNode { node, address: SocketAddr::new(first.ip(), first.port() + shard as u16) }
}

/// Encodes a tag as payload.
pub(super) fn payload(tag: MessageTag) -> Bytes {
    let words = [tag.call as u64, tag.request as u64, tag.reply as u64];
    words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>().into()
}

/// Decodes the tag of a payload.
pub(super) fn tag(payload: &[u8]) -> Option<MessageTag> {
    let word = |at: usize| payload.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes) as usize);
    Some(MessageTag { call: word(0)?, request: word(8)?, reply: word(16)? })
}

/// Encodes a request: its tag, and the servers that further requests should avoid.
pub(super) fn request_payload(tag: MessageTag, avoided: &[SocketAddr]) -> Bytes {
    let mut bytes = payload(tag).to_vec();
    for address in avoided {
        let IpAddr::V4(ip) = address.ip() else { continue };
        bytes.extend(ip.octets());
        bytes.extend(address.port().to_be_bytes());
    }
    bytes.into()
}

/// Decodes the servers that a request names as to be avoided.
pub(super) fn avoided(payload: &[u8]) -> Vec<SocketAddr> {
    let (addresses, _) = payload.get(TAG_LEN..).unwrap_or_default().as_chunks::<6>();
    let decode = |[a, b, c, d, high, low]: &[u8; 6]| {
        SocketAddrV4::new(Ipv4Addr::new(*a, *b, *c, *d), u16::from_be_bytes([*high, *low])).into()
    };
    addresses.iter().map(decode).collect()
}
