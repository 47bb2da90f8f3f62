//! The controller's half: from reports to entries in the element, and back.
//!
//! ```text
//!          reported, among the largest      all servers asked have answered
//! nowhere ────────────────────────► asked ────────────────────────► in the element
//!    ▲                                │ nobody has it, or recalled          │ unused, smaller than others, recalled
//!    └──── fallow, then reset ◄───────┴──────────── leaving ◄───────────────┘
//! ```
//!
//! The number of an entry is given before its servers are asked: whatever changes at a server from the lease on is
//! said with that number by the response that changed it, so the element stops using the entry before a packet behind
//! that response could match it, even if the entry comes later than that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::Instant;

use super::numbers::Numbers;
use super::{
    Command, Config, EntryNumber, Feedback, Given, Heavy, Input, Mode, Output, ServerId, Stats, Strategy, TableFacts,
    Window,
};
use crate::ir::{Entry, Match, TableId};

/// Decides which entries an element has.
#[derive(Debug, Clone)]
pub struct Placer {
    pub(super) config: Config,
    pub(super) tables: Vec<Place>,
    pub(super) servers: BTreeSet<ServerId>,
    pub(super) entries: BTreeMap<EntryNumber, Placed>,
    /// Those in the element, or on their way there, by what they match.
    pub(super) by_match: BTreeMap<(TableId, Vec<Match>), EntryNumber>,
    /// Entries that packets use no more, which stay until their servers have their values.
    pub(super) giving: BTreeSet<(TableId, Vec<Match>)>,
    /// What servers are asked for.
    pub(super) asked: BTreeSet<(TableId, Vec<u128>)>,
    pub(super) reports: BTreeMap<(TableId, Vec<u128>), u32>,
    pub(super) feedback: Feedback,
    /// The threshold that the element has been told.
    pub(super) told: Option<u32>,
    pub(super) dice: super::rank::Dice,
    pub(super) commands: Vec<Command>,
    pub(super) batches: BTreeMap<u64, Vec<Command>>,
    batch: u64,
    pub(super) outputs: VecDeque<Output>,
    pub(super) stats: Stats,
}

/// A table, with the numbers of its entries.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) facts: TableFacts,
    pub(super) numbers: Numbers,
    /// Entries that it has, or is about to have.
    pub(super) taken: u32,
    /// Lengths of prefixes that are there, with how many: what may cover a key.
    pub(super) prefixes: BTreeMap<Vec<u16>, u32>,
    /// How often an entry was placed, of those that left lately.
    pub(super) returns: BTreeMap<Vec<Match>, u32>,
}

/// An entry that is somewhere between asked for and gone.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) table: usize,
    pub(super) key: Vec<u128>,
    /// Of the flow that it was placed for.
    pub(super) hash: u32,
    /// Packets of the last window that it was used for; of its flow, before that.
    pub(super) size: u64,
    pub(super) since: Instant,
    pub(super) used: Instant,
    /// How often it came before.
    pub(super) returns: u32,
    pub(super) stage: Stage,
    pub(super) holders: Vec<ServerId>,
    pub(super) entry: Option<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Asked {
        waiting: BTreeSet<ServerId>,
        until: Instant,
        agree: bool,
    },
    Inserting,
    In(Mode),
    /// Its values go to these servers before it does.
    Giving(BTreeSet<ServerId>),
    Leaving,
}

/// Why an entry leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Aged,
    Replaced,
    Recalled,
}

