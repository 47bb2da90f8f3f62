//! Placer of the controller: from flow reports to entries in the element, and back.
//!
//! ```text
//!    reported, among the largest                    every server has answered
//! none ─────────────────────────► lease requested ─────────────────────► in the element
//!   ▲                                   │ no server has it, or recalled       │ unused, smaller than others, recalled
//!   └── number in quarantine, reset ◄───┴─── removing ◄───────────────────────┘
//! ```
//!
//! An entry gets its number before its servers are asked. A server that changes the entry after the lease names the
//! number in its response, so the element stops using the entry before a later packet can match it, even if the entry
//! is inserted after that response.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::{Instant, SplitMix64};

use super::entry_numbers::EntryNumbers;
use super::{
    Command, Config, EntryMode, EntryNumber, EntryValues, FlowReport, Input, Output, PlacementStrategy, ServerId,
    SketchWindow, Stats, TableFacts, ThresholdFeedback,
};
use pathcall_p4::ir::{Match, TableEntry, TableId};

/// Placer: decides which entries an element has.
#[derive(Debug, Clone)]
pub struct Placer {
    pub(super) config: Config,
    pub(super) tables: Vec<TableState>,
    pub(super) servers: BTreeSet<ServerId>,
    pub(super) entries: BTreeMap<EntryNumber, PlacedEntry>,
    /// Entries in the element or on their way there, by their keys.
    pub(super) by_match: BTreeMap<(TableId, Vec<Match>), EntryNumber>,
    /// Entries that are no longer used and wait for their servers to receive the register values.
    pub(super) returning_values: BTreeSet<(TableId, Vec<Match>)>,
    /// Lookups for which servers are being asked.
    pub(super) lease_requests: BTreeSet<(TableId, Vec<u128>)>,
    pub(super) reports: BTreeMap<(TableId, Vec<u128>), u32>,
    pub(super) feedback: ThresholdFeedback,
    /// Last threshold sent to the element.
    pub(super) sent_threshold: Option<u32>,
    pub(super) random: SplitMix64,
    pub(super) commands: Vec<Command>,
    pub(super) batches: BTreeMap<u64, Vec<Command>>,
    batch: u64,
    pub(super) outputs: VecDeque<Output>,
    pub(super) stats: Stats,
}

/// Placement state of one table.
#[derive(Debug, Clone)]
pub(super) struct TableState {
    pub(super) facts: TableFacts,
    pub(super) numbers: EntryNumbers,
    /// Entries in the table, including those on their way.
    pub(super) taken: u32,
    /// Number of placed entries for each combination of prefix lengths, for lookups of covering entries.
    pub(super) prefixes: BTreeMap<Vec<u16>, u32>,
    /// Number of earlier placements of entries that left lately.
    pub(super) returns: BTreeMap<Vec<Match>, u32>,
}

/// Entry between the request to its servers and the end of its removal.
#[derive(Debug, Clone)]
pub(super) struct PlacedEntry {
    pub(super) table: usize,
    pub(super) key: Vec<u128>,
    /// Hash of the flow that the entry was placed for.
    pub(super) hash: u32,
    /// Packets that used the entry in the last window; before the first use, packets of the flow.
    pub(super) size: u64,
    pub(super) since: Instant,
    pub(super) used: Instant,
    /// Number of earlier placements.
    pub(super) returns: u32,
    pub(super) stage: Stage,
    pub(super) holders: Vec<ServerId>,
    pub(super) entry: Option<TableEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    LeaseRequested {
        waiting: BTreeSet<ServerId>,
        until: Instant,
        agree: bool,
    },
    Inserting,
    Placed(EntryMode),
    /// The register values go to these servers before the entry is removed.
    ReturningValues(BTreeSet<ServerId>),
    Removing,
}

/// Reason of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalReason {
    Aged,
    Replaced,
    Recalled,
}

