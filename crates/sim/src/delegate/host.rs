//! A host: its clock, its caller and its worker, and the handlers that run on it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{Caller, CallerConfig};
use pathcall_endpoint::delegate::worker::record::Record;
use pathcall_endpoint::delegate::worker::{Order, Work, Worker, WorkerConfig};
use pathcall_endpoint::delegate::{Context, NodeId, Outbox, Peer, RequestId};
use pathcall_wire::Instant;

use super::judge::Tag;
use super::plan::{DEPTH_MAX, Plan};

/// For how long workers remember that a call was aborted: longer than those that were not told go on before they
/// notice that nobody asks, and what they then sent on takes to come.
pub(super) const ABORTED_FOR: Duration = Duration::from_millis(350);

/// Messages that leave.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<(SocketAddr, Bytes)>);

impl Outbox for Out {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.push((to, [head, payload].concat().into()));
    }
}

/// A handler at work.
#[derive(Debug)]
pub(super) struct Handler {
    /// Which request of which call; `None`: one of no plan.
    pub(super) tag: Option<Tag>,
    pub(super) work: Work,
    /// Replies sent.
    pub(super) replies: usize,
    /// What becomes durable.
    pub(super) record: Option<Record>,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) index: usize,
    pub(super) incarnation: u32,
    pub(super) up: bool,
    rate_ppm: i64,
    pub(super) slots: usize,
    pub(super) worker: Worker,
    pub(super) caller: Caller,
    pub(super) handlers: BTreeMap<Context, Handler>,
    /// What survives the process.
    pub(super) durable: BTreeMap<(Context, RequestId), Record>,
    /// The last calls whose records were deleted.
    pub(super) deleted: Vec<Context>,
    pub(super) wake: Option<Instant>,
}

/// The address of a host.
pub(super) fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

/// The host at an address.
pub(super) fn host_at(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[..3] == [10, 0, 0] => usize::from(ip.octets()[3]).checked_sub(1),
        _ => None,
    }
}

/// Where nobody is.
pub(super) fn nowhere() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 1)
}

impl Host {
    pub(super) fn new(plan: &Plan, index: usize, incarnation: u32) -> Self {
        let (rate_ppm, slots) = plan.hosts[index];
        let node = node(index, incarnation);
        let config = WorkerConfig {
            order: if plan.oldest_first { Order::OldestCall } else { Order::Share },
            flush: plan.flush,
            depth_max: DEPTH_MAX as u8,
            aborted_for: ABORTED_FOR,
            ..WorkerConfig::new(node, address(index))
        };
        Self {
            index,
            incarnation,
            up: true,
            rate_ppm,
            slots,
            worker: Worker::new(config),
            caller: Caller::new(CallerConfig::new(node, address(index))),
            handlers: BTreeMap::new(),
            durable: BTreeMap::new(),
            deleted: Vec::new(),
            wake: None,
        }
    }

    /// As others see it.
    pub(super) fn peer(&self) -> Peer {
        Peer { node: node(self.index, self.incarnation), address: address(self.index) }
    }

    /// The time by this host's clock.
    pub(super) fn local(&self, now: Instant) -> Instant {
        let drift = i128::from(now.0) * i128::from(self.rate_ppm) / 1_000_000;
        Instant((i128::from(now.0) + drift + self.offset()) as u64)
    }

    /// When this host's clock shows a time.
    pub(super) fn global(&self, local: Instant) -> Instant {
        let elapsed = (i128::from(local.0) - self.offset()).max(0);
        Instant((elapsed * 1_000_000 / i128::from(1_000_000 + self.rate_ppm)) as u64 + 1)
    }

    fn offset(&self) -> i128 {
        (self.index as i128 + 1) * 1_000_000_000
    }
}

/// The id of a host's process: another one for each, and none that another host's could be.
fn node(index: usize, incarnation: u32) -> NodeId {
    let mixed =
        (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(incarnation).wrapping_mul(0xc2b2_ae3d);
    NodeId::new(mixed)
}

/// A tag as payload.
pub(super) fn payload(tag: Tag) -> Bytes {
    let words = [tag.call as u64, tag.request as u64, tag.reply as u64];
    words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>().into()
}

/// The tag in a payload.
pub(super) fn tag(payload: &[u8]) -> Option<Tag> {
    let word = |at: usize| payload.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes) as usize);
    (payload.len() == 24).then_some(Tag { call: word(0)?, request: word(8)?, reply: word(16)? })
}
