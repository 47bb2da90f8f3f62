//! What a shape costs: messages, bytes, and time on hosts that work on one message after the other.
//!
//! The thesis' latencies of one hop (8.89 µs plain, 9.53 µs delegated) and the limit of its reduction over many
//! hops (49 %) give what a message takes and what delegating adds (§6.2). The limit over many bounces (54 %) gives
//! what of a host's time it takes: there the plain client's time for four messages a bounce is what counts (§6.3).
//! Fig. 6.6 shows hosts' time itself, but its bars are not in the text that we have.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, Caller, CallerConfig, CallerEvent, Outcome};
use pathcall_endpoint::delegate::worker::{Worker, WorkerConfig};
use pathcall_endpoint::delegate::{Context, NodeId, Peer, for_caller};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::hosts::{Out, address, host_at};
use super::shapes::Node;
use super::twin::{TwinCaller, serve};

/// Bytes of every payload (§6.2).
pub const PAYLOAD: usize = 100;

/// What things take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Of a host's time, to send a message.
    pub send: u64,
    /// Of a host's time, to take one.
    pub receive: u64,
    /// Of a host's time, in the background, for each message that it has sent or taken, when it has.
    pub background: u64,
    /// On the way.
    pub wire: u64,
    /// More for each message that is delegate's, at either end.
    pub delegate: u64,
    /// More for each call, at its begin and at its end.
    pub call: u64,
}

impl Cost {
    /// What the thesis' latencies come from (§6.2, §6.3).
    pub const THESIS: Self = Self { send: 1000, receive: 1000, background: 1600, wire: 2445, delegate: 45, call: 230 };
}

/// What a shape took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Messages sent.
    pub messages: u64,
    /// Those of them that the client sent or got.
    pub at_client: u64,
    /// Replies that the client got.
    pub replies: u64,
    /// The longest request and the longest response without their payload, in bytes.
    pub heads: (usize, usize),
    /// Bytes of all messages.
    pub bytes: u64,
    /// Nanoseconds until the client has all.
    pub time: u64,
    /// Nanoseconds of the client's time, and of all servers'.
    pub busy: (u64, u64),
}

/// Hosts that work on one message after the other, and what is on its way between them.
pub(super) struct Bench {
    pub(super) cost: Cost,
    extra: u64,
    /// When each host has nothing more to do.
    pub(super) free: Vec<u64>,
    pub(super) queue: EventQueue<(usize, Peer, Bytes)>,
    pub(super) taken: Taken,
}

pub(super) fn peer(host: usize) -> Peer {
    Peer { node: NodeId::new(host as u64 + 1), address: address(host) }
}

impl Bench {
    pub(super) fn new(hosts: usize, cost: Cost, extra: u64) -> Self {
        Self { cost, extra, free: vec![0; hosts], queue: EventQueue::default(), taken: Taken::default() }
    }

    /// A host works for so long.
    pub(super) fn works(&mut self, host: usize, time: u64) {
        self.free[host] += time;
        let busy = &mut self.taken.busy;
        *(if host == 0 { &mut busy.0 } else { &mut busy.1 }) += time;
    }

    /// A host sends messages, one after the other, when it is free; before, it has `taken` one or none.
    pub(super) fn send(&mut self, from: usize, out: Out, taken: u64) {
        let mut sent = taken;
        for (to, message) in out.0 {
            let Some(to) = host_at(to) else { continue };
            self.works(from, self.cost.send + self.extra);
            self.taken.messages += 1;
            self.taken.at_client += u64::from(from == 0 || to == 0);
            self.taken.bytes += message.len() as u64;
            let head = message.len() - PAYLOAD;
            let longest = if to == 0 { &mut self.taken.heads.1 } else { &mut self.taken.heads.0 };
            *longest = head.max(*longest);
            self.queue.push(Instant(self.free[from] + self.cost.wire), (to, peer(from), message));
            sent += 1;
        }
        self.works(from, self.cost.background * sent);
    }

