//! The controller: placer and scaler, and how their words reach the element and the servers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pathcall_wire::Instant;

use super::Config;
use crate::exec::Execution;
use crate::installer::Installer;
use crate::place::{self, EntryNumber, Given, HolderOutput, Placer, ServerId};
use crate::scale::{self, Block, Device, Ranges, Scaler, Version};
use crate::serve::{Handler, Server};
use crate::split::Split;

/// The controller.
pub struct Control {
    placer: Placer,
    scaler: Scaler,
    installer: Installer,
    capacity: u64,
    control_us: u64,
    report_every: Duration,
    next_report_us: u64,
    next_window_us: u64,
    ran_us: Option<u64>,
    /// Words under way, with when they arrive: all take as long, so the first is the next.
    words: VecDeque<(u64, Word)>,
    /// Requests that servers had at their last report.
    counted: BTreeMap<ServerId, u64>,
    /// Blocks of partitions that servers have, and those that they shall give back.
    blocks: BTreeMap<(ServerId, usize), Vec<Block>>,
    taken: Vec<(ServerId, usize, Block)>,
    ranges: Vec<Ranges>,
}

/// What somebody is told.
enum Word {
    Place(u64, Vec<place::Command>),
    Scale(u64, Vec<scale::Command>),
    Lease(ServerId, crate::ir::TableId, Vec<u128>, EntryNumber),
    Given(ServerId, Given),
    Release(ServerId, EntryNumber),
    Group(ServerId, Version, Vec<u16>, Option<(Version, Vec<u16>)>),
    Give(ServerId, usize, Block),
    Take(ServerId, usize, Block),
    Drain(ServerId, Option<Duration>),
    /// To the controller.
    Placed(place::Input),
    Scaled(scale::Input),
}

