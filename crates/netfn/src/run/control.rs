//! Controller of a function that runs in one process: placer, scaler, and delayed delivery of their messages.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pathcall_wire::Instant;

use super::Config;
use crate::installer::Installer;
use crate::place::{self, EntryNumber, EntryValues, LeaseOutput, Placer, ServerId};
use crate::scale::{self, Ranges, Scaler, TopologyDevice, ValueBlock, Version};
use crate::serve::{FunctionHandler, HandlerServer};
use pathcall_p4::exec::Execution;
use pathcall_p4::split::SplitFunction;

/// Controller with the messages in flight.
pub struct DelayedController {
    placer: Placer,
    scaler: Scaler,
    installer: Installer,
    capacity: u64,
    control_us: u64,
    report_every: Duration,
    next_report_us: u64,
    next_window_us: u64,
    ran_us: Option<u64>,
    /// Messages in flight with their arrival times; all have the same delay, so the queue is in order.
    in_flight: VecDeque<(u64, InFlightMessage)>,
    /// Request counts of the servers at their last report.
    counted: BTreeMap<ServerId, u64>,
    /// Blocks of partitions owned by servers, and blocks being taken back.
    blocks: BTreeMap<(ServerId, usize), Vec<ValueBlock>>,
    taken: Vec<(ServerId, usize, ValueBlock)>,
    ranges: Vec<Ranges>,
}

/// Message in flight.
enum InFlightMessage {
    Place(u64, Vec<place::Command>),
    Scale(u64, Vec<scale::Command>),
    Lease(ServerId, pathcall_p4::ir::TableId, Vec<u128>, EntryNumber),
    Given(ServerId, EntryValues),
    Release(ServerId, EntryNumber),
    Group(ServerId, Version, Vec<u16>, Option<(Version, Vec<u16>)>),
    Give(ServerId, usize, ValueBlock),
    Take(ServerId, usize, ValueBlock),
    Drain(ServerId, Option<Duration>),
    /// Input of the controller's placer.
    Placed(place::Input),
    Scaled(scale::Input),
}

impl DelayedController {
    /// Controller of an element that is to run `split`, with these servers.
    pub fn new(split: &SplitFunction, devices: Vec<TopologyDevice>, config: &Config) -> Self {
        let balance = split.generated.balance.clone();
        let partitions: Vec<_> = balance.partitions.iter().map(|partition| partition.values).collect();
        let buckets = 1 << balance.sizes.buckets_log2;
        let installer = Installer::new(&split.element, balance, devices);
        Self {
            placer: Placer::new(config.place.clone(), installer.facts()),
            scaler: Scaler::new(scale::Config { buckets, ..config.scale.clone() }, &partitions),
            ranges: partitions.iter().map(|(first, last)| Ranges::new(*first, *last)).collect(),
            next_window_us: installer.window_us(),
            installer,
            capacity: config.capacity,
            control_us: config.control_us,
            report_every: config.report_every,
            next_report_us: 0,
            ran_us: None,
            in_flight: VecDeque::new(),
            counted: BTreeMap::new(),
            blocks: BTreeMap::new(),
            taken: Vec::new(),
        }
    }

    /// Time of the next call of [`Self::run`].
    pub fn next_at(&self) -> Option<u64> {
        let machines = self.placer.poll_timeout().into_iter().chain(self.scaler.poll_timeout());
        // Work due within a microsecond is done after it; work that was due and could not be done waits for the next
        // input.
        let machines = machines.map(|at| at.0.div_ceil(1000)).filter(|at| self.ran_us.is_none_or(|ran| *at > ran));
        let in_flight = self.in_flight.front().map(|(at, _)| *at);
        machines.chain(in_flight).chain([self.next_report_us, self.next_window_us]).min()
    }

    /// Handles a digest of the element.
    pub fn digest(&mut self, now_us: u64, name: &str, values: &[u128]) {
        if let Some(report) = self.installer.decode_report(name, values) {
            self.send(now_us, InFlightMessage::Placed(place::Input::Report(report)));
        }
    }

    /// Sends the outputs of a server to the controller.
    pub fn poll_server<H: FunctionHandler>(&mut self, now_us: u64, id: ServerId, server: &mut HandlerServer<H>) {
        while let Some(output) = server.poll() {
            let input = match output {
                LeaseOutput::Leased { number, entry } => place::Input::Leased { server: id, number, entry },
                LeaseOutput::Recall { number } => place::Input::Recall { server: id, number },
                LeaseOutput::Add { .. } => continue,
            };
            self.send(now_us, InFlightMessage::Placed(input));
        }
    }