impl Placer {
    /// Places entries of these tables.
    #[must_use]
    pub fn new(config: Config, tables: Vec<TableFacts>) -> Self {
        let room = tables.iter().map(|table| u64::from(table.capacity)).sum();
        let place = |facts: TableFacts| Place {
            numbers: Numbers::new(facts.first_number, facts.capacity.saturating_mul(2)),
            facts,
            taken: 0,
            prefixes: BTreeMap::new(),
            returns: BTreeMap::new(),
        };
        Self {
            feedback: Feedback::new(config.k, config.tolerance, room),
            dice: super::rank::Dice::new(config.seed),
            config,
            tables: tables.into_iter().map(place).collect(),
            servers: BTreeSet::new(),
            entries: BTreeMap::new(),
            by_match: BTreeMap::new(),
            giving: BTreeSet::new(),
            asked: BTreeSet::new(),
            reports: BTreeMap::new(),
            told: None,
            commands: Vec::new(),
            batches: BTreeMap::new(),
            batch: 0,
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Something happened. [`Placer::poll`] until it is empty gives what is to be done.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Heavy(heavy) => self.heavy(heavy),
            Input::Window(window) => self.window(now, &window),
            Input::Leased { server, number, entry } => self.leased(now, server, number, entry),
            Input::Recall { server, number } => self.recall(now, server, number),
            Input::Applied { batch, refused, given } => self.applied(now, batch, &refused, given),
            Input::Taken { server, number } => self.taken(server, number),
            Input::ElementRestarted => self.restarted(now),
            Input::ServerUp(server) => drop(self.servers.insert(server)),
            Input::ServerDown(server) => self.server_down(now, server),
        }
        self.flush();
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let late = |placed: &Placed| matches!(&placed.stage, Stage::Asked { until, .. } if *until <= now);
        let numbers: Vec<_> =
            self.entries.iter().filter(|(_, placed)| late(placed)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(Placed { stage: Stage::Asked { waiting, .. }, .. }) = self.entries.get_mut(&number) else {
                continue;
            };
            for server in std::mem::take(waiting) {
                // Its answer may be on its way, and the lease with it.
                self.outputs.push_back(Output::Release { server, number });
            }
            self.answered(now, number);
        }
        for place in &mut self.tables {
            self.commands.extend(place.numbers.fallow_until(now).map(Command::Reset));
        }
        self.flush();
    }

