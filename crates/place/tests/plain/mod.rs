//! Two hosts and a network in the plainest way: each resource serves in order of arrival, each message meets them in the
//! order of its path's hops.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pathcall_place::path::Side;
use pathcall_place::{Decision, Go, KindId, Outcome, PathId, Paths, Released, Request, Selector, Ticket};
use pathcall_wire::Instant;

/// A generator of even numbers, the same on every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2) + 1)
    }

    pub fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One load.
pub struct Load<'a> {
    /// Requests.
    pub count: usize,
    /// Mean time between two, in nanoseconds; times are exponential.
    pub gap_ns: f64,
    /// One way through the network: evenly from one to the other, in nanoseconds.
    pub network_ns: (f64, f64),
    /// The type of a request and its address.
    pub request: &'a dyn Fn(&mut Dice) -> (KindId, u64),
    /// How many times longer a path's nodes take from so many requests on.
    pub slower: Option<(PathId, usize, u64)>,
    pub seed: u64,
}

/// What became of it.
pub struct Result {
    /// Times inside the hosts from when it was asked for, in nanoseconds, sorted.
    pub times_ns: Vec<u64>,
    /// The path of each request, in the order in which they went.
    pub paths: Vec<PathId>,
    /// From the first request to the last answer, in nanoseconds.
    pub length_ns: u64,
}

impl Result {
    pub fn mean_ns(&self) -> f64 {
        self.times_ns.iter().map(|ns| *ns as f64).sum::<f64>() / self.times_ns.len() as f64
    }
}

struct Message {
    ticket: Ticket,
    path: PathId,
    asked: u64,
    sent: u64,
    network: u64,
    hop: usize,
    slower: u64,
}

/// Plays a load on paths.
pub fn play(paths: &Paths, selector: &mut Selector, load: &Load<'_>) -> Result {
    let mut dice = Dice::new(load.seed);
    let mut free: Vec<Vec<u64>> = paths.resources.iter().map(|resource| vec![0; resource.slots as usize]).collect();
    let mut events = BinaryHeap::new();
    let mut messages: Vec<Message> = Vec::new();
    let mut asked_at = std::collections::HashMap::new();
    let mut result = Result { times_ns: Vec::new(), paths: Vec::new(), length_ns: 0 };
    let (mut at, mut asked, mut number) = (1_000.0, 0, 0_u64);
    loop {
        let next = events.peek().map(|Reverse((time, _, _)): &Reverse<(u64, u64, usize)>| *time);
        if asked < load.count && next.is_none_or(|next| at as u64 <= next) {
            let now = at as u64;
            let (kind, address) = (load.request)(&mut dice);
            match selector.select(Instant(now), &Request { kind, address, message: address }) {
                Decision::Go(go) => {
                    asked_at.insert(go.ticket, now);
                    send(load, &mut messages, &mut events, &mut result, go, now, now, &mut number);
                }
                Decision::Wait { ticket } => drop(asked_at.insert(ticket, now)),
                // Who is refused comes again: a closed door makes the load wait.
                Decision::Full => {
                    at += load.gap_ns;
                    continue;
                }
            }
            asked += 1;
            at -= load.gap_ns * (1.0 - dice.roll()).ln();
            continue;
        }
        let Some(Reverse((now, _, which))) = events.pop() else { break };
        let message = &mut messages[which];
        let path = paths.path(message.path);
        if let Some(hop) = path.hops.get(message.hop) {
            let resource = &paths.resources[usize::from(hop.resource.0)];
            let slow = if resource.node.is_some() { message.slower } else { 1 };
            let slot = free[usize::from(hop.resource.0)].iter_mut().min().expect("at least one slot");
            let start = (*slot).max(now);
            *slot = start + slow * if resource.node.is_some() { hop.delay_ns } else { hop.busy_ns };
            let mut leaves = start + slow * hop.delay_ns;
            message.hop += 1;
            let after = path
                .hops
                .get(message.hop)
                .map_or(Side::Requester, |hop| paths.resources[usize::from(hop.resource.0)].side);
            if after != resource.side {
                let (least, most) = load.network_ns;
                let network = (least + (most - least) * dice.roll()) as u64;
                message.network += network;
                leaves += network;
            }
            number += 1;
            events.push(Reverse((leaves, number, which)));
            continue;
        }
        let (ticket, total_ns) = (message.ticket, now - message.sent);
        let intra_ns = total_ns - message.network;
        result.times_ns.push(now - message.asked - message.network);
        result.length_ns = now;
        selector.done(Instant(now), ticket, Outcome::Done { intra_ns: Some(intra_ns), total_ns });
        asked_at.remove(&ticket);
        while let Some(released) = selector.poll(Instant(now)) {
            let Released::Go(go) = released else { panic!("nothing fails here") };
            let asked = asked_at[&go.ticket];
            send(load, &mut messages, &mut events, &mut result, go, asked, now, &mut number);
        }
    }
    result.times_ns.sort_unstable();
    result
}

#[allow(clippy::too_many_arguments)] // a message's whole beginning, in one place
fn send(
    load: &Load<'_>,
    messages: &mut Vec<Message>,
    events: &mut BinaryHeap<Reverse<(u64, u64, usize)>>,
    result: &mut Result,
    go: Go,
    asked: u64,
    now: u64,
    number: &mut u64,
) {
    let slower = match load.slower {
        Some((path, from, times)) if path == go.path && result.paths.len() >= from => times,
        _ => 1,
    };
    result.paths.push(go.path);
    *number += 1;
    events.push(Reverse((now, *number, messages.len())));
    messages.push(Message { ticket: go.ticket, path: go.path, asked, sent: now, network: 0, hop: 0, slower });
}
