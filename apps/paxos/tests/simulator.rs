//! Simulation of replicas, clients, a network that counts votes, and faults: a seed gives one run.
//!
//! ```text
//! faults until FAULTS_END: loss, repeats, reordering, cut links, crashes with and without an unfinished write
//! then a time without faults, in which everything must finish
//! ```

mod clients;

use std::collections::BTreeMap;

use apps_load::Random;
use paxos::consensus::{
    Cast, Clear, Effects, Input, Message, Mutant, Record, Replica, ReplicaConfig, ReplicaId, Slot, Step, Value,
};
use paxos::pb;
use paxos::store::Registers;
use prost::Message as _;

use clients::Client;

use crate::counting::{Caster, Counters};
use crate::history::History;

const FAULTS_END: u64 = 6_000;
const END: u64 = 60_000;
const TICK: u64 = 20;
const CLIENTS: u64 = 3;
const CLIENT_TIMEOUT: u64 = 150;
const KEYS: u64 = 2;
/// Slots between two snapshots.
const CHECKPOINT: Slot = 12;

enum Event {
    Deliver {
        to: ReplicaId,
        from: ReplicaId,
        message: Message,
    },
    /// Answer of the network to a replica's cast or clear, for this life of it.
    Answer {
        to: Caster,
        input: Input,
    },
    Count {
        caster: Caster,
        cast: Cast,
    },
    ClearCounters {
        by: Caster,
        clear: Clear,
    },
    CountersFail,
    Tick {
        to: Caster,
    },
    Election {
        to: Caster,
        contacts: u64,
    },
    Call {
        client: u64,
    },
    Answered {
        client: u64,
        number: u64,
        outcome: pb::Outcome,
    },
    GiveUp {
        client: u64,
        number: u64,
        attempt: u32,
    },
    Crash {
        id: ReplicaId,
    },
    Restart {
        id: ReplicaId,
    },
    Cut {
        links: u64,
    },
}

/// Host of a replica.
struct Host {
    life: u32,
    replica: Option<Replica>,
    disk: Vec<Record>,
    registers: Registers,
    checkpoint: Slot,
    /// Clients that wait here, with the number of their command.
    waiting: BTreeMap<u64, u64>,
}

/// Run of a seed.
pub(crate) struct Simulation {
    random: Random,
    now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    config: ReplicaConfig,
    hosts: Vec<Host>,
    clients: Vec<Client>,
    counters: Counters,
    /// Cut links: bit `8 * from + to`.
    cut: u64,
    loss: f64,
    late: f64,
    crash_in_write: f64,
    pub(crate) history: History,
    /// Hash of all events, and number of votes that the network counted.
    pub(crate) trace: u64,
    pub(crate) counted: u64,
    pub(crate) elections: u64,
}

