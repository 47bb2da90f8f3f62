//! Simple model of two hosts and a network: each resource serves in order of arrival, each message visits the hops of
//! its path in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pathcall_place::path::PathSide;
use pathcall_place::{
    Decision, Dispatch, KindId, PathId, Paths, Released, RequestOutcome, SelectionRequest, Selector, Ticket,
};
use pathcall_wire::Instant;

/// Deterministic generator of uniform random numbers.
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

/// Parameters of a load.
pub struct Load<'a> {
    /// Number of requests.
    pub count: usize,
    /// Mean of the exponential interarrival times, in nanoseconds.
    pub gap_ns: f64,
    /// Range of the one-way network delay, in nanoseconds.
    pub network_ns: (f64, f64),
    /// Draws the type and the address of a request.
    pub request: &'a dyn Fn(&mut Dice) -> (KindId, u64),
    /// Slow-down: path, first affected request, factor of its nodes.
    pub slower: Option<(PathId, usize, u64)>,
    pub seed: u64,
}

/// Result of a load.
pub struct Result {
    /// Times within the hosts since the request, in nanoseconds, sorted.
    pub times_ns: Vec<u64>,
    /// Path of each request, in the order of sending.
    pub paths: Vec<PathId>,
    /// Time from the first request to the last answer, in nanoseconds.
    pub length_ns: u64,
}

impl Result {
    pub fn mean_ns(&self) -> f64 {
        self.times_ns.iter().map(|ns| *ns as f64).sum::<f64>() / self.times_ns.len() as f64
    }
}

struct RequestMessage {
    ticket: Ticket,
    path: PathId,
    asked: u64,
    sent: u64,
    network: u64,
    hop: usize,
    slower: u64,
}

/// Runs a load over paths.
pub fn play(paths: &Paths, selector: &mut Selector, load: &Load<'_>) -> Result {
    let mut dice = Dice::new(load.seed);
    let mut free: Vec<Vec<u64>> = paths.resources.iter().map(|resource| vec![0; resource.slots as usize]).collect();
    let mut events = BinaryHeap::new();
    let mut messages: Vec<RequestMessage> = Vec::new();
    let mut asked_at = std::collections::HashMap::new();
    let mut result = Result { times_ns: Vec::new(), paths: Vec::new(), length_ns: 0 };
    let (mut at, mut asked, mut number) = (1_000.0, 0, 0_u64);
    loop {
        let next = events.peek().map(|Reverse((time, _, _)): &Reverse<(u64, u64, usize)>| *time);
        if asked < load.count && next.is_none_or(|next| at as u64 <= next) {
            let now = at as u64;
            let (kind, address) = (load.request)(&mut dice);
            match selector.select(Instant(now), &SelectionRequest { kind, address, message: address }) {
                Decision::Send(dispatch) => {
                    asked_at.insert(dispatch.ticket, now);
                    send(load, &mut messages, &mut events, &mut result, dispatch, now, now, &mut number);
                }
                Decision::Wait { ticket } => drop(asked_at.insert(ticket, now)),
                // A rejected request is retried later: a full selector delays the load.
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
                .map_or(PathSide::Requester, |hop| paths.resources[usize::from(hop.resource.0)].side);
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
        selector.done(Instant(now), ticket, RequestOutcome::Done { intra_ns: Some(intra_ns), total_ns });
        asked_at.remove(&ticket);
        while let Some(released) = selector.poll(Instant(now)) {
            let Released::Send(dispatch) = released else { panic!("no path fails in this test") };
            let asked = asked_at[&dispatch.ticket];
            send(load, &mut messages, &mut events, &mut result, dispatch, asked, now, &mut number);
        }
    }
    result.times_ns.sort_unstable();
    result
}

#[allow(clippy::too_many_arguments)] // all fields of a message
fn send(
    load: &Load<'_>,
    messages: &mut Vec<RequestMessage>,
    events: &mut BinaryHeap<Reverse<(u64, u64, usize)>>,
    result: &mut Result,
    dispatch: Dispatch,
    asked: u64,
    now: u64,
    number: &mut u64,
) {
    let slower = match load.slower {
        Some((path, from, times)) if path == dispatch.path && result.paths.len() >= from => times,
        _ => 1,
    };
    result.paths.push(dispatch.path);
    *number += 1;
    events.push(Reverse((now, *number, messages.len())));
    messages.push(RequestMessage {
        ticket: dispatch.ticket,
        path: dispatch.path,
        asked,
        sent: now,
        network: 0,
        hop: 0,
        slower,
    });
}
