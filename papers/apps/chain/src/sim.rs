//! Simulation of the chain in a faulty network, from a seed: nodes crash or hang, messages are lost, repeated and
//! delayed, clocks differ. The histories of the clients are checked for linearizability.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::linearizability::{Operation, OperationKind, is_linearizable};
use crate::master::Master;
use crate::pb::update::Effect;
use crate::pb::{History, Member, PassRequest, Update, View};
use crate::replica::{Mutant, NextStep, Replica};

const MS: u64 = 1_000;
const LEASE: u64 = 80 * MS;
const RENEWAL: u64 = 20 * MS;
/// Time after which a client repeats a request.
const RETRY_TIMEOUT: u64 = 25 * MS;
/// Attempts of a client per operation.
const TRIES: u32 = 40;
const OPERATIONS: u32 = 10;
const END: u64 = 20_000 * MS;

/// Results of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimResults {
    /// Completed operations.
    pub ended: usize,
    /// Abandoned operations.
    pub abandoned: usize,
    /// Crashed nodes.
    pub crashes: usize,
    /// Number of views.
    pub views: u64,
    /// Updates that a node recalled from its predecessor.
    pub recalls: usize,
}

/// Runs a simulation.
///
/// # Errors
/// Returns a history that is not linearizable, with its key.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Result<SimResults, String> {
    let mut sim = ChainSim::new(seed, mutant);
    while let Some(Reverse((at, _, index))) = sim.queue.pop() {
        if at > END || sim.finished == sim.clients.len() {
            break;
        }
        sim.now = at;
        let event = sim.events.remove(&index).expect("each is queued once");
        sim.handle_event(event);
    }
    let mut ran = SimResults { views: sim.master.view().number, ..sim.ran };
    for (key, operations) in &sim.histories {
        if !is_linearizable(operations) {
            return Err(format!("seed {seed}: {key} is not linearizable: {operations:#?}"));
        }
        ran.ended += operations.iter().filter(|operation| operation.ended.is_some()).count();
    }
    Ok(ran)
}

/// Origin of a request: client, and index of its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RequestOrigin {
    client: usize,
    operation: u32,
}

#[derive(Debug, Clone)]
enum Event {
    Write(usize, Update, RequestOrigin),
    Read(usize, String, RequestOrigin),
    Pass(usize, PassRequest, RequestOrigin),
    Recall { at: usize, by: usize, view: u64, after: u64 },
    Learn(usize, u64, History),
    Answer(RequestOrigin, String),
    Renew(usize, Duration),
    Renewed(usize, Duration, View),
    AskView(usize),
    View(usize, View),
    Renewal(usize),
    Removal,
    Crash(usize),
    Next(usize),
    Retry(RequestOrigin, u32),
}

struct SimNode {
    replica: Replica,
    crashed: bool,
    /// End of a hang: until then all messages wait.
    hangs_until: u64,
    /// Drift of the clock in millionths.
    drift: i64,
    /// Updates that arrived too early.
    early: Vec<(PassRequest, RequestOrigin)>,
}

impl SimNode {
    fn clock(&self, now: u64) -> Duration {
        Duration::from_micros((now as i64 + now as i64 * self.drift / 1_000_000) as u64)
    }
}

struct SimClient {
    view: View,
    key: String,
    operation: u32,
    tries: u32,
    /// Index of the operation in the history of the key.
    index: usize,
}

struct ChainSim {
    now: u64,
    random: SimRandom,
    queue: BinaryHeap<Reverse<(u64, u64, u64)>>,
    events: BTreeMap<u64, Event>,
    queued: u64,
    nodes: Vec<SimNode>,
    master: Master,
    clients: Vec<SimClient>,
    histories: BTreeMap<String, Vec<Operation>>,
    /// Loss in percent.
    loss: u64,
    /// Clients that have finished.
    finished: usize,
    ran: SimResults,
}

