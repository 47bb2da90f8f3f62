//! Cost model of a delegated call: messages, bytes, and time on hosts that process one message after the other.
//!
//! The thesis' latencies of one hop (8.89 µs plain, 9.53 µs delegated) and the limit of its reduction over many hops
//! (49 %)
//! give the time of a message and the extra time of delegation (§6.2). The limit over many bounces (54 %) gives the
//! share of host time: there the plain client's time for four messages per bounce dominates (§6.3). Fig. 6.6 shows the
//! hosts' time itself, but the text of the thesis does not give the values of its bars.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{
    CallOptions, CallOutcome, CallerEvent, DelegateCaller, DelegateCallerConfig,
};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig};
use pathcall_endpoint::delegate::{ContextId, NodeId, PeerNode, is_for_caller};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::baseline::{BaselineCaller, serve};
use super::hosts::{Out, address, host_at};
use super::shapes::RequestNode;

/// Bytes of every payload (§6.2).
pub const PAYLOAD: usize = 100;

/// Costs of one message and of one call, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Host time to send a message.
    pub send: u64,
    /// Host time to receive a message.
    pub receive: u64,
    /// Background host time per message sent or received.
    pub background: u64,
    /// Time on the wire.
    pub wire: u64,
    /// Extra time per delegated message, at either end.
    pub delegate: u64,
    /// Extra time per call, at its start and at its end.
    pub call: u64,
}

impl Cost {
    /// Costs derived from the thesis' latencies (§6.2, §6.3).
    pub const THESIS: Self = Self { send: 1000, receive: 1000, background: 1600, wire: 2445, delegate: 45, call: 230 };
}

/// Measured cost of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShapeCost {
    /// Messages sent.
    pub messages: u64,
    /// Messages that the client sent or received.
    pub at_client: u64,
    /// Replies that the client received.
    pub replies: u64,
    /// Bytes of the longest request and the longest response, without payload.
    pub heads: (usize, usize),
    /// Bytes of all messages.
    pub bytes: u64,
    /// Nanoseconds until the client has all replies.
    pub time: u64,
    /// Busy nanoseconds of the client, and of all servers.
    pub busy: (u64, u64),
}

/// Hosts that process one message after the other, and the messages between them.
pub(super) struct SerialHosts {
    pub(super) cost: Cost,
    extra: u64,
    /// Time at which each host becomes idle.
    pub(super) free: Vec<u64>,
    pub(super) queue: EventQueue<(usize, PeerNode, Bytes)>,
    pub(super) taken: ShapeCost,
}

pub(super) fn peer(host: usize) -> PeerNode {
    PeerNode { node: NodeId::new(host as u64 + 1), address: address(host) }
}

impl SerialHosts {
    pub(super) fn new(hosts: usize, cost: Cost, extra: u64) -> Self {
        Self { cost, extra, free: vec![0; hosts], queue: EventQueue::default(), taken: ShapeCost::default() }
    }

    /// Adds `time` to the work of a host.
    pub(super) fn add_work(&mut self, host: usize, time: u64) {
        self.free[host] += time;
        let busy = &mut self.taken.busy;
        *(if host == 0 { &mut busy.0 } else { &mut busy.1 }) += time;
    }

    /// Sends messages of a host, one after the other, once the host is idle and has processed `taken` received messages
    /// (0 or 1).
    pub(super) fn send(&mut self, from: usize, out: Out, taken: u64) {
        let mut sent = taken;
        for (to, message) in out.0 {
            let Some(to) = host_at(to) else { continue };
            self.add_work(from, self.cost.send + self.extra);
            self.taken.messages += 1;
            self.taken.at_client += u64::from(from == 0 || to == 0);
            self.taken.bytes += message.len() as u64;
            let head = message.len() - PAYLOAD;
            let longest = if to == 0 { &mut self.taken.heads.1 } else { &mut self.taken.heads.0 };
            *longest = head.max(*longest);
            self.queue.push(Instant(self.free[from] + self.cost.wire), (to, peer(from), message));
            sent += 1;
        }
        self.add_work(from, self.cost.background * sent);
    }

    /// Next message that a host has processed, with its time.
    pub(super) fn next(&mut self) -> Option<(usize, PeerNode, Bytes, Instant)> {
        let (at, (host, from, message)) = self.queue.pop()?;
        self.free[host] = self.free[host].max(at.0);
        self.add_work(host, self.cost.receive + self.extra);
        Some((host, from, message, Instant(self.free[host])))
    }
}

fn request(path: &[u8]) -> Bytes {
    let mut payload = vec![0; PAYLOAD];
    payload[0] = path.len() as u8;
    payload[1..=path.len()].copy_from_slice(path);
    payload.into()
}

fn path(payload: &[u8]) -> &[u8] {
    payload.split_first().and_then(|(len, rest)| rest.get(..usize::from(*len))).unwrap_or_default()
}

/// Random server of each request, the same for delegated and plain calls.
struct RandomServers {
    random: Random,
    hosts: usize,
    chosen: BTreeMap<Vec<u8>, SocketAddr>,
}