    /// When [`Placer::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let asked = self.entries.values().filter_map(|placed| match &placed.stage {
            Stage::Asked { until, .. } => Some(*until),
            _ => None,
        });
        asked.chain(self.tables.iter().filter_map(|place| place.numbers.next_at())).min()
    }

    /// What is to be done.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Entries that the element has, or is about to have.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.by_match.len()
    }

    fn heavy(&mut self, Heavy { table, key, hash }: Heavy) {
        self.stats.reports += 1;
        if self.reports.len() >= self.config.reports_max {
            self.stats.reports_dropped += 1;
        } else if self.tables.iter().any(|place| place.facts.table == table) {
            self.reports.insert((table, key), hash);
        }
    }

    fn window(&mut self, now: Instant, window: &Window) {
        for placed in self.entries.values_mut() {
            placed.size = 0;
        }
        for (number, packets) in &window.used {
            if let Some(placed) = self.entries.get_mut(number) {
                (placed.used, placed.size) = (now, u64::from(*packets));
            }
        }
        let reports = std::mem::take(&mut self.reports);
        let threshold = match self.config.strategy {
            Strategy::None => u32::MAX,
            Strategy::Random | Strategy::Heap => 1,
            Strategy::Threshold => {
                // Those that are there already are not reported.
                let large = reports.len() + window.used.len();
                self.feedback.next(window.packets, window.flows(), large as u64)
            }
        };
        if self.told != Some(threshold) {
            self.told = Some(threshold);
            self.commands.push(Command::Threshold(threshold));
        }
        self.choose(now, window, reports);
    }

    /// Asks all servers for the entry that matches: which of them has it, the element can't say.
    pub(super) fn ask(&mut self, now: Instant, table: usize, key: Vec<u128>, hash: u32, size: u64) {
        let place = &mut self.tables[table];
        let Some(number) = place.numbers.take() else { return };
        place.taken += 1;
        let stage = Stage::Asked { waiting: self.servers.clone(), until: now + self.config.answer_within, agree: true };
        let id = place.facts.table;
        for server in &self.servers {
            let lease = Output::Lease { server: *server, table: id, key: key.clone(), number };
            self.outputs.push_back(lease);
        }
        self.asked.insert((id, key.clone()));
        let placed = Placed {
            table,
            key,
            hash,
            size,
            since: now,
            used: now,
            returns: 0,
            stage,
            holders: Vec::new(),
            entry: None,
        };
        self.entries.insert(number, placed);
        self.answered(now, number);
    }

    /// Whether servers are being asked for it.
    pub(super) fn is_asked(&self, of: &(TableId, Vec<u128>)) -> bool {
        self.asked.contains(of)
    }

    /// The entry in the element that matches: by the longest prefix that is there.
    pub(super) fn covering(&self, table: usize, key: &[u128]) -> Option<EntryNumber> {
        let place = &self.tables[table];
        let matched = |bits: &Vec<u16>| {
            let one =
                |((value, bits), width): ((&u128, &u16), &u16)| super::holder::prefix_match(*value, *bits, *width);
            let matches: Vec<Match> = key.iter().zip(bits).zip(&place.facts.widths).map(one).collect();
            self.by_match.get(&(place.facts.table, matches)).copied()
        };
        place.prefixes.keys().rev().find_map(matched)
    }

    fn leased(&mut self, now: Instant, server: ServerId, number: EntryNumber, entry: Option<Entry>) {
        let stage =
            self.entries.get_mut(&number).map(|placed| (&mut placed.stage, &mut placed.holders, &mut placed.entry));
        let Some((Stage::Asked { waiting, agree, .. }, holders, known)) = stage else {
            if entry.is_some() {
                self.outputs.push_back(Output::Release { server, number });
            }
            return;
        };
        if !waiting.remove(&server) {
            return;
        }
        if let Some(entry) = entry {
            holders.push(server);
            match known {
                // Servers that all hold a table may each have more beneath a prefix: the longest is right for all.
                Some(one) if one.action == entry.action && one.args == entry.args => {
                    let bits = |entry: &Entry| entry.keys.iter().map(|key| u32::from(key.prefix_bits)).sum::<u32>();
                    if bits(&entry) > bits(one) {
                        *one = entry;
                    }
                }
                Some(_) => *agree = false,
                None => *known = Some(entry),
            }
        }
        self.answered(now, number);
    }

    /// If all servers have answered, the entry goes into the element, or nowhere.
    pub(super) fn answered(&mut self, now: Instant, number: EntryNumber) {
        let Some(placed) = self.entries.get_mut(&number) else { return };
        let Stage::Asked { waiting, agree, .. } = &placed.stage else { return };
        if !waiting.is_empty() {
            return;
        }
        let place = &mut self.tables[placed.table];
        let id = place.facts.table;
        self.asked.remove(&(id, placed.key.clone()));
        let entry = placed.entry.clone().filter(|_| *agree);
        // The element has one that matches the same, or keeps it until its values are taken.
        let (by_match, giving) = (&self.by_match, &self.giving);
        let there = |listed: &(TableId, Vec<Match>)| by_match.contains_key(listed) || giving.contains(listed);
        match entry {
            Some(entry) if !there(&(id, entry.keys.clone())) => {
                placed.stage = Stage::Inserting;
                placed.since = now;
                placed.used = now;
                placed.returns = place.returns.get(&entry.keys).copied().unwrap_or(0);
                self.by_match.insert((id, entry.keys.clone()), number);
                *place.prefixes.entry(entry.keys.iter().map(|key| key.prefix_bits).collect()).or_default() += 1;
                self.commands.push(Command::Insert { table: id, entry, number });
            }
            _ => {
                self.stats.refused += 1;
                self.release(now, number, false);
            }
        }
    }

    fn applied(&mut self, now: Instant, batch: u64, refused: &[EntryNumber], given: Vec<Given>) {
        let mut given: BTreeMap<_, _> = given.into_iter().map(|given| (given.number, given)).collect();
        for command in self.batches.remove(&batch).unwrap_or_default() {
            match command {
                Command::Insert { number, .. } if refused.contains(&number) => {
                    self.stats.refused += 1;
                    let stage = self.entries.get(&number).map(|placed| &placed.stage);
                    // What is about to leave is released when it has.
                    let leaves = matches!(stage, Some(Stage::Giving(_) | Stage::Leaving));
                    self.unlist(number, false);
                    if !leaves {
                        self.release(now, number, false);
                    }
                }
                Command::Insert { number, .. } => {
                    if let Some(placed) = self.entries.get_mut(&number) {
                        self.stats.placed += 1;
                        if placed.stage == Stage::Inserting {
                            placed.stage = Stage::In(Mode::Active);
                        }
                    }
                }
                Command::Remove { number, .. } => self.release(now, number, true),
                Command::Mode { number, mode: Mode::Pending, .. } => self.give(number, given.remove(&number)),
                Command::Reset(number) => {
                    let of = self.tables.iter_mut().find(|place| place.numbers.owns(number));
                    of.into_iter().for_each(|place| place.numbers.reset(number));
                }
                Command::Mode { .. } | Command::Threshold(_) => {}
            }
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// The keys that an entry matches, with its table.
    pub(super) fn matches(&self, number: EntryNumber) -> Option<(TableId, Vec<Match>)> {
        let placed = self.entries.get(&number)?;
        Some((self.tables[placed.table].facts.table, placed.entry.as_ref()?.keys.clone()))
    }

    fn flush(&mut self) {
        let mut commands = std::mem::take(&mut self.commands).into_iter().peekable();
        while commands.peek().is_some() {
            let commands: Vec<_> = commands.by_ref().take(self.config.batch.max(1)).collect();
            self.batch += 1;
            self.batches.insert(self.batch, commands.clone());
            self.outputs.push_back(Output::Element { batch: self.batch, commands });
        }
    }
}
