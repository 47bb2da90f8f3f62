//! Many calls of a shape at once, as they come: latency over load (DPC Fig. 6.7).
//!
//! Every host is a client and a server; calls begin at random ones, at random times (a Poisson process), whether
//! or not those before have ended. A host works on one message after the other, as in [`cost`](super::cost).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, Caller, CallerConfig, CallerEvent, Outcome};
use pathcall_endpoint::delegate::worker::{Worker, WorkerConfig};
use pathcall_endpoint::delegate::{Context, for_caller};
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::cost::{Bench, Cost, PAYLOAD, peer};
use super::hosts::{Out, address};
use super::shapes::Node;
use super::twin::{TwinCaller, serve};

/// Calls as they come.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Machines, each a client and a server.
    pub hosts: usize,
    /// Calls, all machines' together.
    pub calls: usize,
    /// Calls a second.
    pub rate: f64,
    /// What chance is drawn from.
    pub seed: u64,
    /// What things take.
    pub cost: Cost,
}

/// What came of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Calls completed a second, from the first's begin to the last's end.
    pub rate: f64,
    /// Nanoseconds that each call took from when it was to begin, the shortest first.
    pub took: Vec<u64>,
}

impl Loaded {
    /// The median, in nanoseconds.
    #[must_use]
    pub fn median(&self) -> u64 {
        self.took.get(self.took.len() / 2).copied().unwrap_or_default()
    }
}

/// A call's begin: when, and at which host.
type Start = (u64, usize);

/// Calls that have begun, and those that will.
struct Calls {
    starts: Vec<Start>,
    next: usize,
    ends: Vec<u64>,
    seed: u64,
    hosts: usize,
}

impl Calls {
    fn draw(load: &Load) -> Self {
        let mut random = Random::new(load.seed);
        let mut at = 0.0;
        let mut start = |_| {
            // Between two calls of a Poisson process there is an exponential time.
            let unit = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
            at -= unit.ln() / load.rate * 1e9;
            (at as u64, random.index(load.hosts))
        };
        let starts = (0..load.calls).map(&mut start).collect();
        Self { starts, next: 0, ends: vec![0; load.calls], seed: load.seed, hosts: load.hosts }
    }

    /// The next call, if it begins before the next message comes.
    fn begins(&mut self, message: Option<Instant>) -> Option<(usize, Start)> {
        let start = *self.starts.get(self.next)?;
        let first = message.is_none_or(|message| start.0 <= message.0);
        first.then(|| {
            self.next += 1;
            (self.next - 1, start)
        })
    }

    /// A random server for each request, but for its call's client; the same in both ways.
    fn server(&self, call: usize, path: &[u8]) -> SocketAddr {
        let mut hasher = DefaultHasher::new();
        (self.seed, call, path).hash(&mut hasher);
        let other = 1 + hasher.finish() as usize % (self.hosts - 1);
        address((self.starts[call].1 + other) % self.hosts)
    }

    fn loaded(self) -> Loaded {
        let took = self.starts.iter().zip(&self.ends).map(|(start, end)| end.checked_sub(start.0).expect("it ended"));
        let mut took: Vec<u64> = took.collect();
        took.sort_unstable();
        let last = self.ends.iter().max().copied().unwrap_or_default();
        let first = self.starts.first().map_or(0, |start| start.0);
        Loaded { rate: self.starts.len() as f64 / ((last - first) as f64 / 1e9), took }
    }
}

/// A request: which call it is of, and its way from the root.
fn request(call: usize, path: &[u8]) -> Bytes {
    let mut payload = vec![0; PAYLOAD];
    payload[..4].copy_from_slice(&(call as u32).to_be_bytes());
    payload[4] = path.len() as u8;
    payload[5..][..path.len()].copy_from_slice(path);
    payload.into()
}

fn read(payload: &[u8]) -> (usize, &[u8]) {
    let (call, rest) = payload.split_first_chunk().expect("a request of ours");
    (u32::from_be_bytes(*call) as usize, &rest[1..][..usize::from(rest[0])])
}