    /// The next message that a host has taken, and when it has.
    pub(super) fn next(&mut self) -> Option<(usize, Peer, Bytes, Instant)> {
        let (at, (host, from, message)) = self.queue.pop()?;
        self.free[host] = self.free[host].max(at.0);
        self.works(host, self.cost.receive + self.extra);
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

/// A random one of the servers for each request, the same in both ways.
struct Servers {
    random: Random,
    hosts: usize,
    chosen: BTreeMap<Vec<u8>, SocketAddr>,
}

impl Servers {
    fn new(hosts: usize, seed: u64) -> Self {
        Self { random: Random::new(seed), hosts, chosen: BTreeMap::new() }
    }

    fn of(&mut self, path: &[u8]) -> SocketAddr {
        let Self { random, hosts, chosen } = self;
        *chosen.entry(path.to_vec()).or_insert_with(|| address(1 + random.index(*hosts - 1)))
    }
}

/// One call of a shape, passed on by servers: the real caller and workers. Host 0 is the client.
///
/// # Panics
/// When the call does not complete.
#[must_use]
pub fn delegated(roots: &[Node], hosts: usize, seed: u64, cost: Cost) -> Taken {
    let mut bench = Bench::new(hosts, cost, cost.delegate);
    let mut servers = Servers::new(hosts, seed);
    let mut caller = Caller::new(CallerConfig::new(peer(0).node, peer(0).address));
    let mut workers: Vec<_> =
        (0..hosts).map(|host| Worker::new(WorkerConfig::new(peer(host).node, address(host)))).collect();
    let mut out = Out::default();
    bench.works(0, cost.call);
    let options = CallOptions::default().credit(1 << 15);
    let call = caller.open(Instant(0), options).expect("room");
    for root in 0..roots.len() {
        let path = [root as u8];
        caller.send(Instant(0), call, servers.of(&path), request(&path), &mut out).expect("an open call");
    }
    bench.send(0, out, 0);
    while let Some((host, from, message, now)) = bench.next() {
        let mut out = Out::default();
        if for_caller(&message) {
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
                    assert_eq!(outcome, Outcome::Complete);
                    bench.taken.time = done + cost.call;
                    bench.works(0, cost.call);
                }
                CallerEvent::Trace { .. } => {}
            }
        }
    }
    assert!(bench.taken.time > 0, "the call did not end");
    bench.taken
}

/// Servers send on first: that is what takes long.
fn work(worker: &mut Worker, roots: &[Node], servers: &mut Servers, now: Instant, out: &mut Out) {
    while let Some(work) = worker.next(now) {
        let way = path(&work.payload);
        let node = Node::find(roots, way).expect("a request of the shape");
        for next in 0..node.next.len() {
            let way = [way, &[next as u8]].concat();
            worker.delegate(now, work.execution, servers.of(&way), request(&way), out).expect("at work");
        }
        for _ in 0..node.replies {
            worker.reply(now, work.execution, work.payload.clone(), out).expect("at work");
        }
        worker.finish(now, work.execution, out).expect("at work");
    }
}

/// The same by plain calls: the client asks for each request of the shape when it has the answer of the one before.
///
/// # Panics
/// When a call is not answered.
#[must_use]
pub fn called(roots: &[Node], hosts: usize, seed: u64, cost: Cost) -> Taken {
    let mut bench = Bench::new(hosts, cost, 0);
    let mut servers = Servers::new(hosts, seed);
    let mut caller = TwinCaller::new(peer(0).node);
    let mut paths = BTreeMap::<Context, Vec<u8>>::new();
    let ask = |caller: &mut TwinCaller, servers: &mut Servers, way: &[u8], out: &mut Out| {
        (caller.call(servers.of(way), &request(way), out), way.to_vec())
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
            let way = paths.remove(&call).expect("a call of the shape");
            let node = Node::find(roots, &way).expect("a request of the shape");
            paths.extend(
                (0..node.next.len())
                    .map(|next| ask(&mut caller, &mut servers, &[&way[..], &[next as u8]].concat(), &mut out)),
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