impl Placer {
    /// Placer for these tables.
    #[must_use]
    pub fn new(config: Config, tables: Vec<TableFacts>) -> Self {
        let room = tables.iter().map(|table| u64::from(table.capacity)).sum();
        let place = |facts: TableFacts| TableState {
            numbers: EntryNumbers::new(facts.first_number, facts.capacity.saturating_mul(2)),
            facts,
            taken: 0,
            prefixes: BTreeMap::new(),
            returns: BTreeMap::new(),
        };
        Self {
            feedback: ThresholdFeedback::new(config.k, config.tolerance, room),
            random: SplitMix64::new(config.seed),
            config,
            tables: tables.into_iter().map(place).collect(),
            servers: BTreeSet::new(),
            entries: BTreeMap::new(),
            by_match: BTreeMap::new(),
            returning_values: BTreeSet::new(),
            lease_requests: BTreeSet::new(),
            reports: BTreeMap::new(),
            sent_threshold: None,
            commands: Vec::new(),
            batches: BTreeMap::new(),
            batch: 0,
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Handles an input; [`Placer::poll`] then returns the outputs.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Report(report) => self.handle_report(report),
            Input::Window(window) => self.handle_window(now, &window),
            Input::Leased { server, number, entry } => self.handle_lease_answer(now, server, number, entry),
            Input::Recall { server, number } => self.handle_recall(now, server, number),
            Input::Applied { batch, refused, given } => self.handle_applied(now, batch, &refused, given),
            Input::Taken { server, number } => self.handle_taken(server, number),
            Input::ElementRestarted => self.handle_element_restart(now),
            Input::ServerUp(server) => drop(self.servers.insert(server)),
            Input::ServerDown(server) => self.handle_server_down(now, server),
        }
        self.flush();
    }

    /// Handles the expiry of deadlines.
    pub fn handle_timeout(&mut self, now: Instant) {
        let late = |placed: &PlacedEntry| matches!(&placed.stage, Stage::LeaseRequested { until, .. } if *until <= now);
        let numbers: Vec<_> =
            self.entries.iter().filter(|(_, placed)| late(placed)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(PlacedEntry { stage: Stage::LeaseRequested { waiting, .. }, .. }) = self.entries.get_mut(&number)
            else {
                continue;
            };
            for server in std::mem::take(waiting) {
                // The server's answer may be on its way, and the lease with it.
                self.outputs.push_back(Output::Release { server, number });
            }
            self.finish_lease_request(now, number);
        }
        for place in &mut self.tables {
            self.commands.extend(place.numbers.end_quarantines(now).map(Command::Reset));
        }
        self.flush();
    }