impl RandomServers {
    fn new(hosts: usize, seed: u64) -> Self {
        Self { random: Random::new(seed), hosts, chosen: BTreeMap::new() }
    }

    fn of(&mut self, path: &[u8]) -> SocketAddr {
        let Self { random, hosts, chosen } = self;
        *chosen.entry(path.to_vec()).or_insert_with(|| address(1 + random.index(*hosts - 1)))
    }
}

/// Delegated call of a shape with the real caller and workers. Host 0 is the client.
///
/// # Panics
/// Panics if the call does not complete.
#[must_use]
pub fn delegated(roots: &[RequestNode], hosts: usize, seed: u64, cost: Cost) -> ShapeCost {
    let mut bench = SerialHosts::new(hosts, cost, cost.delegate);
    let mut servers = RandomServers::new(hosts, seed);
    let mut caller = DelegateCaller::new(DelegateCallerConfig::new(peer(0).node, peer(0).address));
    let mut workers: Vec<_> =
        (0..hosts).map(|host| DelegateWorker::new(DelegateWorkerConfig::new(peer(host).node, address(host)))).collect();
    let mut out = Out::default();
    bench.add_work(0, cost.call);
    let options = CallOptions::default().credit(1 << 15);
    let call = caller.open(Instant(0), options).expect("room");
    for root in 0..roots.len() {
        let path = [root as u8];
        caller.send(Instant(0), call, servers.of(&path), request(&path), &mut out).expect("an open call");
    }
    bench.send(0, out, 0);
    while let Some((host, from, message, now)) = bench.next() {
        let mut out = Out::default();
        if is_for_caller(&message) {
            caller.handle(now, from, &message, &mut out);
        } else {
            workers[host].handle(now, from, &message, &mut out);
            work(&mut workers[host], roots, &mut servers, now, &mut out);
        }
        let done = bench.free[0];
        bench.send(host, out, 1);
        while let Some(event) = caller.next_event() {
            match event {
                CallerEvent::Reply { .. } => bench.taken.replies += 1,
                CallerEvent::Ended { outcome, .. } => {
                    assert_eq!(outcome, CallOutcome::Complete);
                    bench.taken.time = done + cost.call;
                    bench.add_work(0, cost.call);
                }
                CallerEvent::Trace { .. } => {}
            }
        }
    }
    assert!(bench.taken.time > 0, "the call did not complete");
    bench.taken
}

/// Runs the executions of a worker. Servers delegate before they reply, because delegation is on the critical path.
fn work(worker: &mut DelegateWorker, roots: &[RequestNode], servers: &mut RandomServers, now: Instant, out: &mut Out) {
    while let Some(work) = worker.next(now) {
        let tree_path = path(&work.payload);
        let node = RequestNode::find(roots, tree_path).expect("a request of the shape");
        for next in 0..node.next.len() {
            let tree_path = [tree_path, &[next as u8]].concat();
            worker.delegate(now, work.execution, servers.of(&tree_path), request(&tree_path), out).expect("at work");
        }
        for _ in 0..node.replies {
            worker.reply(now, work.execution, work.payload.clone(), out).expect("at work");
        }
        worker.finish(now, work.execution, out).expect("at work");
    }
}

/// Plain calls of the same shape: after each answer, the client makes the calls that follow from it.
///
/// # Panics
/// Panics if a call is not answered.
#[must_use]
pub fn called(roots: &[RequestNode], hosts: usize, seed: u64, cost: Cost) -> ShapeCost {
    let mut bench = SerialHosts::new(hosts, cost, 0);
    let mut servers = RandomServers::new(hosts, seed);
    let mut caller = BaselineCaller::new(peer(0).node);
    let mut paths = BTreeMap::<ContextId, Vec<u8>>::new();
    let ask = |caller: &mut BaselineCaller, servers: &mut RandomServers, tree_path: &[u8], out: &mut Out| {
        (caller.call(servers.of(tree_path), &request(tree_path), out), tree_path.to_vec())
    };
    let mut out = Out::default();
    paths.extend((0..roots.len()).map(|root| ask(&mut caller, &mut servers, &[root as u8], &mut out)));
    bench.send(0, out, 0);
    while let Some((host, from, message, _)) = bench.next() {
        let mut out = Out::default();
        if host != 0 {
            serve(from, &message, |request| request, &mut out);
        } else if let Some((call, _)) = caller.handle(&message) {
            bench.taken.replies += 1;
            let tree_path = paths.remove(&call).expect("a call of the shape");
            let node = RequestNode::find(roots, &tree_path).expect("a request of the shape");
            paths.extend(
                (0..node.next.len())
                    .map(|next| ask(&mut caller, &mut servers, &[&tree_path[..], &[next as u8]].concat(), &mut out)),
            );
            if caller.is_idle() {
                bench.taken.time = bench.free[0];
            }
        }
        bench.send(host, out, 1);
    }
    assert!(caller.is_idle(), "a call was not answered");
    bench.taken
}
