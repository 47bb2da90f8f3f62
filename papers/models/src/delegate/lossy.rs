//! Calls of several hops on lossy links: real callers, workers and message sessions.
//!
//! ```text
//! caller ═ link ═╗                               message: two links, each with its delay and its losses
//! server ═ link ═╬═ lossless switch              call: caller ─▶ server 1 ─▶ … ─▶ server n ─▶ caller
//! server ═ link ═╝
//! ```
//!
//! Hosts take no time, so the latency of a call is delay plus recovery of losses. The session recovers a lost message
//! (`pathcall_endpoint::messages`); callers do not repeat calls.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{
    CallOptions, CallOutcome, CallerEvent, DelegateCaller, DelegateCallerConfig,
};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig};
use pathcall_endpoint::delegate::{ContextId, MessageOutbox, NodeId, PeerNode, is_for_caller};
use pathcall_endpoint::messages::{self, Messages};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

pub use pathcall_sim::random::Chance;

use super::cost::PAYLOAD;
use super::hosts::{address, host_at};

/// Warm-up calls, which are not measured: they open sessions and measure round trips.
const FIRST: usize = 200;

/// Parameters of a run on lossy links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossySetup {
    /// Servers that each call passes.
    pub hops: u8,
    /// Measured calls.
    pub calls: usize,
    /// Time between the starts of two calls.
    pub pause: Duration,
    /// Delay of a link.
    pub delay: Duration,
    /// Loss probability of a frame on a link, in either direction.
    pub loss: Chance,
    /// Seed of the run.
    pub seed: u64,
}

/// Results of a run on lossy links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossyResults {
    /// Completed calls.
    pub complete: usize,
    /// Failed calls.
    pub failed: usize,
    /// Latencies of completed calls in ascending order.
    pub latencies: Vec<Duration>,
    /// Frames sent, acknowledgements included.
    pub frames: u64,
    /// Frames lost.
    pub lost: u64,
    /// Retransmitted parts of messages.
    pub retransmitted: u64,
}

impl LossyResults {
    /// Latency quantile for `share`, 0 to 1; zero if no call completed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let index = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(index.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

enum Event {
    Start,
    Frame { from: usize, to: usize, frame: Vec<u8> },
    Wake(usize),
}

struct Host {
    caller: DelegateCaller,
    worker: DelegateWorker,
    messages: Messages,
    wake: Option<Instant>,
}

/// Outbox that puts the messages of a host into its sessions.
struct SessionOutbox<'a>(&'a mut Messages, Instant);

impl MessageOutbox for SessionOutbox<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.send(self.1, to, head, payload);
    }
}

struct LossyNetwork {
    setting: LossySetup,
    random: Random,
    now: Instant,
    queue: EventQueue<Event>,
    hosts: Vec<Host>,
    /// Calls in progress: number and start time.
    open: HashMap<ContextId, (usize, Instant)>,
    begun: usize,
    calls: LossyResults,
}

/// Runs the calls until each has ended.
///
/// # Panics
/// Panics if a call neither completes nor fails.
#[must_use]
pub fn play(setting: LossySetup) -> LossyResults {
    let mut network = LossyNetwork::new(setting);
    network.queue.push(Instant(0), Event::Start);
    let all = setting.calls + FIRST;
    while network.begun < all || !network.open.is_empty() {
        let Some((at, event)) = network.queue.pop() else { panic!("{} calls hang", network.open.len()) };
        network.now = at;
        network.handle_event(event, all);
    }
    let mut calls = network.calls;
    calls.latencies.sort_unstable();
    calls.retransmitted = network.hosts.iter().map(|host| host.messages.stats().retransmits).sum();
    calls
}

impl Host {
    fn new(index: usize, random: &mut Random) -> Self {
        let (node, address) = (NodeId::new(index as u64 + 1), address(index));
        let seed = [random.bits(), random.bits()];
        Self {
            caller: DelegateCaller::new(DelegateCallerConfig::new(node, address)),
            worker: DelegateWorker::new(DelegateWorkerConfig::new(node, address)),
            messages: Messages::new(messages::Config::new(node.bits(), seed)),
            wake: None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let all = [self.caller.next_deadline(), self.worker.next_deadline(), self.messages.deadline()];
        all.into_iter().flatten().min()
    }
}

impl LossyNetwork {
    fn new(setting: LossySetup) -> Self {
        let mut random = Random::new(setting.seed);
        let hosts = (0..=usize::from(setting.hops)).map(|index| Host::new(index, &mut random)).collect();
        Self {
            setting,
            random,
            now: Instant(0),
            queue: EventQueue::default(),
            hosts,
            open: HashMap::new(),
            begun: 0,
            calls: LossyResults::default(),
        }
    }