impl Simulation {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut random = Random::new(seed);
        let counters = if random.happens(0.6) { 8 } else { 0 };
        let replicas = if counters == 0 && random.happens(0.4) { 5 } else { 3 };
        let config = ReplicaConfig { id: 0, replicas, counters, mutant };
        let host = |_| Host {
            life: 0,
            replica: None,
            disk: Vec::new(),
            registers: Registers::default(),
            checkpoint: 0,
            waiting: BTreeMap::new(),
        };
        let left = 10 + random.below(30) as u32;
        let client = |client: u64| Client { number: 0, attempt: 0, left, target: (client % 3) as ReplicaId };
        let mut simulation = Self {
            now: 0,
            order: 0,
            queue: BTreeMap::new(),
            config,
            hosts: (0..replicas).map(host).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            counters: Counters::new(counters),
            cut: 0,
            loss: random.unit() * 0.15,
            late: random.unit() * random.unit() * 0.3,
            crash_in_write: random.unit() * random.unit() * 0.03,
            history: History::default(),
            trace: 0,
            counted: 0,
            elections: 0,
            random,
        };
        simulation.schedule_faults();
        (0..replicas).for_each(|id| simulation.restart(id));
        (0..CLIENTS).for_each(|client| simulation.at(10, Event::Call { client }));
        simulation
    }

    fn schedule_faults(&mut self) {
        for _ in 0..self.random.below(14) {
            let at = self.random.below(FAULTS_END);
            let until = (at + 1 + self.random.below(800)).min(FAULTS_END);
            let id = self.random.below(self.hosts.len() as u64) as ReplicaId;
            match self.random.below(5) {
                0 | 1 => {
                    self.at(at, Event::Crash { id });
                    self.at(until, Event::Restart { id });
                }
                2 => self.at(at, Event::CountersFail),
                3 => {
                    let links = self.random.bits() & self.random.bits();
                    self.at(at, Event::Cut { links });
                    self.at(until, Event::Cut { links: 0 });
                }
                _ => {
                    // One host alone.
                    let links = (0xff << (8 * id)) | (0x0101_0101_0101_0101 << id);
                    self.at(at, Event::Cut { links });
                    self.at(until, Event::Cut { links: 0 });
                }
            }
        }
        (0..self.hosts.len() as u8).for_each(|id| self.at(FAULTS_END, Event::Restart { id }));
        self.at(FAULTS_END, Event::Cut { links: 0 });
    }

    /// Runs to the end. Returns the first broken rule.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(((at, order), event)) = self.queue.pop_first() {
            (self.now, self.trace) = (at, (self.trace ^ at ^ order).wrapping_mul(0x0100_0000_01b3));
            if self.now > END {
                return Err("not finished in time".to_owned());
            }
            self.execute(event);
            if let Some(broken) = &self.history.broken {
                return Err(format!("at {at}: {broken}"));
            }
            if self.now > FAULTS_END && self.is_finished() {
                return self.history.check();
            }
        }
        Err("nothing is left to do".to_owned())
    }

    fn is_finished(&self) -> bool {
        let last = self.history.chosen.last_key_value().map_or(0, |(slot, _)| *slot);
        let applied = |host: &Host| host.replica.as_ref().is_some_and(|replica| replica.applied() == last);
        self.clients.iter().all(|client| client.left == 0) && self.hosts.iter().all(applied)
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.queue.insert((at.max(self.now), self.order), event);
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    fn has_faults(&self) -> bool {
        self.now < FAULTS_END
    }

    /// Time on a link; seldom very long, while there are faults.
    fn delay(&mut self) -> u64 {
        let late = self.has_faults() && self.random.happens(self.late);
        1 + if late { self.random.below(400) } else { self.random.below(8) }
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Deliver { to, from, message } => self.input(to, Input::Message { from, message }),
            Event::Answer { to, input } => {
                if self.lives(to) {
                    self.input(to.0, input);
                }
            }
            Event::Count { caster, cast } => {
                for (caster, cast) in self.counters.count(caster, cast) {
                    self.counted += 1;
                    let delay = self.delay();
                    self.after(delay, Event::Answer { to: caster, input: Input::Counted(cast) });
                }
            }
            Event::ClearCounters { by, clear } => {
                self.counters.clear(clear);
                let delay = self.delay();
                self.after(delay, Event::Answer { to: by, input: Input::Cleared(clear) });
            }
            Event::CountersFail => {
                for (caster, cast) in self.counters.fail() {
                    self.after(30, Event::Answer { to: caster, input: Input::CastFailed(cast) });
                }
            }
            Event::Tick { to } => {
                if self.lives(to) {
                    self.input(to.0, Input::Tick);
                    self.after(TICK, Event::Tick { to });
                }
            }
            Event::Election { to, contacts } => self.election(to, contacts),
            Event::Call { client } => self.call(client),
            Event::Answered { client, number, outcome } => self.answered(client, number, outcome),
            Event::GiveUp { client, number, attempt } => self.give_up(client, number, attempt),
            Event::Crash { id } => self.hosts[usize::from(id)].replica = None,
            Event::Restart { id } => {
                if self.hosts[usize::from(id)].replica.is_none() {
                    self.restart(id);
                }
            }
            Event::Cut { links } => self.cut = links,
        }
    }

    fn lives(&self, (id, life): Caster) -> bool {
        let host = &self.hosts[usize::from(id)];
        host.replica.is_some() && host.life == life
    }

    fn restart(&mut self, id: ReplicaId) {
        let config = ReplicaConfig { id, ..self.config };
        let host = &mut self.hosts[usize::from(id)];
        let (replica, effects) = Replica::start(config, host.disk.clone());
        host.life += 1;
        (host.replica, host.registers, host.checkpoint) = (Some(replica), Registers::default(), 0);
        host.waiting.clear();
        let to = (id, host.life);
        self.finish(id, effects);
        self.after(TICK, Event::Tick { to });
        let delay = 1 + self.random.below(200);
        self.after(delay, Event::Election { to, contacts: 0 });
    }

    fn election(&mut self, to: Caster, contacts: u64) {
        if !self.lives(to) {
            return;
        }
        let Some(replica) = &self.hosts[usize::from(to.0)].replica else { return };
        let (heard, leading) = (replica.leader_contacts(), replica.is_leading());
        let disturbs = self.has_faults() && self.random.happens(0.03);
        if (heard == contacts && !leading) || disturbs {
            self.elections += 1;
            self.input(to.0, Input::LeaderTimeout);
        }
        let contacts = self.hosts[usize::from(to.0)].replica.as_ref().map_or(0, Replica::leader_contacts);
        let delay = 80 + self.random.below(250);
        self.after(delay, Event::Election { to, contacts });
    }

    fn input(&mut self, id: ReplicaId, input: Input) {
        let Some(replica) = &mut self.hosts[usize::from(id)].replica else { return };
        let mut effects = Effects::default();
        replica.handle(input, &mut effects);
        self.finish(id, effects);
    }

    /// Executes effects as a driver does: a crash may come before the records are on disk.
    fn finish(&mut self, id: ReplicaId, mut effects: Effects) {
        let to_self = self.send_all(id, std::mem::take(&mut effects.urgent));
        if let Some(replica) = &mut self.hosts[usize::from(id)].replica {
            for message in to_self {
                replica.handle(Input::Message { from: id, message }, &mut effects);
            }
        }
        let more = std::mem::take(&mut effects.urgent);
        let crashes = self.has_faults() && !effects.records.is_empty() && self.random.happens(self.crash_in_write);
        let written = if crashes { self.random.below(effects.records.len() as u64 + 1) as usize } else { usize::MAX };
        let host = &mut self.hosts[usize::from(id)];
        host.disk.extend(effects.records.iter().take(written).cloned());
        if crashes {
            host.replica = None;
            let restart = 1 + if self.random.happens(0.5) { self.random.below(10) } else { self.random.below(300) };
            return self.after(restart, Event::Restart { id });
        }
        let snapshot = effects.records.iter().any(|record| matches!(record, Record::Snapshot { .. }));
        if let Some(replica) = host.replica.as_ref().filter(|_| snapshot) {
            host.disk = replica.records();
        }
        let mut to_self = self.send_all(id, more);
        to_self.extend(self.send_all(id, effects.messages));
        self.cast_and_clear(id, effects.casts, effects.clears);
        effects.steps.into_iter().for_each(|step| self.apply(id, step));
        to_self.into_iter().for_each(|message| self.input(id, Input::Message { from: id, message }));
    }

    /// Sends messages over the links. Returns those to the sender itself.
    fn send_all(&mut self, from: ReplicaId, messages: Vec<(ReplicaId, Message)>) -> Vec<Message> {
        let mut to_self = Vec::new();
        for (to, message) in messages {
            if to == from {
                to_self.push(message);
                continue;
            }
            let faults = self.has_faults();
            let cut = self.cut >> (8 * u64::from(from) + u64::from(to)) & 1 == 1;
            let copies = match () {
                () if faults && (cut || self.random.happens(self.loss)) => 0,
                () if faults && self.random.happens(0.1) => 2,
                () => 1,
            };
            for _ in 0..copies {
                let delay = self.delay();
                self.after(delay, Event::Deliver { to, from, message: message.clone() });
            }
        }
        to_self
    }

    /// Sends votes and clears. A frame arrives once, perhaps late and after the death of its sender.
    fn cast_and_clear(&mut self, id: ReplicaId, casts: Vec<Cast>, clears: Vec<Clear>) {
        let by = (id, self.hosts[usize::from(id)].life);
        for cast in casts {
            let delay = self.delay();
            if self.has_faults() && self.random.happens(0.01) {
                self.after(delay, Event::Answer { to: by, input: Input::CastFailed(cast) });
            }
            self.after(delay, Event::Count { caster: by, cast });
        }
        for clear in clears {
            let delay = self.delay();
            self.after(delay, Event::ClearCounters { by, clear });
        }
    }

    fn apply(&mut self, id: ReplicaId, step: Step) {
        self.history.apply(&step);
        let host = &mut self.hosts[usize::from(id)];
        let slot = match step {
            Step::Install { upto, state } => {
                host.registers = Registers::restore(&state).expect("a written state");
                host.checkpoint = upto;
                return;
            }
            Step::Apply { slot, value: Value::Noop } => slot,
            Step::Apply { slot, value: Value::Command(bytes) } => {
                let command = pb::Command::decode(&bytes[..]).expect("a command");
                let (client, number) = (command.client, command.number);
                let outcome = host.registers.apply(slot, command);
                if let Some(outcome) = outcome.filter(|_| host.waiting.get(&client) == Some(&number)) {
                    host.waiting.remove(&client);
                    let delay = self.delay();
                    self.after(delay, Event::Answered { client, number, outcome });
                }
                slot
            }
        };
        let host = &mut self.hosts[usize::from(id)];
        if slot >= host.checkpoint + CHECKPOINT {
            host.checkpoint = slot;
            let state = host.registers.snapshot().into();
            self.input(id, Input::Checkpoint { upto: slot, state });
        }
    }
}
