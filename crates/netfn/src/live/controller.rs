//! Controller of a function: placer and scaler for an element on the same host and servers elsewhere.

use std::collections::{BTreeMap, VecDeque};

use pathcall_wire::Instant;

use super::{ServerCommand, ServerMessage};
use crate::installer::Installer;
use crate::place::{self, Placer, ServerId};
use crate::scale::{self, Ranges, Scaler, TopologyDevice, ValueBlock};
use pathcall_p4::exec::{Execution, TableError};
use pathcall_p4::ir::{Match, TableEntry};
use pathcall_p4::split::{GeneratedObjects, SplitFunction};

/// Settings of a function's placement and scaling.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Placement of entries.
    pub place: place::Config,
    /// Scaling of server groups.
    pub scale: scale::Config,
}

/// Output of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Command for a server.
    Send(ServerId, ServerCommand),
    /// Event for the operator. After [`scale::Event::Down`] the transport discards queued commands of that server, and
    /// ignores its messages until it starts again.
    Event(scale::Event),
}

/// Controller of one element's function.
#[derive(Debug)]
pub struct Controller {
    placer: Placer,
    scaler: Scaler,
    installer: Installer,
    devices: Vec<TopologyDevice>,
    /// Incarnation of each server: greater with each start.
    incarnations: BTreeMap<ServerId, u32>,
    /// Blocks of partitions owned by servers.
    blocks: BTreeMap<(ServerId, usize), Vec<ValueBlock>>,
    ranges: Vec<Ranges>,
    next_window_us: u64,
    ran_us: Option<u64>,
    outputs: VecDeque<Output>,
}

impl Controller {
    /// Controller of an element that is to run `split`, with these servers.
    #[must_use]
    pub fn new(split: &SplitFunction, devices: Vec<TopologyDevice>, config: &Config) -> Self {
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

    /// Writes the entries that the element needs before its first packet: its own address, and the ports of the
    /// servers.
    ///
    /// # Errors
    /// If the element refuses an entry, as for two servers at one port.
    pub fn begin(
        &self,
        generated: &GeneratedObjects,
        element: &mut dyn Execution,
        address: [u8; 6],
    ) -> Result<(), TableError> {
        let address = address.iter().fold(0, |address, byte| address << 8 | u128::from(*byte));
        element.set_register(generated.address, 0, address);
        self.devices.iter().try_for_each(|device| {
            let keys = vec![Match { value: device.port.into(), prefix_bits: 9 }];
            element.insert(generated.servers, &TableEntry { keys, action: generated.from_server, args: Vec::new() })
        })
    }

    /// Handles the start of a server, which has no flows, entries or ranges.
    pub fn server_started(&mut self, now_us: u64, server: ServerId) {
        *self.incarnations.entry(server).or_default() += 1;
        let message = ServerMessage::Load { requests: 0.0, flows: 0, old_flows: 0, version: 0 };
        self.handle_message(now_us, server, message);
    }

    /// Handles a message of a started server.
    pub fn handle_message(&mut self, now_us: u64, server: ServerId, message: ServerMessage) {
        let now = instant(now_us);
        match message {
            ServerMessage::Leased { number, entry } => {
                self.placer.handle(now, place::Input::Leased { server, number, entry })
            }
            ServerMessage::Recall(number) => self.placer.handle(now, place::Input::Recall { server, number }),
            ServerMessage::Stored(number) => self.placer.handle(now, place::Input::Taken { server, number }),
            ServerMessage::Load { requests, flows, old_flows, version } => {
                let Some(device) = self.devices.get(usize::from(server)) else { return };
                let incarnation = self.incarnations.get(&server).copied().unwrap_or(0);
                let load = requests / device.capacity.max(1) as f64;
                let load = scale::Load { server, incarnation, load, flows, old_flows, version };
                self.scaler.handle(now, scale::Input::Load(load));
            }
            ServerMessage::ReturnedBlock { partition, block } => {
                self.scaler.handle(now, scale::Input::Returned { server, block: (partition, block) });
            }
        }
    }

    /// Handles a digest of the element.
    pub fn digest(&mut self, now_us: u64, name: &str, values: &[u128]) {
        if let Some(report) = self.installer.decode_report(name, values) {
            self.placer.handle(instant(now_us), place::Input::Report(report));
        }
    }

    /// Sets the servers that the operator wants in the group.
    pub fn set_wanted(&mut self, now_us: u64, servers: Vec<ServerId>) {
        self.scaler.handle(instant(now_us), scale::Input::SetWanted(servers));
    }

    /// Does all work that is due, including changes to the element.
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
        // Placement and scaling can each cause work for the other: repeat until neither has any.
        while self.poll_placer(now, element) || self.poll_scaler(now, element) {}
        self.ran_us = Some(now_us);
    }