    /// Time of the next call of [`Placer::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = self.entries.values().filter_map(|placed| match &placed.stage {
            Stage::LeaseRequested { until, .. } => Some(*until),
            _ => None,
        });
        deadlines.chain(self.tables.iter().filter_map(|place| place.numbers.next_at())).min()
    }

    /// Next output, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Counters of the placement.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Entries that the element has, including those on their way.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.by_match.len()
    }

    fn handle_report(&mut self, FlowReport { table, key, hash }: FlowReport) {
        self.stats.reports += 1;
        if self.reports.len() >= self.config.reports_max {
            self.stats.reports_dropped += 1;
        } else if self.tables.iter().any(|place| place.facts.table == table) {
            self.reports.insert((table, key), hash);
        }
    }

    fn handle_window(&mut self, now: Instant, window: &SketchWindow) {
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
            PlacementStrategy::None => u32::MAX,
            PlacementStrategy::Random | PlacementStrategy::Heap => 1,
            PlacementStrategy::Threshold => {
                // Flows whose entries are in the element are not reported.
                let large = reports.len() + window.used.len();
                self.feedback.next(window.packets, window.flows(), large as u64)
            }
        };
        if self.sent_threshold != Some(threshold) {
            self.sent_threshold = Some(threshold);
            self.commands.push(Command::Threshold(threshold));
        }
        self.select(now, window, reports);
    }

    /// Asks all servers for the entry that matches, because the element does not know which server has it.
    pub(super) fn request_leases(&mut self, now: Instant, table: usize, key: Vec<u128>, hash: u32, size: u64) {
        let place = &mut self.tables[table];
        let Some(number) = place.numbers.take() else { return };
        place.taken += 1;
        let stage = Stage::LeaseRequested {
            waiting: self.servers.clone(),
            until: now + self.config.answer_within,
            agree: true,
        };
        let id = place.facts.table;
        for server in &self.servers {
            let lease = Output::Lease { server: *server, table: id, key: key.clone(), number };
            self.outputs.push_back(lease);
        }
        self.lease_requests.insert((id, key.clone()));
        let placed = PlacedEntry {
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
        self.finish_lease_request(now, number);
    }

    /// Whether servers are being asked for this key.
    pub(super) fn is_lease_requested(&self, of: &(TableId, Vec<u128>)) -> bool {
        self.lease_requests.contains(of)
    }

    /// Placed entry that matches the key, the longest prefix first.
    pub(super) fn covering(&self, table: usize, key: &[u128]) -> Option<EntryNumber> {
        let place = &self.tables[table];
        let matched = |bits: &Vec<u16>| {
            let one = |((value, bits), width): ((&u128, &u16), &u16)| {
                super::lease_holder::prefix_match(*value, *bits, *width)
            };
            let matches: Vec<Match> = key.iter().zip(bits).zip(&place.facts.widths).map(one).collect();
            self.by_match.get(&(place.facts.table, matches)).copied()
        };
        place.prefixes.keys().rev().find_map(matched)
    }

    fn handle_lease_answer(&mut self, now: Instant, server: ServerId, number: EntryNumber, entry: Option<TableEntry>) {
        let stage =
            self.entries.get_mut(&number).map(|placed| (&mut placed.stage, &mut placed.holders, &mut placed.entry));
        let Some((Stage::LeaseRequested { waiting, agree, .. }, holders, known)) = stage else {
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
                // Servers that share a table may have different prefixes beneath: the longest answer is right for all.
                Some(one) if one.action == entry.action && one.args == entry.args => {
                    let bits =
                        |entry: &TableEntry| entry.keys.iter().map(|key| u32::from(key.prefix_bits)).sum::<u32>();
                    if bits(&entry) > bits(one) {
                        *one = entry;
                    }
                }
                Some(_) => *agree = false,
                None => *known = Some(entry),
            }
        }
        self.finish_lease_request(now, number);
    }

    /// Inserts the entry once all servers have answered; drops it if no server has it.
    pub(super) fn finish_lease_request(&mut self, now: Instant, number: EntryNumber) {
        let Some(placed) = self.entries.get_mut(&number) else { return };
        let Stage::LeaseRequested { waiting, agree, .. } = &placed.stage else { return };
        if !waiting.is_empty() {
            return;
        }
        let place = &mut self.tables[placed.table];
        let id = place.facts.table;
        self.lease_requests.remove(&(id, placed.key.clone()));
        let entry = placed.entry.clone().filter(|_| *agree);
        // The element has an entry with the same keys, or keeps one until its values are stored.
        let (by_match, returning_values) = (&self.by_match, &self.returning_values);
        let has_entry =
            |listed: &(TableId, Vec<Match>)| by_match.contains_key(listed) || returning_values.contains(listed);
        match entry {
            Some(entry) if !has_entry(&(id, entry.keys.clone())) => {
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

    fn handle_applied(&mut self, now: Instant, batch: u64, refused: &[EntryNumber], given: Vec<EntryValues>) {
        let mut given: BTreeMap<_, _> = given.into_iter().map(|given| (given.number, given)).collect();
        for command in self.batches.remove(&batch).unwrap_or_default() {
            match command {
                Command::Insert { number, .. } if refused.contains(&number) => {
                    self.stats.refused += 1;
                    let stage = self.entries.get(&number).map(|placed| &placed.stage);
                    // An entry that is about to leave is released after its removal.
                    let leaves = matches!(stage, Some(Stage::ReturningValues(_) | Stage::Removing));
                    self.remove_from_index(number, false);
                    if !leaves {
                        self.release(now, number, false);
                    }
                }
                Command::Insert { number, .. } => {
                    if let Some(placed) = self.entries.get_mut(&number) {
                        self.stats.placed += 1;
                        if placed.stage == Stage::Inserting {
                            placed.stage = Stage::Placed(EntryMode::Active);
                        }
                    }
                }
                Command::Remove { number, .. } => self.release(now, number, true),
                Command::Mode { number, mode: EntryMode::Pending, .. } => {
                    self.handle_final_values(number, given.remove(&number))
                }
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

    /// Table and keys of an entry.
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
