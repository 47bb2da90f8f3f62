//! The controller of a function: placer and scaler, for an element beside it and servers elsewhere.

use std::collections::{BTreeMap, VecDeque};

use pathcall_wire::Instant;

use super::{Task, Word};
use crate::exec::{Execution, TableError};
use crate::installer::Installer;
use crate::ir::{Entry, Match};
use crate::place::{self, Placer, ServerId};
use crate::scale::{self, Block, Device, Ranges, Scaler};
use crate::split::{Generated, Split};

/// How a function is placed and scaled.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// How entries are placed.
    pub place: place::Config,
    /// How groups of servers change.
    pub scale: scale::Config,
}

/// What the controller wants of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A server is told this.
    Tell(ServerId, Task),
    /// An operator wants to know this. Whoever carries words hears of servers that are [`scale::Event::Down`] here:
    /// what was said to them is void, and nothing that they say counts until they begin anew.
    Event(scale::Event),
}

/// The controller of one element's function.
#[derive(Debug)]
pub struct Controller {
    placer: Placer,
    scaler: Scaler,
    installer: Installer,
    devices: Vec<Device>,
    /// For each server, which start of it this is: greater each time.
    incarnations: BTreeMap<ServerId, u32>,
    /// Blocks of partitions that servers have.
    blocks: BTreeMap<(ServerId, usize), Vec<Block>>,
    ranges: Vec<Ranges>,
    next_window_us: u64,
    ran_us: Option<u64>,
    outputs: VecDeque<Output>,
}

