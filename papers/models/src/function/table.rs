//! Windows of packets through a model of the element's sketch and table, placed by the real controller.

use std::collections::{BTreeMap, BTreeSet};

use pathcall_function::ir::TableId;
use pathcall_function::place::{
    self, Command, Config, EntryNumber, Heavy, Holder, HolderOutput, Input, Output, Placer, Strategy, TableFacts,
    Window,
};
use pathcall_sim::random::Random;
use pathcall_wire::Instant;

use super::routes::Table;
use super::{Match, Run, WINDOW};

/// What came out, of the last half of the windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Of all packets, those that matched in the element.
    pub hits: f64,
    /// Of all packets, those of as many of the largest flows as the element has room for.
    pub optimal: f64,
    /// Reports of flows in a window.
    pub reports: f64,
    /// Entries in the element, as a share of the flows.
    pub selected: f64,
}

/// Places, and measures: the same each time.
#[must_use]
pub fn run(run: &Run) -> Measured {
    let mut model = Model::new(run);
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
    Measured {
        hits: hits as f64 / packets.max(1) as f64,
        optimal: model.shares[..run.room.min(run.flows)].iter().sum(),
        reports: reports as f64 / windows,
        selected: selected as f64 / windows / run.flows as f64,
    }
}

struct Model {
    random: Random,
    now: Instant,
    /// Of each flow, largest first: its share of the packets, and the sum of the shares up to it.
    shares: Vec<f64>,
    sums: Vec<f64>,
    keys: Vec<u32>,
    hashes: Vec<u32>,
    table: Table,
    holder: Holder,
    placer: Placer,
    threshold: u32,
    /// Entries in the element: by length and value.
    entries: BTreeMap<(u16, u32), EntryNumber>,
    lengths: BTreeSet<u16>,
}

impl Model {
    fn new(run: &Run) -> Self {
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
            Match::Exact => (Table::exact(), (0..run.flows as u32).collect()),
            Match::Longest => Table::routes(&mut random, run.flows),
        };
        let facts = TableFacts {
            table: TableId(0),
            widths: vec![32],
            capacity: run.room as u32,
            first_number: 0,
            handed: false,
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
            holder: Holder::new(0),
            placer,
            threshold: u32::MAX,
            entries: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }

    /// A window of packets, and what is placed after it: hits, and reports.
    fn window(&mut self, run: &Run) -> (usize, usize) {
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
                    Input::Heavy(Heavy { table: TableId(0), key: vec![self.keys[flow].into()], hash }),
                );
            }
        }
        self.now = self.now + WINDOW;
        // Every flow's statistics are reported to a heap, also of those that are placed (§VII-B).
        if run.strategy == Strategy::Heap {
            reports = seen.iter().filter(|seen| **seen).count();
        }
        let flows = seen.iter().filter(|seen| **seen).count() as u64;
        // The record of a window's flows has room for all of them.
        let marked = (flows, flows * 1000);
        let window = Window { packets: run.window as u64, marked, rows, used: used.into_iter().collect() };
        self.placer.handle(self.now, Input::Window(window));
        self.settle();
        (hits, reports)
    }

    fn matching(&self, key: u32) -> Option<EntryNumber> {
        let of = |bits: &u16| {
            let value = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0) & key;
            self.entries.get(&(*bits, value)).copied()
        };
        self.lengths.iter().rev().find_map(of)
    }

    /// The controller and the server talk until nothing is left to say.
    fn settle(&mut self) {
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
                    HolderOutput::Leased { number, entry } => Input::Leased { server: 0, number, entry },
                    HolderOutput::Recall { number } => Input::Recall { server: 0, number },
                    HolderOutput::Add { .. } => continue,
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
        let at = |keys: &[pathcall_function::ir::Match]| (keys[0].prefix_bits, keys[0].value as u32);
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
