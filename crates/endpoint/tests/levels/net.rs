//! Groups of workers, each below a level, a root that sums the levels, and the network between them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::level::{LevelFailure, SumLevel};
use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{CallError, Dest, FrameSink, Modify, Operation, Output};
use pathcall_wire::{ForwardTarget, Instant};

use crate::config::server_config;

pub(super) const WIDTH: u16 = 8;
const ROOT: u32 = 1;
/// Gaid of the sum of the levels; that of a group's sum follows from the group.
const ROOT_GAID: u32 = 7;
pub(super) const INCARNATION: u32 = 5;

/// Party of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Root,
    /// Server of a group, for its workers.
    Group(usize),
    /// Client of a group's level, at the root.
    Uplink(usize),
    Worker(usize, usize),
}

/// Chances of faults of a frame, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) delayed: u64,
}

#[derive(Default)]
struct Sent(VecDeque<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push_back((to, frame.to_vec()));
    }
}

/// Group of workers with its level.
pub(super) struct Group {
    pub(super) server: MapServer,
    level: SumLevel,
    uplink: MapClient,
    pub(super) workers: Vec<MapClient>,
    /// Endpoint ids of the present workers, and of the uplink.
    pub(super) endpoints: Vec<u32>,
    uplink_endpoint: u32,
}

/// Root, groups, and frames under way by arrival.
pub(super) struct Net {
    pub(super) now: Instant,
    root: MapServer,
    pub(super) groups: Vec<Group>,
    pub(super) frames: BTreeMap<(Instant, u64), (Node, Vec<u8>)>,
    pub(super) sent: u64,
    faults: Faults,
    random: u64,
    next_endpoint: u32,
    /// Bytes between the root and the levels, in both directions.
    pub(super) uplink_bytes: usize,
    pub(super) outcomes: BTreeMap<(usize, usize, CallId), Result<Output, CallError>>,
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// Joins a server as a new worker of a sum in software.
fn join(now: Instant, server: &mut MapServer, (gaid, owner): (u32, u32), endpoint: u32) -> MapClient {
    let member = Member { endpoint, incarnation: INCARNATION, element: false, slot_base: 0, flows: 2, terms: 0 };
    assert!(server.can_admit());
    let joined = server.join(now, member).expect("a worker's place is free");
    MapClient::new(ClientConfig {
        gaid,
        epoch: 1,
        endpoint,
        incarnation: INCARNATION,
        server: owner,
        server_incarnation: INCARNATION,
        flows: 2,
        rows: joined.rows,
        width: joined.width,
        worker: joined.worker,
        start_chunk: joined.start_chunk,
        ..ClientConfig::default()
    })
}

fn sum_server(gaid: u32, endpoint: u32, threshold: u32, handled: bool) -> MapServer {
    MapServer::new(ServerConfig { gaid, endpoint, threshold, handled, width: WIDTH, ..server_config() })
}

impl Net {
    pub(super) fn new(groups: usize, workers: usize, faults: Faults, seed: u64) -> Self {
        let mut net = Self {
            now: ms(1),
            root: sum_server(ROOT_GAID, ROOT, groups as u32, false),
            groups: Vec::new(),
            frames: BTreeMap::new(),
            sent: 0,
            faults,
            random: seed | 1,
            next_endpoint: 10_000,
            uplink_bytes: 0,
            outcomes: BTreeMap::new(),
        };
        for group in 0..groups {
            let (gaid, owner) = ids(group);
            let mut server = sum_server(gaid, owner, workers as u32, true);
            let endpoints: Vec<u32> = (0..workers).map(|_| net.new_endpoint()).collect();
            let joined = endpoints.iter().map(|id| join(net.now, &mut server, (gaid, owner), *id)).collect();
            let uplink_endpoint = net.new_endpoint();
            let uplink = join(net.now, &mut net.root, (ROOT_GAID, ROOT), uplink_endpoint);
            let mut level = SumLevel::new(groups as u32);
            level.attach(&server);
            net.groups.push(Group { server, level, uplink, workers: joined, endpoints, uplink_endpoint });
        }
        net
    }

