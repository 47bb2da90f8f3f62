//! Calls of several hops on links that lose: real callers, workers and the sessions that carry their messages.
//!
//! ```text
//! caller ═ link ═╗                               each message: two links, each with its delay and its losses
//! server ═ link ═╬═ nothing is lost here         call: caller ─▶ server 1 ─▶ … ─▶ server n ─▶ caller
//! server ═ link ═╝
//! ```
//!
//! Hosts take no time, so what a call takes is delay and what losses add to it. A lost message is found by its
//! session (`pathcall_endpoint::messages`); callers need not make a call again.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOptions, Caller, CallerConfig, CallerEvent, Outcome};
use pathcall_endpoint::delegate::worker::{Worker, WorkerConfig};
use pathcall_endpoint::delegate::{Context, NodeId, Outbox, Peer, for_caller};
use pathcall_endpoint::messages::{self, Messages};
use pathcall_sim::queue::EventQueue;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

pub use pathcall_sim::random::Chance;

use super::cost::PAYLOAD;
use super::hosts::{address, host_at};

/// Calls before those that count: sessions are open then, and round trips known.
const FIRST: usize = 200;

/// Calls and the links that they go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Servers that each call goes through.
    pub hops: u8,
    /// Calls that count.
    pub calls: usize,
    /// Pause between the begins of two calls.
    pub pause: Duration,
    /// Delay of a link.
    pub delay: Duration,
    /// What a link loses of the frames in either direction.
    pub loss: Chance,
    /// What chance is drawn from.
    pub seed: u64,
}

/// What became of the calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// How many were complete.
    pub complete: usize,
    /// How many were not.
    pub failed: usize,
    /// How long each took that was complete, the shortest first.
    pub took: Vec<Duration>,
    /// Frames, those of acknowledgements included.
    pub frames: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Parts of messages that were sent again.
    pub again: u64,
}

impl Calls {
    /// The time that this share of the calls, 0 to 1, took at most; nothing where none was complete.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let index = (self.took.len() as f64 * share) as usize;
        self.took.get(index.min(self.took.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

enum Event {
    Start,
    Frame { from: usize, to: usize, frame: Vec<u8> },
    Wake(usize),
}

struct Host {
    caller: Caller,
    worker: Worker,
    messages: Messages,
    wake: Option<Instant>,
}

/// A host's state machines put messages into its sessions.
struct Below<'a>(&'a mut Messages, Instant);

impl Outbox for Below<'_> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.send(self.1, to, head, payload);
    }
}

struct World {
    setting: Setting,
    random: Random,
    now: Instant,
    queue: EventQueue<Event>,
    hosts: Vec<Host>,
    /// Calls that have begun: which one, and when.
    open: HashMap<Context, (usize, Instant)>,
    begun: usize,
    calls: Calls,
}

/// Makes the calls, and waits until each has ended.
///
/// # Panics
/// When a call neither completes nor fails.
#[must_use]
pub fn play(setting: Setting) -> Calls {
    let mut world = World::new(setting);
    world.queue.push(Instant(0), Event::Start);
    let all = setting.calls + FIRST;
    while world.begun < all || !world.open.is_empty() {
        let Some((at, event)) = world.queue.pop() else { panic!("{} calls hang", world.open.len()) };
        world.now = at;
        world.happens(event, all);
    }
    let mut calls = world.calls;
    calls.took.sort_unstable();
    calls.again = world.hosts.iter().map(|host| host.messages.stats().retransmits).sum();
    calls
}

impl Host {
    fn new(index: usize, random: &mut Random) -> Self {
        let (node, address) = (NodeId::new(index as u64 + 1), address(index));
        let seed = [random.bits(), random.bits()];
        Self {
            caller: Caller::new(CallerConfig::new(node, address)),
            worker: Worker::new(WorkerConfig::new(node, address)),
            messages: Messages::new(messages::Config::new(node.bits(), seed)),
            wake: None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let all = [self.caller.next_deadline(), self.worker.next_deadline(), self.messages.deadline()];
        all.into_iter().flatten().min()
    }
}

impl World {
    fn new(setting: Setting) -> Self {
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
            calls: Calls::default(),
        }
    }

    fn happens(&mut self, event: Event, all: usize) {
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

    /// The next call begins: its request says how many servers it is to go through.
    fn start(&mut self) {
        let Host { caller, messages, .. } = &mut self.hosts[0];
        let call = caller.open(self.now, CallOptions::default()).expect("room for a call");
        let mut request = vec![0; PAYLOAD];
        request[0] = self.setting.hops;
        let below = &mut Below(messages, self.now);
        caller.send(self.now, call, address(1), request.into(), below).expect("an open call");
        self.open.insert(call, (self.begun, self.now));
        self.begun += 1;
        self.drive(0);
    }

    /// Has a host do what is due.
    fn drive(&mut self, host: usize) {
        let now = self.now;
        let mut frames = VecDeque::new();
        loop {
            let Host { caller, worker, messages, .. } = &mut self.hosts[host];
            caller.poll(now, &mut Below(messages, now));
            worker.poll(now, &mut Below(messages, now));
            work(worker, host, &mut Below(messages, now));
            messages.poll(now, &mut |to, frame| frames.push_back((to, frame.to_vec())));
            let Some(event) = messages.next_event() else { break };
            match event {
                messages::Event::Arrived { node, from, message } => {
                    let (peer, below) = (Peer { node: NodeId::new(node), address: from }, &mut Below(messages, now));
                    match for_caller(&message) {
                        true => caller.handle(now, peer, &message, below),
                        false => worker.handle(now, peer, &message, below),
                    }
                }
                messages::Event::Undelivered { to, head } => {
                    caller.undelivered(now, to, &head, &mut Below(messages, now));
                    worker.undelivered(now, to, &head, &mut Below(messages, now));
                }
                messages::Event::Underway { peer, arriving } => {
                    caller.alive(now, peer);
                    arriving.iter().for_each(|head| worker.arriving(now, head));
                }
            }
        }
        for (to, frame) in frames {
            if let Some(to) = host_at(to) {
                self.send(host, to, frame);
            }
        }
        self.ends();
        self.arm(host);
    }

    /// Looks which calls have ended.
    fn ends(&mut self) {
        while let Some(event) = self.hosts[0].caller.next_event() {
            let CallerEvent::Ended { call, outcome } = event else { continue };
            let Some((number, began)) = self.open.remove(&call) else { continue };
            let complete = outcome == Outcome::Complete;
            self.calls.failed += usize::from(!complete);
            if complete && number >= FIRST {
                self.calls.complete += 1;
                self.calls.took.push(self.now.since(began));
            }
        }
    }

    /// A frame passes two links, each of which may lose it.
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

/// A server passes a request on, or replies if it is the last one.
fn work(worker: &mut Worker, host: usize, below: &mut Below<'_>) {
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
