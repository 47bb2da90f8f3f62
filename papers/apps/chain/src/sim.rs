//! The chain in a simulated network: nodes crash or hang, messages are lost, repeated and late, clocks differ;
//! all from a seed. The clients' histories are judged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::linear::{Kind, Operation, is_linearizable};
use crate::master::Master;
use crate::pb::update::Effect;
use crate::pb::{History, Member, PassRequest, Update, View};
use crate::replica::{Mutant, Next, Replica};

const MS: u64 = 1_000;
const LEASE: u64 = 80 * MS;
const RENEWAL: u64 = 20 * MS;
/// A client asks again after this.
const PATIENCE: u64 = 25 * MS;
/// It gives an operation up after so many times.
const TRIES: u32 = 40;
const OPERATIONS: u32 = 10;
const END: u64 = 20_000 * MS;

/// What came of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// Operations that ended.
    pub ended: usize,
    /// Those that were given up.
    pub given_up: usize,
    /// Nodes that crashed.
    pub crashes: usize,
    /// Views that there were.
    pub views: u64,
    /// Updates that a node recalled from its predecessor.
    pub recalls: usize,
}

/// Runs a seed; an error tells which key's history nobody can have seen.
///
/// # Errors
/// The history.
pub fn run(seed: u64, mutant: Option<Mutant>) -> Result<Ran, String> {
    let mut world = World::new(seed, mutant);
    while let Some(Reverse((at, _, index))) = world.queue.pop() {
        if at > END || world.finished == world.clients.len() {
            break;
        }
        world.now = at;
        let event = world.events.remove(&index).expect("each is queued once");
        world.happens(event);
    }
    let mut ran = Ran { views: world.master.view().number, ..world.ran };
    for (key, operations) in &world.histories {
        if !is_linearizable(operations) {
            return Err(format!("seed {seed}: {key} is not linearizable: {operations:#?}"));
        }
        ran.ended += operations.iter().filter(|operation| operation.ended.is_some()).count();
    }
    Ok(ran)
}

/// Where an answer belongs: a client, and which of its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    client: usize,
    operation: u32,
}

#[derive(Debug, Clone)]
enum Event {
    Write(usize, Update, Asked),
    Read(usize, String, Asked),
    Pass(usize, PassRequest, Asked),
    Recall { at: usize, by: usize, view: u64, after: u64 },
    Learn(usize, u64, History),
    Answer(Asked, String),
    Renew(usize, Duration),
    Renewed(usize, Duration, View),
    AskView(usize),
    View(usize, View),
    Renewal(usize),
    Removal,
    Crash(usize),
    Next(usize),
    Impatient(Asked, u32),
}

struct Node {
    replica: Replica,
    crashed: bool,
    /// It does nothing until then, and then all that came.
    hangs: u64,
    /// Millionths that its clock goes fast.
    drift: i64,
    /// Updates that came too early.
    held: Vec<(PassRequest, Asked)>,
}

impl Node {
    fn clock(&self, now: u64) -> Duration {
        Duration::from_micros((now as i64 + now as i64 * self.drift / 1_000_000) as u64)
    }
}

struct Client {
    view: View,
    key: String,
    operation: u32,
    tries: u32,
    /// Its operation in the history of the key.
    index: usize,
}