/// Passed on by servers: real callers and workers.
///
/// # Panics
/// When a call does not complete.
#[must_use]
pub fn delegated(roots: &[Node], load: &Load) -> Loaded {
    let Load { hosts, cost, .. } = *load;
    let mut calls = Calls::draw(load);
    let mut bench = Bench::new(hosts, cost, cost.delegate);
    let mut callers: Vec<_> =
        (0..hosts).map(|host| Caller::new(CallerConfig::new(peer(host).node, address(host)))).collect();
    let mut workers: Vec<_> =
        (0..hosts).map(|host| Worker::new(WorkerConfig::new(peer(host).node, address(host)))).collect();
    let mut open = HashMap::<Context, usize>::new();
    loop {
        let mut out = Out::default();
        if let Some((call, (at, host))) = calls.begins(bench.queue.next_at()) {
            bench.free[host] = bench.free[host].max(at);
            bench.works(host, cost.call);
            let now = Instant(bench.free[host]);
            let options = CallOptions::default().credit(1 << 15);
            let id = callers[host].open(now, options).expect("room");
            open.insert(id, call);
            for root in 0..roots.len() {
                let path = [root as u8];
                let to = calls.server(call, &path);
                callers[host].send(now, id, to, request(call, &path), &mut out).expect("an open call");
            }
            bench.send(host, out, 0);
            continue;
        }
        let Some((host, from, message, now)) = bench.next() else { break };
        if for_caller(&message) {
            callers[host].handle(now, from, &message, &mut out);
        } else {
            workers[host].handle(now, from, &message, &mut out);
            work(&mut workers[host], roots, &calls, now, &mut out);
        }
        let done = bench.free[host];
        bench.send(host, out, 1);
        while let Some(event) = callers[host].next_event() {
            let CallerEvent::Ended { call, outcome } = event else { continue };
            assert_eq!(outcome, Outcome::Complete);
            let call = open.remove(&call).expect("a call of ours");
            calls.ends[call] = done + cost.call;
            bench.works(host, cost.call);
        }
    }
    calls.loaded()
}

fn work(worker: &mut Worker, roots: &[Node], calls: &Calls, now: Instant, out: &mut Out) {
    while let Some(work) = worker.next(now) {
        let (call, path) = read(&work.payload);
        let node = Node::find(roots, path).expect("a request of the shape");
        for next in 0..node.next.len() {
            let path = [path, &[next as u8]].concat();
            let to = calls.server(call, &path);
            worker.delegate(now, work.execution, to, request(call, &path), out).expect("at work");
        }
        for _ in 0..node.replies {
            worker.reply(now, work.execution, work.payload.clone(), out).expect("at work");
        }
        worker.finish(now, work.execution, out).expect("at work");
    }
}

/// The same by plain calls: each client asks for itself what follows from an answer.
///
/// # Panics
/// When a call is not answered.
#[must_use]
pub fn called(roots: &[Node], load: &Load) -> Loaded {
    let Load { hosts, cost, .. } = *load;
    let mut calls = Calls::draw(load);
    let mut bench = Bench::new(hosts, cost, 0);
    let mut callers: Vec<_> = (0..hosts).map(|host| TwinCaller::new(peer(host).node)).collect();
    // Requests of each call that are not answered.
    let mut open = BTreeMap::<usize, usize>::new();
    loop {
        let mut asks = VecDeque::new();
        let mut out = Out::default();
        let (host, call, taken) = if let Some((call, (at, host))) = calls.begins(bench.queue.next_at()) {
            bench.free[host] = bench.free[host].max(at);
            asks.extend((0..roots.len()).map(|root| vec![root as u8]));
            (host, call, 0)
        } else {
            let Some((host, from, message, _)) = bench.next() else { break };
            if let Some((_, payload)) = callers[host].handle(&message) {
                let (call, path) = read(&payload);
                let node = Node::find(roots, path).expect("a request of the shape");
                asks.extend((0..node.next.len()).map(|next| [path, &[next as u8]].concat()));
                *open.get_mut(&call).expect("an open call") -= 1;
                (host, call, 1)
            } else {
                serve(from, &message, |request| request, &mut out);
                bench.send(host, out, 1);
                continue;
            }
        };
        let left = open.entry(call).or_default();
        *left += asks.len();
        if *left == 0 {
            open.remove(&call);
            calls.ends[call] = bench.free[host];
        }
        for path in asks {
            callers[host].call(calls.server(call, &path), &request(call, &path), &mut out);
        }
        bench.send(host, out, taken);
    }
    calls.loaded()
}