    /// Sets the servers that the operator wants in the group.
    pub fn set_wanted(&mut self, now_us: u64, servers: Vec<ServerId>) {
        self.send(now_us, InFlightMessage::Scaled(scale::Input::SetWanted(servers)));
    }

    /// Handles a restart of the element: discards the messages to and from the element as it was.
    pub fn element_restarted(&mut self, now_us: u64) {
        let of_before = |message: &InFlightMessage| {
            let applied = |input: &place::Input| matches!(input, place::Input::Applied { .. });
            match message {
                InFlightMessage::Place(..)
                | InFlightMessage::Scale(..)
                | InFlightMessage::Scaled(scale::Input::Applied { .. }) => true,
                InFlightMessage::Placed(input) => applied(input),
                _ => false,
            }
        };
        self.in_flight.retain(|(_, message)| !of_before(message));
        self.installer.restarted();
        self.placer.handle(instant(now_us), place::Input::ElementRestarted);
        self.scaler.handle(instant(now_us), scale::Input::ElementRestarted);
    }

    /// Counters of the placement.
    pub fn placed(&self) -> place::Stats {
        self.placer.stats()
    }

    /// Counters of the scaling.
    pub fn scaled(&self) -> scale::Stats {
        self.scaler.stats()
    }

    /// Does all work that is due.
    pub fn run<H: FunctionHandler>(
        &mut self,
        now_us: u64,
        element: &mut dyn Execution,
        servers: &mut [Option<HandlerServer<H>>],
    ) {
        let now = instant(now_us);
        if now_us >= self.next_report_us {
            self.next_report_us = now_us + self.report_every.as_micros() as u64;
            self.report_loads(now_us, servers);
        }
        if now_us >= self.next_window_us {
            self.next_window_us = (now_us / self.installer.window_us() + 1) * self.installer.window_us();
            if let Some(window) = self.installer.window(element, now_us) {
                self.placer.handle(now, place::Input::Window(window));
            }
        }
        while self.in_flight.front().is_some_and(|(at, _)| *at <= now_us) {
            let Some((_, message)) = self.in_flight.pop_front() else { break };
            self.deliver(now_us, message, element, servers);
        }
        if self.placer.poll_timeout().is_some_and(|at| at <= now) {
            self.placer.handle_timeout(now);
        }
        if self.scaler.poll_timeout().is_some_and(|at| at <= now) {
            self.scaler.handle_timeout(now);
        }
        for (id, server) in servers.iter_mut().enumerate() {
            if let Some(server) = server {
                self.poll_server(now_us, id as ServerId, server);
            }
        }
        self.poll_machines(now_us);
        self.ran_us = Some(now_us);
    }

    fn poll_machines(&mut self, now_us: u64) {
        while let Some(output) = self.placer.poll() {
            let message = match output {
                place::Output::Element { batch, commands } => InFlightMessage::Place(batch, commands),
                place::Output::Lease { server, table, key, number } => {
                    InFlightMessage::Lease(server, table, key, number)
                }
                place::Output::Give { server, given } => InFlightMessage::Given(server, given),
                place::Output::Release { server, number } => InFlightMessage::Release(server, number),
            };
            self.send(now_us, message);
        }
        while let Some(output) = self.scaler.poll() {
            let message = match output {
                scale::Output::Element { batch, commands } => InFlightMessage::Scale(batch, commands),
                scale::Output::Group { server, version, buckets, old } => {
                    InFlightMessage::Group(server, version, buckets, old)
                }
                scale::Output::Give { server, block: (partition, block) } => {
                    InFlightMessage::Give(server, partition, block)
                }
                scale::Output::Take { server, block: (partition, block) } => {
                    InFlightMessage::Take(server, partition, block)
                }
                scale::Output::Event(scale::Event::Up(server)) => {
                    InFlightMessage::Placed(place::Input::ServerUp(server))
                }
                scale::Output::Event(scale::Event::Down { server, .. }) => {
                    self.blocks.retain(|(id, _), _| *id != server);
                    InFlightMessage::Placed(place::Input::ServerDown(server))
                }
                scale::Output::Drain { server, idle } => InFlightMessage::Drain(server, idle),
                scale::Output::Event(_) => continue,
            };
            self.send(now_us, message);
        }
    }