    fn poll_placer(&mut self, now: Instant, element: &mut dyn Execution) -> bool {
        let Some(output) = self.placer.poll() else { return false };
        let (server, command) = match output {
            place::Output::Element { batch, commands } => {
                let outcome = self.installer.place(element, &commands);
                let (refused, given) = (outcome.refused, outcome.given);
                self.placer.handle(now, place::Input::Applied { batch, refused, given });
                return true;
            }
            place::Output::Lease { server, table, key, number } => {
                (server, ServerCommand::Lease { table, key, number })
            }
            place::Output::Give { server, given } => (server, ServerCommand::Store(given)),
            place::Output::Release { server, number } => (server, ServerCommand::Release(number)),
        };
        self.outputs.push_back(Output::Send(server, command));
        true
    }

    fn poll_scaler(&mut self, now: Instant, element: &mut dyn Execution) -> bool {
        let Some(output) = self.scaler.poll() else { return false };
        match output {
            scale::Output::Element { batch, commands } => {
                self.installer.scale(element, &commands);
                self.scaler.handle(now, scale::Input::Applied { batch });
            }
            scale::Output::Group { server, version, buckets, old } => {
                self.outputs.push_back(Output::Send(server, ServerCommand::Group { version, buckets, old }));
            }
            scale::Output::Give { server, block: (partition, block) } => {
                self.blocks.entry((server, partition)).or_default().push(block);
                self.send_ranges(server, partition);
            }
            scale::Output::Take { server, block: (partition, block) } => {
                self.blocks.entry((server, partition)).or_default().retain(|other| *other != block);
                self.send_ranges(server, partition);
                let values = self.ranges[partition].values(block);
                self.outputs.push_back(Output::Send(server, ServerCommand::ReturnBlock { partition, block, values }));
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
                self.outputs.push_back(Output::Send(server, ServerCommand::Drain(idle)));
            }
        }
        true
    }

    /// Sends a server its ranges, with adjacent blocks joined.
    fn send_ranges(&mut self, server: ServerId, partition: usize) {
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
        self.outputs.push_back(Output::Send(server, ServerCommand::Ranges { partition, ranges }));
    }

    /// Latest time of the next call of [`Self::run`].
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let machines = self.placer.poll_timeout().into_iter().chain(self.scaler.poll_timeout());
        // Work that was due and could not be done waits for the next input.
        let machines = machines.map(|at| at.0.div_ceil(1000)).filter(|at| self.ran_us.is_none_or(|ran| *at > ran));
        machines.fold(self.next_window_us, u64::min)
    }

    /// Next output, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Servers of the topology.
    #[must_use]
    pub fn devices(&self) -> &[TopologyDevice] {
        &self.devices
    }

    /// Scaler of the server groups.
    #[must_use]
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    /// Counters of the placement.
    #[must_use]
    pub fn placement(&self) -> place::Stats {
        self.placer.stats()
    }
}

fn instant(now_us: u64) -> Instant {
    Instant(now_us * 1000)
}