    fn new_endpoint(&mut self) -> u32 {
        self.next_endpoint += 1;
        self.next_endpoint
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < percent
    }

    /// Sends frames of a party.
    fn carry(&mut self, from: Node, frames: Sent) {
        for (to, frame) in frames.0 {
            let to = match (from, to) {
                (Node::Worker(group, _), _) => Some(Node::Group(group)),
                (Node::Uplink(_), _) => Some(Node::Root),
                (_, Dest::Endpoint(id)) => self.node_of(id),
                _ => panic!("there is no element"),
            };
            // An endpoint that has left.
            let Some(to) = to else { continue };
            if matches!(from, Node::Root | Node::Uplink(_)) {
                self.uplink_bytes += frame.len();
            }
            if self.chance(self.faults.lost) {
                continue;
            }
            let copies = if self.chance(self.faults.repeated) { 2 } else { 1 };
            for _ in 0..copies {
                let delay = if self.chance(self.faults.delayed) { 20 } else { 1 };
                self.sent += 1;
                self.frames.insert((Instant(self.now.0 + delay * 1_000_000), self.sent), (to, frame.clone()));
            }
        }
    }

    fn node_of(&self, endpoint: u32) -> Option<Node> {
        self.groups.iter().enumerate().find_map(|(g, group)| {
            if group.uplink_endpoint == endpoint {
                return Some(Node::Uplink(g));
            }
            group.endpoints.iter().position(|id| *id == endpoint).map(|worker| Node::Worker(g, worker))
        })
    }

    /// Starts a step at all workers.
    pub(super) fn start(&mut self, step: u64, lanes: usize) {
        self.start_in(0..self.groups.len(), step, lanes);
    }

    /// Starts a step at the workers of some groups.
    pub(super) fn start_in(&mut self, groups: Range<usize>, step: u64, lanes: usize) {
        let now = self.now;
        let per_group = self.groups[0].workers.len();
        for g in groups {
            let group = &mut self.groups[g];
            for (w, worker) in group.workers.iter_mut().enumerate() {
                let values: Vec<i64> = (0..lanes).map(|lane| value(g * per_group + w, step, lane)).collect();
                let operation = Operation::Sum {
                    lanes: values.into(),
                    modify: Modify::default(),
                    threshold: per_group as u32,
                    to: ForwardTarget::Server,
                };
                worker.start(now, CallId(step), operation);
            }
        }
    }

    /// Runs until all workers have the outcome of a step.
    pub(super) fn run(&mut self, step: u64) {
        let all = self.groups.len() * self.groups[0].workers.len();
        let limit = Instant(self.now.0 + 600_000_000_000);
        loop {
            self.poll();
            if self.outcomes.keys().filter(|(_, _, id)| id.0 == step).count() == all {
                return;
            }
            assert!(self.now < limit, "step {step} does not end");
            self.advance(limit);
        }
    }

    /// Runs for a minute, so that all parties learn of a failure.
    pub(super) fn settle(&mut self) {
        let end = Instant(self.now.0 + 60_000_000_000);
        while self.now < end {
            self.poll();
            self.advance(end);
        }
    }

    /// Delivers the next frames, or lets the time of the next deadline come.
    fn advance(&mut self, end: Instant) {
        let frame = self.frames.first_key_value().map(|((at, _), _)| *at);
        let next = [frame, self.deadline()].into_iter().flatten().min().unwrap_or(end);
        self.now = self.now.max(next.min(end));
        while let Some(entry) = self.frames.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (node, frame) = entry.remove();
            self.deliver(node, &frame);
        }
    }