impl Control {
    /// Of an element that is to run this, with these servers.
    pub fn new(split: &Split, devices: Vec<Device>, config: &Config) -> Self {
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
            words: VecDeque::new(),
            counted: BTreeMap::new(),
            blocks: BTreeMap::new(),
            taken: Vec::new(),
        }
    }

    /// When [`Self::run`] is to be called.
    pub fn next_at(&self) -> Option<u64> {
        let machines = self.placer.poll_timeout().into_iter().chain(self.scaler.poll_timeout());
        // What is due within a microsecond is done behind it; what was due and is still, waits for something to happen.
        let machines = machines.map(|at| at.0.div_ceil(1000)).filter(|at| self.ran_us.is_none_or(|ran| *at > ran));
        let words = self.words.front().map(|(at, _)| *at);
        machines.chain(words).chain([self.next_report_us, self.next_window_us]).min()
    }

    /// An element's digest.
    pub fn digest(&mut self, now_us: u64, name: &str, values: &[u128]) {
        if let Some(heavy) = self.installer.heavy(name, values) {
            self.later(now_us, Word::Placed(place::Input::Heavy(heavy)));
        }
    }

    /// A server has something to say.
    pub fn heard<H: Handler>(&mut self, now_us: u64, id: ServerId, server: &mut Server<H>) {
        while let Some(said) = server.poll() {
            let input = match said {
                HolderOutput::Leased { number, entry } => place::Input::Leased { server: id, number, entry },
                HolderOutput::Recall { number } => place::Input::Recall { server: id, number },
                HolderOutput::Add { .. } => continue,
            };
            self.later(now_us, Word::Placed(input));
        }
    }

    /// The operator wants the group to be these servers.
    pub fn want(&mut self, now_us: u64, servers: Vec<ServerId>) {
        self.later(now_us, Word::Scaled(scale::Input::Want(servers)));
    }

    /// The element began anew: what was on its way to it, or from it about that, is of the one before.
    pub fn element_restarted(&mut self, now_us: u64) {
        let of_before = |word: &Word| {
            let applied = |input: &place::Input| matches!(input, place::Input::Applied { .. });
            match word {
                Word::Place(..) | Word::Scale(..) | Word::Scaled(scale::Input::Applied { .. }) => true,
                Word::Placed(input) => applied(input),
                _ => false,
            }
        };
        self.words.retain(|(_, word)| !of_before(word));
        self.installer.restarted();
        self.placer.handle(instant(now_us), place::Input::ElementRestarted);
        self.scaler.handle(instant(now_us), scale::Input::ElementRestarted);
    }

    /// What placement counted.
    pub fn placed(&self) -> place::Stats {
        self.placer.stats()
    }

    /// What scaling counted.
    pub fn scaled(&self) -> scale::Stats {
        self.scaler.stats()
    }

    /// Does what is due.
    pub fn run<H: Handler>(&mut self, now_us: u64, element: &mut dyn Execution, servers: &mut [Option<Server<H>>]) {
        let now = instant(now_us);
        if now_us >= self.next_report_us {
            self.next_report_us = now_us + self.report_every.as_micros() as u64;
            self.reports(now_us, servers);
        }
        if now_us >= self.next_window_us {
            self.next_window_us = (now_us / self.installer.window_us() + 1) * self.installer.window_us();
            if let Some(window) = self.installer.window(element, now_us) {
                self.placer.handle(now, place::Input::Window(window));
            }
        }
        while self.words.front().is_some_and(|(at, _)| *at <= now_us) {
            let Some((_, word)) = self.words.pop_front() else { break };
            self.said(now_us, word, element, servers);
        }
        if self.placer.poll_timeout().is_some_and(|at| at <= now) {
            self.placer.handle_timeout(now);
        }
        if self.scaler.poll_timeout().is_some_and(|at| at <= now) {
            self.scaler.handle_timeout(now);
        }
        for (id, server) in servers.iter_mut().enumerate() {
            if let Some(server) = server {
                self.heard(now_us, id as ServerId, server);
            }
        }
        self.outputs(now_us);
        self.ran_us = Some(now_us);
    }

    fn outputs(&mut self, now_us: u64) {
        while let Some(output) = self.placer.poll() {
            let word = match output {
                place::Output::Element { batch, commands } => Word::Place(batch, commands),
                place::Output::Lease { server, table, key, number } => Word::Lease(server, table, key, number),
                place::Output::Give { server, given } => Word::Given(server, given),
                place::Output::Release { server, number } => Word::Release(server, number),
            };
            self.later(now_us, word);
        }
        while let Some(output) = self.scaler.poll() {
            let word = match output {
                scale::Output::Element { batch, commands } => Word::Scale(batch, commands),
                scale::Output::Group { server, version, buckets, old } => Word::Group(server, version, buckets, old),
                scale::Output::Give { server, block: (partition, block) } => Word::Give(server, partition, block),
                scale::Output::Take { server, block: (partition, block) } => Word::Take(server, partition, block),
                scale::Output::Event(scale::Event::Up(server)) => Word::Placed(place::Input::ServerUp(server)),
                scale::Output::Event(scale::Event::Down { server, .. }) => {
                    self.blocks.retain(|(id, _), _| *id != server);
                    Word::Placed(place::Input::ServerDown(server))
                }
                scale::Output::Drain { server, idle } => Word::Drain(server, idle),
                scale::Output::Event(_) => continue,
            };
            self.later(now_us, word);
        }
    }

    fn said<H: Handler>(
        &mut self,
        now_us: u64,
        word: Word,
        element: &mut dyn Execution,
        servers: &mut [Option<Server<H>>],
    ) {
        match word {
            Word::Place(batch, commands) => {
                let outcome = self.installer.place(element, &commands);
                let (refused, given) = (outcome.refused, outcome.given);
                self.later(now_us, Word::Placed(place::Input::Applied { batch, refused, given }));
            }
            Word::Scale(batch, commands) => {
                self.installer.scale(element, &commands);
                self.later(now_us, Word::Scaled(scale::Input::Applied { batch }));
            }
            Word::Lease(id, table, key, number) => {
                at(servers, id).into_iter().for_each(|server| server.lease(now_us, table, &key, number));
            }
            Word::Given(id, given) => {
                at(servers, id).into_iter().for_each(|server| server.take(&given));
                self.later(now_us, Word::Placed(place::Input::Taken { server: id, number: given.number }));
            }
            Word::Release(id, number) => {
                at(servers, id).into_iter().for_each(|server| server.release(now_us, number));
            }
            Word::Group(id, version, buckets, old) => {
                let old = old.as_ref().map(|(version, buckets)| (*version, buckets.as_slice()));
                at(servers, id).into_iter().for_each(|server| server.set_group(version, &buckets, old));
            }
            Word::Give(id, partition, block) => {
                self.blocks.entry((id, partition)).or_default().push(block);
                at(servers, id).into_iter().for_each(|server| self.give(id, partition, server));
            }
            Word::Take(id, partition, block) => {
                self.blocks.entry((id, partition)).or_default().retain(|other| *other != block);
                self.taken.push((id, partition, block));
                at(servers, id).into_iter().for_each(|server| self.give(id, partition, server));
            }
            Word::Drain(id, idle) => {
                at(servers, id).into_iter().for_each(|server| server.drain(now_us, idle));
            }
            Word::Placed(input) => self.placer.handle(instant(now_us), input),
            Word::Scaled(input) => self.scaler.handle(instant(now_us), input),
        }
    }

    /// A server's ranges: blocks side by side are one.
    fn give<H: Handler>(&self, id: ServerId, partition: usize, server: &mut Server<H>) {
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

    /// What servers bear; and whether blocks that they shall give back are free.
    fn reports<H: Handler>(&mut self, now_us: u64, servers: &mut [Option<Server<H>>]) {
        for (id, server) in servers.iter_mut().enumerate() {
            let (id, Some(server)) = (id as ServerId, server) else { continue };
            server.expire(now_us);
            let requests = server.stats().requests;
            let before = self.counted.insert(id, requests).unwrap_or(0);
            let rate = (requests - before) as f64 / self.report_every.as_secs_f64();
            let (flows, old_flows, version) = server.flows();
            let load = rate / self.capacity.max(1) as f64;
            let load = scale::Load { server: id, incarnation: 0, load, flows, old_flows, version };
            self.later(now_us, Word::Scaled(scale::Input::Load(load)));
            let free = |(owner, partition, block): &mut (ServerId, usize, Block)| {
                *owner == id && !server.uses(*partition, self.ranges[*partition].values(*block))
            };
            let freed: Vec<_> = self.taken.extract_if(.., free).collect();
            for (server, partition, block) in freed {
                self.later(now_us, Word::Scaled(scale::Input::Returned { server, block: (partition, block) }));
            }
        }
    }

    fn later(&mut self, now_us: u64, word: Word) {
        self.words.push_back((now_us + self.control_us, word));
    }
}

fn at<H>(servers: &mut [Option<Server<H>>], id: ServerId) -> Option<&mut Server<H>> {
    servers.get_mut(usize::from(id)).and_then(Option::as_mut)
}

fn instant(now_us: u64) -> Instant {
    Instant(now_us * 1000)
}