impl ChainSim {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = SimRandom(Xoshiro256PlusPlus::seed_from_u64(seed));
        let count = 1 + random.below(5) as usize;
        let members = (0..count as u32).map(|id| Member { id, ..Member::default() }).collect::<Vec<_>>();
        let node = |id: usize, drift| {
            let replica = Replica::new(id as u32).planted(mutant);
            SimNode { replica, crashed: false, hangs_until: 0, drift, early: Vec::new() }
        };
        let nodes: Vec<_> = (0..count).map(|id| node(id, random.below(100_001) as i64 - 50_000)).collect();
        let master = Master::new(Duration::ZERO, members, Duration::from_micros(LEASE));
        let view = master.view().clone();
        let client = |key| SimClient { view: view.clone(), key, operation: 0, tries: 0, index: 0 };
        let clients: Vec<_> = (0..2 + random.below(4)).map(|_| client(format!("key{}", random.below(2)))).collect();
        let loss = random.below(15);
        let mut sim = Self {
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            queued: 0,
            nodes,
            master,
            clients,
            histories: BTreeMap::new(),
            loss,
            finished: 0,
            ran: SimResults::default(),
            random,
        };
        sim.after(0, Event::Removal);
        (0..count).for_each(|node| sim.after(0, Event::Renewal(node)));
        (0..sim.clients.len()).for_each(|client| sim.after(30 * MS, Event::Next(client)));
        // At most all nodes but one crash.
        let crashing = sim.random.below(count as u64) as usize;
        let first = sim.random.below(count as u64) as usize;
        for i in 0..crashing {
            let at = 30 * MS + sim.random.below(600 * MS);
            sim.after(at, Event::Crash((first + i) % count));
        }
        sim
    }

    fn after(&mut self, time: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + time, self.queued, self.queued)));
        self.events.insert(self.queued, event);
    }

    /// Sends a message, which may be lost, repeated or delayed.
    fn send(&mut self, event: Event) {
        let copies = if self.random.below(100) < self.loss { 0 } else { 1 + u64::from(self.random.below(100) < 5) };
        for _ in 0..copies {
            let slow = if self.random.below(100) < 5 { 200 * MS } else { 3 * MS };
            let time = 100 + self.random.below(slow);
            self.after(time, event.clone());
        }
    }

    fn handle_event(&mut self, event: Event) {
        let node = match &event {
            Event::Write(node, ..) | Event::Read(node, ..) | Event::Pass(node, ..) => Some(*node),
            Event::Recall { at: node, .. } | Event::Learn(node, ..) => Some(*node),
            Event::Renewed(node, ..) | Event::Renewal(node) => Some(*node),
            _ => None,
        };
        if let Some(node) = node.map(|node| &self.nodes[node]) {
            if node.crashed {
                return;
            }
            if node.hangs_until > self.now {
                let time = node.hangs_until - self.now;
                return self.after(time, event);
            }
        }
        match event {
            Event::Write(at, update, asked) => {
                let next = self.nodes[at].replica.write(update);
                self.continue_with(at, next.ok(), None, asked);
            }
            Event::Pass(at, request, asked) => {
                let next = self.nodes[at].replica.pass(request.clone());
                self.continue_with(at, next.ok(), Some(request), asked);
            }
            Event::Read(at, key, asked) => {
                let now = self.nodes[at].clock(self.now);
                // After a rejection the client waits as for a lost message.
                if let Ok(value) = self.nodes[at].replica.read(now, &key) {
                    self.send(Event::Answer(asked, value.unwrap_or_default()));
                }
            }
            Event::Recall { at, by, view, after } => {
                if let Ok(history) = self.nodes[at].replica.history(view, after) {
                    self.send(Event::Learn(by, view, history));
                }
            }
            Event::Learn(at, view, history) => {
                self.ran.recalls += history.entries.len();
                let _ = self.nodes[at].replica.learn(view, history);
                for (request, asked) in std::mem::take(&mut self.nodes[at].early) {
                    self.after(0, Event::Pass(at, request, asked));
                }
            }
            Event::Renewal(at) => {
                self.after(RENEWAL, Event::Renewal(at));
                let asked = self.nodes[at].clock(self.now);
                self.send(Event::Renew(at, asked));
                if self.random.below(400) == 0 {
                    self.nodes[at].hangs_until = self.now + self.random.below(3 * LEASE);
                }
            }
            Event::Renew(from, asked) => {
                let view = self.master.renew(Duration::from_micros(self.now), from as u32).cloned();
                view.into_iter().for_each(|view| self.send(Event::Renewed(from, asked, view)));
            }
            Event::Renewed(at, asked, view) => {
                self.nodes[at].replica.adopt(view, asked + Duration::from_micros(LEASE));
            }
            Event::Removal => {
                // The master hangs in one of 200 checks.
                let pause = if self.random.below(200) == 0 { self.random.below(3 * LEASE) } else { 5 * MS };
                self.after(pause, Event::Removal);
                self.master.remove_expired(Duration::from_micros(self.now));
            }
            Event::Crash(at) => {
                self.nodes[at].crashed = true;
                self.ran.crashes += 1;
            }
            Event::AskView(client) => {
                let view = self.master.view().clone();
                self.send(Event::View(client, view));
            }
            Event::View(client, view) => self.clients[client].view = view,
            Event::Next(client) => self.begin(client),
            Event::Retry(asked, tries) => {
                let client = &self.clients[asked.client];
                if (client.operation, client.tries) == (asked.operation, tries) {
                    self.ask(asked.client);
                }
            }
            Event::Answer(asked, value) => {
                let client = &self.clients[asked.client];
                let operations = self.histories.get_mut(&client.key).expect("begun");
                let operation = &mut operations[client.index];
                if client.operation == asked.operation && operation.ended.is_none() {
                    operation.ended = Some((self.now, value));
                    let pause = self.random.below(60 * MS);
                    self.after(pause, Event::Next(asked.client));
                }
            }
        }
    }

    fn continue_with(&mut self, at: usize, next: Option<NextStep>, request: Option<PassRequest>, asked: RequestOrigin) {
        match next {
            Some(NextStep::Pass(to, pass)) => self.send(Event::Pass(to as usize, pass, asked)),
            Some(NextStep::Reply(value)) => self.send(Event::Answer(asked, value)),
            Some(NextStep::Missing { from, after }) => {
                let view = self.nodes[at].replica.view().number;
                self.nodes[at].early.extend(request.map(|request| (request, asked)));
                self.send(Event::Recall { at: from as usize, by: at, view, after });
            }
            None => {}
        }
    }

    fn begin(&mut self, client: usize) {
        let it = &mut self.clients[client];
        if it.operation == OPERATIONS {
            self.finished += 1;
            return;
        }
        (it.operation, it.tries) = (it.operation + 1, 0);
        let what = format!("<{client}.{}>", it.operation);
        let kind = match self.random.below(5) {
            0 => OperationKind::Put(what),
            1 | 2 => OperationKind::Append(what),
            _ => OperationKind::Get,
        };
        let operations = self.histories.entry(it.key.clone()).or_default();
        it.index = operations.len();
        operations.push(Operation { kind, began: self.now, ended: None });
        self.ask(client);
    }

    /// Sends a request, for the first time or again.
    fn ask(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let operation = &self.histories[&it.key][it.index];
        if operation.ended.is_some() {
            return;
        }
        it.tries += 1;
        let asked = RequestOrigin { client, operation: it.operation };
        if it.tries > TRIES {
            self.ran.abandoned += 1;
            return self.after(0, Event::Next(client));
        }
        let (seq, key, tries) = (u64::from(it.operation), it.key.clone(), it.tries);
        let effect = match operation.kind.clone() {
            OperationKind::Get => None,
            OperationKind::Put(put) => Some(Effect::Put(put)),
            OperationKind::Append(append) => Some(Effect::Append(append)),
        };
        let members = &it.view.members;
        let at = if effect.is_some() { members.first() } else { members.last() };
        // Some requests go to a random node, which rejects them unless it is the right one.
        let at = match self.random.below(8) {
            0 => self.random.below(self.nodes.len() as u64) as usize,
            _ => at.expect("a chain has a node").id as usize,
        };
        match effect {
            None => self.send(Event::Read(at, key, asked)),
            effect => self.send(Event::Write(at, Update { client: client as u64, seq, key, effect }, asked)),
        }
        if tries > 1 {
            self.send(Event::AskView(client));
        }
        self.after(RETRY_TIMEOUT, Event::Retry(asked, tries));
    }
}

struct SimRandom(Xoshiro256PlusPlus);

impl SimRandom {
    /// Random number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }
}
