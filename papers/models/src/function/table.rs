//! Windows of packets on a model of the element's sketch and table, with the real placer.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_netfn::place::{
    self, Command, Config, EntryNumber, FlowReport, Input, LeaseHolder, LeaseOutput, Output, PlacementStrategy, Placer,
    SketchWindow, TableFacts,
};
use pathcall_p4::ir::TableId;
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::routes::ServerTable;
use super::{MatchKind, PlacementRun, WINDOW};

/// Results of a placement run, for the second half of the windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementResults {
    /// Share of the packets that matched in the element.
    pub hits: f64,
    /// Share of the packets that belong to the largest flows, as many flows as entries fit into the element.
    pub optimal: f64,
    /// Reports of flows per window.
    pub reports: f64,
    /// Entries in the element, as a share of the flows.
    pub selected: f64,
}

/// Runs a placement. The result is deterministic.
#[must_use]
pub fn run(run: &PlacementRun) -> PlacementResults {
    let mut model = ElementModel::new(run);
    let (mut hits, mut packets, mut reports, mut selected, mut windows) = (0, 0, 0, 0, 0);
    for window in 0..run.windows {
        let (hit, reported) = model.window(run);
        if window >= run.windows / 2 {
            hits += hit;
            packets += run.window;
            reports += reported;
            selected += model.entries.len();
            windows += 1;
        }
    }
    let windows = f64::from(windows.max(1));
    PlacementResults {
        hits: hits as f64 / packets.max(1) as f64,
        optimal: model.shares[..run.room.min(run.flows)].iter().sum(),
        reports: reports as f64 / windows,
        selected: selected as f64 / windows / run.flows as f64,
    }
}

struct ElementModel {
    random: Random,
    now: Instant,
    /// Share of the packets of each flow, in descending order, and the cumulative shares.
    shares: Vec<f64>,
    sums: Vec<f64>,
    keys: Vec<u32>,
    hashes: Vec<u32>,
    table: ServerTable,
    holder: LeaseHolder,
    placer: Placer,
    threshold: u32,
    /// Entries in the element by prefix length and value.
    entries: BTreeMap<(u16, u32), EntryNumber>,
    lengths: BTreeSet<u16>,
}

impl ElementModel {
    fn new(run: &PlacementRun) -> Self {
        let mut random = Random::new(run.seed ^ 0x706c_6163_656d_656e);
        let mut shares: Vec<f64> = (1..=run.flows).map(|rank| (rank as f64).powf(-run.alpha)).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        let sums = shares.iter().scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        let sums = sums.collect();
        let (table, keys) = match run.kind {
            MatchKind::Exact => (ServerTable::exact(), (0..run.flows as u32).collect()),
            MatchKind::Longest => ServerTable::routes(&mut random, run.flows),
        };
        let facts = TableFacts {
            table: TableId(0),
            widths: vec![32],
            capacity: run.room as u32,
            first_number: 0,
            has_values: false,
        };
        let config = Config { strategy: run.strategy, seed: run.seed, ..Config::default() };
        let mut placer = Placer::new(config, vec![facts]);
        placer.handle(Instant(0), Input::ServerUp(0));
        Self {
            hashes: (0..run.flows).map(|_| random.bits() as u32).collect(),
            random,
            now: Instant(0),
            shares,
            sums,
            keys,
            table,
            holder: LeaseHolder::new(0),
            placer,
            threshold: u32::MAX,
            entries: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }

    /// Runs one window of packets and the placement after it; returns hits and reports.
    fn window(&mut self, run: &PlacementRun) -> (usize, usize) {
        let columns = 1usize << run.sketch_log2;
        let mut rows = [vec![0u32; columns], vec![0u32; columns]];
        let mut used: BTreeMap<EntryNumber, u32> = BTreeMap::new();
        let (mut seen, mut told) = (vec![false; self.keys.len()], vec![false; self.keys.len()]);
        let place: Vec<Option<EntryNumber>> = self.keys.iter().map(|key| self.matching(*key)).collect();
        let (mut hits, mut reports) = (0, 0);
        for _ in 0..run.window {
            let drawn = self.random.below(1 << 53) as f64 / (1u64 << 53) as f64;
            let flow = self.sums.partition_point(|sum| *sum <= drawn).min(self.keys.len() - 1);
            let hash = self.hashes[flow];
            let cells = [hash as usize % columns, (hash >> 16) as usize % columns];
            let least = cells.into_iter().zip(&mut rows).map(|(cell, row)| {
                row[cell] += 1;
                row[cell]
            });
            let least = least.min().unwrap_or(0);
            seen[flow] = true;
            if let Some(number) = place[flow] {
                hits += 1;
                *used.entry(number).or_default() += 1;
            } else if least >= self.threshold && !told[flow] {
                told[flow] = true;
                reports += 1;
                self.placer.handle(
                    self.now,
                    Input::Report(FlowReport { table: TableId(0), key: vec![self.keys[flow].into()], hash }),
                );
            }
        }
        self.now = self.now + WINDOW;
        // A heap receives the statistics of every flow, placed flows included (§VII-B).
        if run.strategy == PlacementStrategy::Heap {
            reports = seen.iter().filter(|seen| **seen).count();
        }
        let flows = seen.iter().filter(|seen| **seen).count() as u64;
        // The record of a window has room for all its flows.
        let marked = (flows, flows * 1000);
        let window = SketchWindow { packets: run.window as u64, marked, rows, used: used.into_iter().collect() };
        self.placer.handle(self.now, Input::Window(window));
        self.exchange_messages();
        (hits, reports)
    }

    fn matching(&self, key: u32) -> Option<EntryNumber> {
        let of = |bits: &u16| {
            let value = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0) & key;
            self.entries.get(&(*bits, value)).copied()
        };
        self.lengths.iter().rev().find_map(of)
    }

    /// Exchanges messages between controller and server until both are idle.
    fn exchange_messages(&mut self) {
        loop {
            while let Some(output) = self.placer.poll() {
                match output {
                    Output::Lease { table, key, number, .. } => self.holder.lease(&self.table, table, &key, number),
                    Output::Release { number, .. } => self.holder.released(&self.table, number),
                    Output::Give { .. } => {}
                    Output::Element { batch, commands } => {
                        commands.iter().for_each(|command| self.command(command));
                        let applied = Input::Applied { batch, refused: Vec::new(), given: Vec::new() };
                        self.placer.handle(self.now, applied);
                    }
                }
            }
            let mut said = false;
            while let Some(output) = self.holder.poll() {
                said = true;
                let input = match output {
                    LeaseOutput::Leased { number, entry } => Input::Leased { server: 0, number, entry },
                    LeaseOutput::Recall { number } => Input::Recall { server: 0, number },
                    LeaseOutput::Add { .. } => continue,
                };
                self.placer.handle(self.now, input);
            }
            self.placer.handle_timeout(self.now);
            if !said {
                break;
            }
        }
    }

    fn command(&mut self, command: &Command) {
        let at = |keys: &[pathcall_p4::ir::Match]| (keys[0].prefix_bits, keys[0].value as u32);
        match command {
            place::Command::Insert { entry, number, .. } => {
                self.lengths.insert(entry.keys[0].prefix_bits);
                self.entries.insert(at(&entry.keys), *number);
            }
            place::Command::Remove { keys, .. } => drop(self.entries.remove(&at(keys))),
            place::Command::Threshold(threshold) => self.threshold = *threshold,
            place::Command::Mode { .. } | place::Command::Reset(_) => {}
        }
    }
}