    fn handle_event(&mut self, event: Event, all: usize) {
        match event {
            Event::Start => {
                self.start();
                if self.begun < all {
                    self.queue.push(self.now + self.setting.pause, Event::Start);
                }
            }
            Event::Frame { from, to, frame } => {
                let mut answers = Vec::new();
                let answer = &mut |_, frame: &[u8]| answers.push(frame.to_vec());
                self.hosts[to].messages.handle(self.now, address(from), &frame, false, answer);
                answers.into_iter().for_each(|frame| self.send(to, from, frame));
                self.drive(to);
            }
            Event::Wake(host) => {
                if self.hosts[host].wake.is_some_and(|wake| wake <= self.now) {
                    self.hosts[host].wake = None;
                    self.drive(host);
                }
            }
        }
    }

    /// Starts the next call. Its request carries the number of servers to pass.
    fn start(&mut self) {
        let Host { caller, messages, .. } = &mut self.hosts[0];
        let call = caller.open(self.now, CallOptions::default()).expect("room for a call");
        let mut request = vec![0; PAYLOAD];
        request[0] = self.setting.hops;
        let below = &mut SessionOutbox(messages, self.now);
        caller.send(self.now, call, address(1), request.into(), below).expect("an open call");
        self.open.insert(call, (self.begun, self.now));
        self.begun += 1;
        self.drive(0);
    }

    /// Processes the due timers and the outgoing frames of a host.
    fn drive(&mut self, host: usize) {
        let now = self.now;
        let mut frames = VecDeque::new();
        loop {
            let Host { caller, worker, messages, .. } = &mut self.hosts[host];
            caller.poll(now, &mut SessionOutbox(messages, now));
            worker.poll(now, &mut SessionOutbox(messages, now));
            work(worker, host, &mut SessionOutbox(messages, now));
            messages.poll(now, &mut |to, frame| frames.push_back((to, frame.to_vec())));
            let Some(event) = messages.next_event() else { break };
            match event {
                messages::Event::Arrived { node, from, message } => {
                    let (peer, below) =
                        (PeerNode { node: NodeId::new(node), address: from }, &mut SessionOutbox(messages, now));
                    match is_for_caller(&message) {
                        true => caller.handle(now, peer, &message, below),
                        false => worker.handle(now, peer, &message, below),
                    }
                }
                messages::Event::Undelivered { to, head } => {
                    caller.undelivered(now, to, &head, &mut SessionOutbox(messages, now));
                    worker.undelivered(now, to, &head, &mut SessionOutbox(messages, now));
                }
                messages::Event::Progress { peer, arriving } => {
                    caller.restart_timeouts(now, peer);
                    arriving.iter().for_each(|head| worker.arriving(now, head));
                }
            }
        }
        for (to, frame) in frames {
            if let Some(to) = host_at(to) {
                self.send(host, to, frame);
            }
        }
        self.record_ended();
        self.arm(host);
    }

    /// Records the calls that have ended.
    fn record_ended(&mut self) {
        while let Some(event) = self.hosts[0].caller.next_event() {
            let CallerEvent::Ended { call, outcome } = event else { continue };
            let Some((number, began)) = self.open.remove(&call) else { continue };
            let complete = outcome == CallOutcome::Complete;
            self.calls.failed += usize::from(!complete);
            if complete && number >= FIRST {
                self.calls.complete += 1;
                self.calls.latencies.push(self.now.since(began));
            }
        }
    }

    /// Sends a frame over two links; each may lose it.
    fn send(&mut self, from: usize, to: usize, frame: Vec<u8>) {
        self.calls.frames += 1;
        if (0..2).any(|_| self.random.happens(self.setting.loss)) {
            self.calls.lost += 1;
            return;
        }
        self.queue.push(self.now + self.setting.delay * 2, Event::Frame { from, to, frame });
    }

    fn arm(&mut self, host: usize) {
        let Some(at) = self.hosts[host].deadline().map(|at| at.max(self.now)) else { return };
        if self.hosts[host].wake.is_none_or(|wake| at < wake) {
            self.hosts[host].wake = Some(at);
            self.queue.push(at, Event::Wake(host));
        }
    }
}

/// Passes requests on, or replies at the last server.
fn work(worker: &mut DelegateWorker, host: usize, below: &mut SessionOutbox<'_>) {
    let now = below.1;
    while let Some(work) = worker.next(now) {
        let mut payload = work.payload.to_vec();
        payload[0] -= 1;
        let done = match payload[0] {
            0 => worker.reply(now, work.execution, payload.into(), below),
            _ => worker.delegate(now, work.execution, address(host + 1), payload.into(), below),
        };
        done.and_then(|()| worker.finish(now, work.execution, below)).expect("at work");
    }
}
