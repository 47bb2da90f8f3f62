//! Open-loop load of delegated or plain calls: latency over load (DPC Fig. 6.7).
//!
//! Every host is a client and a server. Calls start at random hosts and random times (a Poisson process), independent
//! of
//! earlier calls. A host processes one message after the other, as in [`cost`](super::cost).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{
    CallOptions, CallOutcome, CallerEvent, DelegateCaller, DelegateCallerConfig,
};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig};
use pathcall_endpoint::delegate::{ContextId, is_for_caller};
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::baseline::{BaselineCaller, serve};
use super::cost::{Cost, PAYLOAD, SerialHosts, peer};
use super::hosts::{Out, address};
use super::shapes::RequestNode;

/// Parameters of an open-loop load.
#[derive(Debug, Clone, Copy)]
pub struct OpenLoad {
    /// Machines, each both client and server.
    pub hosts: usize,
    /// Calls of all machines together.
    pub calls: usize,
    /// Calls per second.
    pub rate: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Costs of messages and calls.
    pub cost: Cost,
}

/// Results of an open-loop load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadResults {
    /// Calls completed per second, from the first start to the last end.
    pub rate: f64,
    /// Latency of each call in nanoseconds from its scheduled start, in ascending order.
    pub latencies: Vec<u64>,
}

impl LoadResults {
    /// Median latency in nanoseconds.
    #[must_use]
    pub fn median(&self) -> u64 {
        self.latencies.get(self.latencies.len() / 2).copied().unwrap_or_default()
    }
}

/// Start of a call: time and host.
type CallStart = (u64, usize);

/// Schedule of the calls, and their end times.
struct CallSchedule {
    starts: Vec<CallStart>,
    next: usize,
    ends: Vec<u64>,
    seed: u64,
    hosts: usize,
}

impl CallSchedule {
    fn draw(load: &OpenLoad) -> Self {
        let mut random = Random::new(load.seed);
        let mut at = 0.0;
        let mut start = |_| {
            // Calls of a Poisson process have exponential times between them.
            let unit = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
            at -= unit.ln() / load.rate * 1e9;
            (at as u64, random.index(load.hosts))
        };
        let starts = (0..load.calls).map(&mut start).collect();
        Self { starts, next: 0, ends: vec![0; load.calls], seed: load.seed, hosts: load.hosts }
    }

    /// Next call, if it starts before the next message arrives.
    fn next_start(&mut self, message: Option<Instant>) -> Option<(usize, CallStart)> {
        let start = *self.starts.get(self.next)?;
        let first = message.is_none_or(|message| start.0 <= message.0);
        first.then(|| {
            self.next += 1;
            (self.next - 1, start)
        })
    }

    /// Random server of a request, other than the client of the call; the same for delegated and plain calls.
    fn server(&self, call: usize, path: &[u8]) -> SocketAddr {
        let mut hasher = DefaultHasher::new();
        (self.seed, call, path).hash(&mut hasher);
        let other = 1 + hasher.finish() as usize % (self.hosts - 1);
        address((self.starts[call].1 + other) % self.hosts)
    }

    fn loaded(self) -> LoadResults {
        let latencies =
            self.starts.iter().zip(&self.ends).map(|(start, end)| end.checked_sub(start.0).expect("an ended call"));
        let mut latencies: Vec<u64> = latencies.collect();
        latencies.sort_unstable();
        let last = self.ends.iter().max().copied().unwrap_or_default();
        let first = self.starts.first().map_or(0, |start| start.0);
        LoadResults { rate: self.starts.len() as f64 / ((last - first) as f64 / 1e9), latencies }
    }
}

/// Encodes a request: number of its call, and path from the root.
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

/// Delegated calls with real callers and workers.
///
/// # Panics
/// Panics if a call does not complete.
#[must_use]
pub fn delegated(roots: &[RequestNode], load: &OpenLoad) -> LoadResults {
    let OpenLoad { hosts, cost, .. } = *load;
    let mut calls = CallSchedule::draw(load);
    let mut bench = SerialHosts::new(hosts, cost, cost.delegate);
    let mut callers: Vec<_> =
        (0..hosts).map(|host| DelegateCaller::new(DelegateCallerConfig::new(peer(host).node, address(host)))).collect();
    let mut workers: Vec<_> =
        (0..hosts).map(|host| DelegateWorker::new(DelegateWorkerConfig::new(peer(host).node, address(host)))).collect();
    let mut open = HashMap::<ContextId, usize>::new();
    loop {
        let mut out = Out::default();
        if let Some((call, (at, host))) = calls.next_start(bench.queue.next_at()) {
            bench.free[host] = bench.free[host].max(at);
            bench.add_work(host, cost.call);
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
        if is_for_caller(&message) {
            callers[host].handle(now, from, &message, &mut out);
        } else {
            workers[host].handle(now, from, &message, &mut out);
            work(&mut workers[host], roots, &calls, now, &mut out);
        }
        let done = bench.free[host];
        bench.send(host, out, 1);
        while let Some(event) = callers[host].next_event() {
            let CallerEvent::Ended { call, outcome } = event else { continue };
            assert_eq!(outcome, CallOutcome::Complete);
            let call = open.remove(&call).expect("a call of ours");
            calls.ends[call] = done + cost.call;
            bench.add_work(host, cost.call);
        }
    }
    calls.loaded()
}

fn work(worker: &mut DelegateWorker, roots: &[RequestNode], calls: &CallSchedule, now: Instant, out: &mut Out) {
    while let Some(work) = worker.next(now) {
        let (call, path) = read(&work.payload);
        let node = RequestNode::find(roots, path).expect("a request of the shape");
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

/// Plain calls: after each answer, the client makes the calls that follow from it.
///
/// # Panics
/// Panics if a call is not answered.
#[must_use]
pub fn called(roots: &[RequestNode], load: &OpenLoad) -> LoadResults {
    let OpenLoad { hosts, cost, .. } = *load;
    let mut calls = CallSchedule::draw(load);
    let mut bench = SerialHosts::new(hosts, cost, 0);
    let mut callers: Vec<_> = (0..hosts).map(|host| BaselineCaller::new(peer(host).node)).collect();
    // Unanswered requests of each call.
    let mut open = BTreeMap::<usize, usize>::new();
    loop {
        let mut asks = VecDeque::new();
        let mut out = Out::default();
        let (host, call, taken) = if let Some((call, (at, host))) = calls.next_start(bench.queue.next_at()) {
            bench.free[host] = bench.free[host].max(at);
            asks.extend((0..roots.len()).map(|root| vec![root as u8]));
            (host, call, 0)
        } else {
            let Some((host, from, message, _)) = bench.next() else { break };
            if let Some((_, payload)) = callers[host].handle(&message) {
                let (call, path) = read(&payload);
                let node = RequestNode::find(roots, path).expect("a request of the shape");
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