    fn deliver<H: FunctionHandler>(
        &mut self,
        now_us: u64,
        message: InFlightMessage,
        element: &mut dyn Execution,
        servers: &mut [Option<HandlerServer<H>>],
    ) {
        match message {
            InFlightMessage::Place(batch, commands) => {
                let outcome = self.installer.place(element, &commands);
                let (refused, given) = (outcome.refused, outcome.given);
                self.send(now_us, InFlightMessage::Placed(place::Input::Applied { batch, refused, given }));
            }
            InFlightMessage::Scale(batch, commands) => {
                self.installer.scale(element, &commands);
                self.send(now_us, InFlightMessage::Scaled(scale::Input::Applied { batch }));
            }
            InFlightMessage::Lease(id, table, key, number) => {
                at(servers, id).into_iter().for_each(|server| server.lease(now_us, table, &key, number));
            }
            InFlightMessage::Given(id, given) => {
                at(servers, id).into_iter().for_each(|server| server.take(&given));
                self.send(now_us, InFlightMessage::Placed(place::Input::Taken { server: id, number: given.number }));
            }
            InFlightMessage::Release(id, number) => {
                at(servers, id).into_iter().for_each(|server| server.release(now_us, number));
            }
            InFlightMessage::Group(id, version, buckets, old) => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                at(servers, id).into_iter().for_each(|server| server.set_group(version, &buckets, old));
            }
            InFlightMessage::Give(id, partition, block) => {
                self.blocks.entry((id, partition)).or_default().push(block);
                at(servers, id).into_iter().for_each(|server| self.set_server_ranges(id, partition, server));
            }
            InFlightMessage::Take(id, partition, block) => {
                self.blocks.entry((id, partition)).or_default().retain(|other| *other != block);
                self.taken.push((id, partition, block));
                at(servers, id).into_iter().for_each(|server| self.set_server_ranges(id, partition, server));
            }
            InFlightMessage::Drain(id, idle) => {
                at(servers, id).into_iter().for_each(|server| server.drain(now_us, idle));
            }
            InFlightMessage::Placed(input) => self.placer.handle(instant(now_us), input),
            InFlightMessage::Scaled(input) => self.scaler.handle(instant(now_us), input),
        }
    }

    /// Gives a server its ranges, with adjacent blocks joined.
    fn set_server_ranges<H: FunctionHandler>(&self, id: ServerId, partition: usize, server: &mut HandlerServer<H>) {
        let blocks = self.blocks.get(&(id, partition)).into_iter().flatten();
        let mut values: Vec<_> = blocks.map(|block| self.ranges[partition].values(*block)).collect();
        values.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for (first, last) in values {
            match ranges.last_mut() {
                Some(before) if before.1 + 1 == first => before.1 = last,
                _ => ranges.push((first, last)),
            }
        }
        server.set_ranges(partition, &ranges);
    }

    /// Reports the load of the servers, and the blocks that can be returned.
    fn report_loads<H: FunctionHandler>(&mut self, now_us: u64, servers: &mut [Option<HandlerServer<H>>]) {
        for (id, server) in servers.iter_mut().enumerate() {
            let (id, Some(server)) = (id as ServerId, server) else { continue };
            server.expire(now_us);
            let requests = server.stats().requests;
            let before = self.counted.insert(id, requests).unwrap_or(0);
            let rate = (requests - before) as f64 / self.report_every.as_secs_f64();
            let (flows, old_flows, version) = server.flows();
            let load = rate / self.capacity.max(1) as f64;
            let load = scale::Load { server: id, incarnation: 0, load, flows, old_flows, version };
            self.send(now_us, InFlightMessage::Scaled(scale::Input::Load(load)));
            let free = |(owner, partition, block): &mut (ServerId, usize, ValueBlock)| {
                *owner == id && !server.uses(*partition, self.ranges[*partition].values(*block))
            };
            let freed: Vec<_> = self.taken.extract_if(.., free).collect();
            for (server, partition, block) in freed {
                self.send(
                    now_us,
                    InFlightMessage::Scaled(scale::Input::Returned { server, block: (partition, block) }),
                );
            }
        }
    }

    fn send(&mut self, now_us: u64, message: InFlightMessage) {
        self.in_flight.push_back((now_us + self.control_us, message));
    }
}

fn at<H>(servers: &mut [Option<HandlerServer<H>>], id: ServerId) -> Option<&mut HandlerServer<H>> {
    servers.get_mut(usize::from(id)).and_then(Option::as_mut)
}

fn instant(now_us: u64) -> Instant {
    Instant(now_us * 1000)
}