struct World {
    now: u64,
    chance: Chance,
    queue: BinaryHeap<Reverse<(u64, u64, u64)>>,
    events: BTreeMap<u64, Event>,
    queued: u64,
    nodes: Vec<Node>,
    master: Master,
    clients: Vec<Client>,
    histories: BTreeMap<String, Vec<Operation>>,
    /// Of a hundred.
    loss: u64,
    /// Clients that have nothing more to do.
    finished: usize,
    ran: Ran,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut chance = Chance(Xoshiro256PlusPlus::seed_from_u64(seed));
        let count = 1 + chance.below(5) as usize;
        let members = (0..count as u32).map(|id| Member { id, ..Member::default() }).collect::<Vec<_>>();
        let node = |id: usize, drift| {
            let replica = Replica::new(id as u32).planted(mutant);
            Node { replica, crashed: false, hangs: 0, drift, held: Vec::new() }
        };
        let nodes: Vec<_> = (0..count).map(|id| node(id, chance.below(100_001) as i64 - 50_000)).collect();
        let master = Master::new(Duration::ZERO, members, Duration::from_micros(LEASE));
        let view = master.view().clone();
        let client = |key| Client { view: view.clone(), key, operation: 0, tries: 0, index: 0 };
        let clients: Vec<_> = (0..2 + chance.below(4)).map(|_| client(format!("key{}", chance.below(2)))).collect();
        let loss = chance.below(15);
        let mut world = Self {
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
            ran: Ran::default(),
            chance,
        };
        world.after(0, Event::Removal);
        (0..count).for_each(|node| world.after(0, Event::Renewal(node)));
        (0..world.clients.len()).for_each(|client| world.after(30 * MS, Event::Next(client)));
        // All but one of them at most.
        let doomed = world.chance.below(count as u64) as usize;
        let first = world.chance.below(count as u64) as usize;
        for i in 0..doomed {
            let at = 30 * MS + world.chance.below(600 * MS);
            world.after(at, Event::Crash((first + i) % count));
        }
        world
    }

    fn after(&mut self, time: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + time, self.queued, self.queued)));
        self.events.insert(self.queued, event);
    }

    /// Sends a message: it may be lost, come twice, or late.
    fn send(&mut self, event: Event) {
        let copies = if self.chance.below(100) < self.loss { 0 } else { 1 + u64::from(self.chance.below(100) < 5) };
        for _ in 0..copies {
            let slow = if self.chance.below(100) < 5 { 200 * MS } else { 3 * MS };
            let time = 100 + self.chance.below(slow);
            self.after(time, event.clone());
        }
    }

    fn happens(&mut self, event: Event) {
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
            if node.hangs > self.now {
                let time = node.hangs - self.now;
                return self.after(time, event);
            }
        }
        match event {
            Event::Write(at, update, asked) => {
                let next = self.nodes[at].replica.write(update);
                self.go_on(at, next.ok(), None, asked);
            }
            Event::Pass(at, request, asked) => {
                let next = self.nodes[at].replica.pass(request.clone());
                self.go_on(at, next.ok(), Some(request), asked);
            }
            Event::Read(at, key, asked) => {
                let now = self.nodes[at].clock(self.now);
                // Who is refused waits as if nothing had come.
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
                for (request, asked) in std::mem::take(&mut self.nodes[at].held) {
                    self.after(0, Event::Pass(at, request, asked));
                }
            }
            Event::Renewal(at) => {
                self.after(RENEWAL, Event::Renewal(at));
                let asked = self.nodes[at].clock(self.now);
                self.send(Event::Renew(at, asked));
                if self.chance.below(400) == 0 {
                    self.nodes[at].hangs = self.now + self.chance.below(3 * LEASE);
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
                // Seldom the master hangs.
                let pause = if self.chance.below(200) == 0 { self.chance.below(3 * LEASE) } else { 5 * MS };
                self.after(pause, Event::Removal);
                self.master.remove_silent(Duration::from_micros(self.now));
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
            Event::Impatient(asked, tries) => {
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
                    let pause = self.chance.below(60 * MS);
                    self.after(pause, Event::Next(asked.client));
                }
            }
        }
    }

    fn go_on(&mut self, at: usize, next: Option<Next>, request: Option<PassRequest>, asked: Asked) {
        match next {
            Some(Next::Pass(to, pass)) => self.send(Event::Pass(to as usize, pass, asked)),
            Some(Next::Reply(value)) => self.send(Event::Answer(asked, value)),
            Some(Next::Missing { from, after }) => {
                let view = self.nodes[at].replica.view().number;
                self.nodes[at].held.extend(request.map(|request| (request, asked)));
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
        let kind = match self.chance.below(5) {
            0 => Kind::Put(what),
            1 | 2 => Kind::Append(what),
            _ => Kind::Get,
        };
        let operations = self.histories.entry(it.key.clone()).or_default();
        it.index = operations.len();
        operations.push(Operation { kind, began: self.now, ended: None });
        self.ask(client);
    }

    /// Asks, for the first time or again.
    fn ask(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let operation = &self.histories[&it.key][it.index];
        if operation.ended.is_some() {
            return;
        }
        it.tries += 1;
        let asked = Asked { client, operation: it.operation };
        if it.tries > TRIES {
            self.ran.given_up += 1;
            return self.after(0, Event::Next(client));
        }
        let (seq, key, tries) = (u64::from(it.operation), it.key.clone(), it.tries);
        let effect = match operation.kind.clone() {
            Kind::Get => None,
            Kind::Put(put) => Some(Effect::Put(put)),
            Kind::Append(append) => Some(Effect::Append(append)),
        };
        let members = &it.view.members;
        let at = if effect.is_some() { members.first() } else { members.last() };
        // Some ask anybody: who is not the one refuses.
        let at = match self.chance.below(8) {
            0 => self.chance.below(self.nodes.len() as u64) as usize,
            _ => at.expect("a chain has a node").id as usize,
        };
        match effect {
            None => self.send(Event::Read(at, key, asked)),
            effect => self.send(Event::Write(at, Update { client: client as u64, seq, key, effect }, asked)),
        }
        if tries > 1 {
            self.send(Event::AskView(client));
        }
        self.after(PATIENCE, Event::Impatient(asked, tries));
    }
}

struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// A number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }
}