    pub(super) fn deliver(&mut self, node: Node, frame: &[u8]) {
        let (now, mut out) = (self.now, Sent::default());
        match node {
            Node::Root => self.root.handle(now, frame, &mut out),
            Node::Group(g) => self.groups[g].server.handle(now, frame, &mut out),
            Node::Uplink(g) => self.groups[g].uplink.handle(now, frame),
            Node::Worker(g, w) => self.groups[g].workers[w].handle(now, frame),
        }
        self.carry(node, out);
    }

    pub(super) fn poll(&mut self) {
        let now = self.now;
        let mut out = Sent::default();
        self.root.poll(now, &mut out);
        self.carry(Node::Root, out);
        for g in 0..self.groups.len() {
            for w in 0..self.groups[g].workers.len() {
                let mut out = Sent::default();
                self.groups[g].workers[w].poll(now, &mut out);
                self.carry(Node::Worker(g, w), out);
                while let Some((id, outcome)) = self.groups[g].workers[w].next_event() {
                    self.outcomes.insert((g, w, id), outcome);
                }
            }
            let Group { server, level, uplink, .. } = &mut self.groups[g];
            let mut out = Sent::default();
            server.poll(now, &mut out);
            let exchanged = level.exchange(now, server, uplink, &mut out);
            self.carry(Node::Group(g), out);
            if let Err(failure) = exchanged {
                self.join_above_again(g, &failure);
            }
            let mut out = Sent::default();
            self.groups[g].uplink.poll(now, &mut out);
            self.carry(Node::Uplink(g), out);
        }
    }

    /// Replaces the client of a level.
    fn join_above_again(&mut self, g: usize, failure: &LevelFailure) {
        let endpoint = self.groups[g].uplink_endpoint;
        if *failure == LevelFailure::Below {
            self.root.abandon_sum(self.now, endpoint, INCARNATION);
        }
        self.root.leave(self.now, endpoint);
        let endpoint = self.new_endpoint();
        let uplink = join(self.now, &mut self.root, (ROOT_GAID, ROOT), endpoint);
        let group = &mut self.groups[g];
        (group.uplink, group.uplink_endpoint) = (uplink, endpoint);
        group.level.attach(&group.server);
    }

    /// Lets all workers join their groups again.
    pub(super) fn join_again(&mut self) {
        for g in 0..self.groups.len() {
            for endpoint in self.groups[g].endpoints.clone() {
                self.groups[g].server.leave(self.now, endpoint);
            }
            for w in 0..self.groups[g].workers.len() {
                let endpoint = self.new_endpoint();
                let worker = join(self.now, &mut self.groups[g].server, ids(g), endpoint);
                (self.groups[g].workers[w], self.groups[g].endpoints[w]) = (worker, endpoint);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let groups = self.groups.iter().flat_map(|group| {
            let workers = group.workers.iter().map(MapClient::deadline);
            workers.chain([group.server.deadline(), group.uplink.deadline()])
        });
        groups.chain([self.root.deadline()]).flatten().min()
    }

    /// Checks that all workers have the sums of a step.
    pub(super) fn expect_sums(&self, step: u64, lanes: usize) {
        let all = self.groups.len() * self.groups[0].workers.len();
        let sums: Vec<i64> = (0..lanes).map(|lane| (0..all).map(|worker| value(worker, step, lane)).sum()).collect();
        let expected = Ok(Output::Sums(sums.into()));
        let outcomes = self.outcomes.iter().filter(|((_, _, id), _)| id.0 == step);
        outcomes.for_each(|(worker, outcome)| assert_eq!(*outcome, expected, "{worker:?}"));
    }
}

/// Gaid and owner of a group's sum.
fn ids(group: usize) -> (u32, u32) {
    (100 + group as u32, 1_000 + group as u32)
}

fn value(worker: usize, step: u64, lane: usize) -> i64 {
    (worker as i64 + 1) * 1_000 + step as i64 * 100 + lane as i64
}