impl Controller {
    /// Of an element that is to run this, with these servers.
    #[must_use]
    pub fn new(split: &Split, devices: Vec<Device>, config: &Config) -> Self {
        let balance = split.generated.balance.clone();
        let partitions: Vec<_> = balance.partitions.iter().map(|partition| partition.values).collect();
        let buckets = 1 << balance.sizes.buckets_log2;
        let installer = Installer::new(&split.element, balance, devices.clone());
        Self {
            placer: Placer::new(config.place.clone(), installer.facts()),
            scaler: Scaler::new(scale::Config { buckets, ..config.scale.clone() }, &partitions),
            ranges: partitions.iter().map(|(first, last)| Ranges::new(*first, *last)).collect(),
            next_window_us: installer.window_us(),
            installer,
            devices,
            ran_us: None,
            incarnations: BTreeMap::new(),
            blocks: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// What the element has to know before its first packet: its own address, and at which ports servers are.
    ///
    /// # Errors
    /// If the element does not take it: two servers at one port.
    pub fn begin(
        &self,
        generated: &Generated,
        element: &mut dyn Execution,
        address: [u8; 6],
    ) -> Result<(), TableError> {
        let address = address.iter().fold(0, |address, byte| address << 8 | u128::from(*byte));
        element.set_register(generated.address, 0, address);
        self.devices.iter().try_for_each(|device| {
            let keys = vec![Match { value: device.port.into(), prefix_bits: 9 }];
            element.insert(generated.servers, &Entry { keys, action: generated.from_server, args: Vec::new() })
        })
    }

    /// A server begins: it has no flows, no entries and no ranges.
    pub fn began(&mut self, now_us: u64, server: ServerId) {
        *self.incarnations.entry(server).or_default() += 1;
        let word = Word::Load { requests: 0.0, flows: 0, old_flows: 0, version: 0 };
        self.heard(now_us, server, word);
    }

    /// A server that has begun says this.
    pub fn heard(&mut self, now_us: u64, server: ServerId, word: Word) {
        let now = instant(now_us);
        match word {
            Word::Leased { number, entry } => self.placer.handle(now, place::Input::Leased { server, number, entry }),
            Word::Recall(number) => self.placer.handle(now, place::Input::Recall { server, number }),
            Word::Taken(number) => self.placer.handle(now, place::Input::Taken { server, number }),
            Word::Load { requests, flows, old_flows, version } => {
                let Some(device) = self.devices.get(usize::from(server)) else { return };
                let incarnation = self.incarnations.get(&server).copied().unwrap_or(0);
                let load = requests / device.capacity.max(1) as f64;
                let load = scale::Load { server, incarnation, load, flows, old_flows, version };
                self.scaler.handle(now, scale::Input::Load(load));
            }
            Word::Returned { partition, block } => {
                self.scaler.handle(now, scale::Input::Returned { server, block: (partition, block) });
            }
        }
    }

    /// The element has told this.
    pub fn digest(&mut self, now_us: u64, name: &str, values: &[u128]) {
        if let Some(heavy) = self.installer.heavy(name, values) {
            self.placer.handle(instant(now_us), place::Input::Heavy(heavy));
        }
    }

    /// The operator wants the group to be these servers.
    pub fn want(&mut self, now_us: u64, servers: Vec<ServerId>) {
        self.scaler.handle(instant(now_us), scale::Input::Want(servers));
    }

    /// Does what is due, in the element too.
    pub fn run(&mut self, now_us: u64, element: &mut dyn Execution) {
        let now = instant(now_us);
        if now_us >= self.next_window_us {
            let window_us = self.installer.window_us();
            self.next_window_us = (now_us / window_us + 1) * window_us;
            if let Some(window) = self.installer.window(element, now_us) {
                self.placer.handle(now, place::Input::Window(window));
            }
        }
        if self.placer.poll_timeout().is_some_and(|at| at <= now) {
            self.placer.handle_timeout(now);
        }
        if self.scaler.poll_timeout().is_some_and(|at| at <= now) {
            self.scaler.handle_timeout(now);
        }
        // What one says may be the other's business: until both are silent.
        while self.placed(now, element) || self.scaled(now, element) {}
        self.ran_us = Some(now_us);
    }

    fn placed(&mut self, now: Instant, element: &mut dyn Execution) -> bool {
        let Some(output) = self.placer.poll() else { return false };
        let (server, task) = match output {
            place::Output::Element { batch, commands } => {
                let outcome = self.installer.place(element, &commands);
                let (refused, given) = (outcome.refused, outcome.given);
                self.placer.handle(now, place::Input::Applied { batch, refused, given });
                return true;
            }
            place::Output::Lease { server, table, key, number } => (server, Task::Lease { table, key, number }),
            place::Output::Give { server, given } => (server, Task::Give(given)),
            place::Output::Release { server, number } => (server, Task::Release(number)),
        };
        self.outputs.push_back(Output::Tell(server, task));
        true
    }

    fn scaled(&mut self, now: Instant, element: &mut dyn Execution) -> bool {
        let Some(output) = self.scaler.poll() else { return false };
        match output {
            scale::Output::Element { batch, commands } => {
                self.installer.scale(element, &commands);
                self.scaler.handle(now, scale::Input::Applied { batch });
            }
            scale::Output::Group { server, version, buckets, old } => {
                self.outputs.push_back(Output::Tell(server, Task::Group { version, buckets, old }));
            }
            scale::Output::Give { server, block: (partition, block) } => {
                self.blocks.entry((server, partition)).or_default().push(block);
                self.tell_ranges(server, partition);
            }
            scale::Output::Take { server, block: (partition, block) } => {
                self.blocks.entry((server, partition)).or_default().retain(|other| *other != block);
                self.tell_ranges(server, partition);
                let values = self.ranges[partition].values(block);
                self.outputs.push_back(Output::Tell(server, Task::Return { partition, block, values }));
            }
            scale::Output::Event(event) => {
                match event {
                    scale::Event::Up(server) => self.placer.handle(now, place::Input::ServerUp(server)),
                    scale::Event::Down { server, .. } => {
                        self.blocks.retain(|(id, _), _| *id != server);
                        self.placer.handle(now, place::Input::ServerDown(server));
                    }
                    _ => {}
                }
                self.outputs.push_back(Output::Event(event));
            }
            scale::Output::Drain { server, idle } => {
                self.outputs.push_back(Output::Tell(server, Task::Drain(idle)));
            }
        }
        true
    }

    /// A server's ranges: blocks side by side are one.
    fn tell_ranges(&mut self, server: ServerId, partition: usize) {
        let blocks = self.blocks.get(&(server, partition)).into_iter().flatten();
        let mut values: Vec<_> = blocks.map(|block| self.ranges[partition].values(*block)).collect();
        values.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for (first, last) in values {
            match ranges.last_mut() {
                Some(before) if before.1 + 1 == first => before.1 = last,
                _ => ranges.push((first, last)),
            }
        }
        self.outputs.push_back(Output::Tell(server, Task::Ranges { partition, ranges }));
    }

    /// When [`Self::run`] is to be called, at the latest.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let machines = self.placer.poll_timeout().into_iter().chain(self.scaler.poll_timeout());
        // What was due and is still, waits for something to happen.
        let machines = machines.map(|at| at.0.div_ceil(1000)).filter(|at| self.ran_us.is_none_or(|ran| *at > ran));
        machines.fold(self.next_window_us, u64::min)
    }

    /// The next that others are to hear.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The servers, as they were given.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The controller of groups.
    #[must_use]
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// What placement counted.
    #[must_use]
    pub fn placement(&self) -> place::Stats {
        self.placer.stats()
    }
}

fn instant(now_us: u64) -> Instant {
    Instant(now_us * 1000)
}
