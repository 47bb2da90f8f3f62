//! Installer of a controller's commands in the execution of a split program.
//!
//! ```text
//! place::Command, scale::Command ─► Installer ─► entries, registers of an Execution
//! Digest, registers at a window's end ─► Installer ─► place::FlowReport, place::SketchWindow
//! ```

use std::collections::{BTreeMap, BTreeSet};

use pathcall_wire::{Mutant, mutant};

use crate::place::{self, EntryMode, EntryNumber, EntryValues, FlowReport, SketchWindow, TableFacts};
use crate::scale::{self, TopologyDevice};
use pathcall_p4::exec::{Execution, TableError};
use pathcall_p4::ir::{Match, MatchKind, RegisterId, TableEntry, TableId};
use pathcall_p4::split::balance::{BalanceObjects, ElementTable, HEAVY, key_shape};

/// Distance of the request numbers of two starts of an element: 2^32 divided by the golden ratio, which keeps the
/// ranges of many starts apart from each other.
const REQUESTS_APART: u32 = 0x9e37_79b9;

/// Writer of the commands for one element.
#[derive(Debug, Clone)]
pub struct Installer {
    balance: BalanceObjects,
    shapes: BTreeMap<TableId, Vec<(u16, MatchKind)>>,
    servers: Vec<TopologyDevice>,
    /// Entries as they are in the element, with their table and the number of packets that used them.
    entries: BTreeMap<EntryNumber, (TableId, TableEntry, u32)>,
    groups: BTreeSet<(u8, u16)>,
    owners: BTreeSet<(usize, u16)>,
    /// Totals at the end of the last window.
    totals: [u32; 2],
    window: Option<u64>,
    /// Number of starts of the element, and whether it has its first request number since the last one.
    starts: (u32, bool),
}

/// Result of a batch of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallOutcome {
    /// Entries that the element refused.
    pub refused: Vec<EntryNumber>,
    /// Register values of entries that are no longer used.
    pub given: Vec<EntryValues>,
}

impl Installer {
    /// Installer for an element that runs `program`, with these servers.
    #[must_use]
    pub fn new(program: &pathcall_p4::ir::Program, balance: BalanceObjects, servers: Vec<TopologyDevice>) -> Self {
        let shape = |mirrored: &ElementTable| (mirrored.table, key_shape(program, mirrored.table));
        Self {
            shapes: balance.tables.iter().map(shape).collect(),
            balance,
            servers,
            entries: BTreeMap::new(),
            groups: BTreeSet::new(),
            owners: BTreeSet::new(),
            totals: [0; 2],
            window: None,
            starts: (0, false),
        }
    }

    /// Facts about the mirrored tables, for a [`place::Placer`].
    #[must_use]
    pub fn facts(&self) -> Vec<TableFacts> {
        let facts = |mirrored: &ElementTable| TableFacts {
            table: mirrored.table,
            widths: self.shapes[&mirrored.table].iter().map(|(width, _)| *width).collect(),
            capacity: mirrored.capacity,
            first_number: mirrored.first_number,
            has_values: mirrored.handed,
        };
        self.balance.tables.iter().map(facts).collect()
    }

    /// Handles a restart of the element, which lost all its entries.
    pub fn restarted(&mut self) {
        self.entries.clear();
        self.groups.clear();
        self.owners.clear();
        (self.totals, self.window) = ([0; 2], None);
        self.starts = (self.starts.0.wrapping_add(1), false);
    }

    /// Applies commands of a [`place::Placer`].
    pub fn place(&mut self, element: &mut dyn Execution, commands: &[place::Command]) -> InstallOutcome {
        let mut outcome = InstallOutcome::default();
        let mut unused = Vec::new();
        for command in commands {
            match command {
                place::Command::Insert { table, entry, number } => {
                    if self.insert_entry(element, *table, entry, *number).is_none() {
                        outcome.refused.push(*number);
                    }
                }
                place::Command::Mode { number, mode, .. } => {
                    if self.set_mode(element, *number, *mode) {
                        unused.push(*number);
                    }
                }
                place::Command::Remove { table, keys, number } => {
                    if self.entries.remove(number).is_some() {
                        let removed = element.remove(*table, keys);
                        debug_assert!(removed.is_ok(), "{removed:?}");
                    }
                }
                place::Command::Reset(number) => {
                    let arrays = self.balance.arrays;
                    for register in [arrays.state, arrays.gone, arrays.force, arrays.used] {
                        element.set_register(register, *number, 0);
                    }
                }
                place::Command::Threshold(threshold) => {
                    // The element reads 0 as "never".
                    let threshold = if *threshold == u32::MAX { 0 } else { *threshold };
                    element.set_register(self.balance.arrays.threshold, 0, threshold.into());
                }
            }
        }
        if !unused.is_empty() {
            // A packet in flight that still uses an entry would change the values read here.
            element.wait_in_flight();
            outcome.given.extend(unused.into_iter().filter_map(|number| self.entry_values(element, number)));
        }
        outcome
    }

    fn mirrored(&self, table: TableId) -> Option<&ElementTable> {
        self.balance.tables.iter().find(|mirrored| mirrored.table == table)
    }

    /// Inserts an entry in the element's form: the register index is replaced by the entry's number and moved behind
    /// the arguments.
    fn insert_entry(
        &mut self,
        element: &mut dyn Execution,
        table: TableId,
        entry: &TableEntry,
        number: EntryNumber,
    ) -> Option<()> {
        let acting = *self.mirrored(table)?.actions.iter().find(|acting| acting.of_server == entry.action)?;
        let mut entry = TableEntry { action: acting.of_element, ..entry.clone() };
        if let Some(index) = acting.index_arg {
            *entry.args.get_mut(index)? = number.into();
        }
        entry.args.extend([u128::from(number), EntryMode::Active as u128]);
        element.insert(table, &entry).ok()?;
        // Register values received before may be older than values sent since then without this entry. The turn is
        // kept, so that a response that was overtaken is still recognised as older.
        if !mutant::on(Mutant::FunctionEarlyValues) {
            let state = element.register(self.balance.arrays.state, number);
            element.set_register(self.balance.arrays.state, number, state & !3);
        }
        self.entries.insert(number, (table, entry, 0));
        Some(())
    }

    /// Changes the use of an entry; true if the entry is no longer used and has register values.
    fn set_mode(&mut self, element: &mut dyn Execution, number: EntryNumber, mode: EntryMode) -> bool {
        let Some((table, entry, _)) = self.entries.get_mut(&number) else { return false };
        let Some(last) = entry.args.last_mut() else { return false };
        *last = mode as u128;
        let table = *table;
        // `modify` cannot fail: the entry was inserted, so it fits and exists.
        let changed: Result<(), TableError> = element.modify(table, entry);
        debug_assert!(changed.is_ok(), "{changed:?}");
        element.set_register(self.balance.arrays.force, number, u128::from(mode == EntryMode::Forced));
        mode == EntryMode::Pending && self.mirrored(table).is_some_and(|mirrored| mirrored.handed)
    }

    /// Register values of an entry that is no longer used.
    fn entry_values(&self, element: &dyn Execution, number: EntryNumber) -> Option<EntryValues> {
        let turn = element.register(self.balance.arrays.state, number) as u16 >> 2;
        let value = |(register, _): &(RegisterId, _)| element.register(*register, number);
        (turn != 0).then(|| EntryValues { number, turn, values: self.balance.vars.values.iter().map(value).collect() })
    }

    /// Applies commands of a [`scale::Scaler`].
    pub fn scale(&mut self, element: &mut dyn Execution, commands: &[scale::Command]) {
        for command in commands {
            match *command {
                scale::Command::Group { version, bucket, server, stays } => {
                    let known = self.groups.contains(&(version, bucket));
                    let keys = [u128::from(version), u128::from(bucket)];
                    let to = server.map(|server| (server, stays));
                    let accepted = self.write_steering(element, self.balance.group, (keys, [8, 16]), known, to);
                    if accepted {
                        self.groups.insert((version, bucket))
                    } else {
                        self.groups.remove(&(version, bucket))
                    };
                }
                scale::Command::Owner { partition, block, server } => {
                    let known = self.owners.contains(&(partition, block));
                    let keys = [partition as u128, u128::from(block)];
                    let to = server.map(|server| (server, false));
                    let accepted = self.write_steering(element, self.balance.owner, (keys, [8, 16]), known, to);
                    if accepted {
                        self.owners.insert((partition, block))
                    } else {
                        self.owners.remove(&(partition, block))
                    };
                }
                scale::Command::Version { version, previous } => {
                    if !self.starts.1 {
                        // Servers remember request numbers from before the element's restart.
                        let first = self.starts.0.wrapping_mul(REQUESTS_APART);
                        element.set_register(self.balance.arrays.numbers, 0, first.into());
                        self.starts.1 = true;
                    }
                    let before = if version == 1 { scale::VERSION_MAX } else { version.wrapping_sub(1) };
                    let old = if previous { u128::from(before) } else { 0 };
                    element.set_register(self.balance.arrays.groups, 0, old << 8 | u128::from(version));
                }
            }
        }
    }

    /// Writes or removes an entry that names a server; true if the entry exists afterwards.
    fn write_steering(
        &self,
        element: &mut dyn Execution,
        table: TableId,
        (values, widths): ([u128; 2], [u16; 2]),
        known: bool,
        to: Option<(scale::ServerId, bool)>,
    ) -> bool {
        let one = |(value, prefix_bits): (u128, u16)| Match { value, prefix_bits };
        let keys: Vec<Match> = values.into_iter().zip(widths).map(one).collect();
        let device = to.and_then(|(server, stays)| Some((self.servers.get(usize::from(server))?, stays)));
        let done = match device {
            Some((device, stays)) => {
                let mac = device.mac.iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte));
                let entry = TableEntry {
                    keys,
                    action: self.balance.to_server,
                    args: vec![device.port.into(), mac, stays.into()],
                };
                if known { element.modify(table, &entry) } else { element.insert(table, &entry) }
            }
            None if known => element.remove(table, &keys),
            None => Ok(()),
        };
        debug_assert!(done.is_ok(), "{done:?}");
        device.is_some()
    }

    /// Report of a flow, decoded from a digest of the element; `None` for other digests.
    #[must_use]
    pub fn decode_report(&self, name: &str, values: &[u128]) -> Option<FlowReport> {
        let [table, hash, key @ ..] = values else { return None };
        let table = TableId(u32::try_from(*table).ok()?);
        let known = name == HEAVY && self.mirrored(table).is_some();
        known.then(|| FlowReport { table, key: key.to_vec(), hash: *hash as u32 })
    }

    /// Length of a window, µs.
    #[must_use]
    pub fn window_us(&self) -> u64 {
        1 << self.balance.sizes.window_log2
    }

    /// Counts of the element in the previous window; `None` if they were read already. Call it once in every window,
    /// soon after its start. `now_us`: the clock of the packets.
    pub fn window(&mut self, element: &mut dyn Execution, now_us: u64) -> Option<SketchWindow> {
        let previous = (now_us >> self.balance.sizes.window_log2).checked_sub(1)?;
        if self.window == Some(previous) {
            return None;
        }
        self.window = Some(previous);
        let (arrays, columns) = (self.balance.arrays, 1u32 << self.balance.sizes.sketch_log2);
        let first = if previous % 2 == 1 { columns } else { 0 };
        let count = |cell: u128| if cell >> 24 == u128::from(previous & 0xff) { (cell & 0xff_ffff) as u32 } else { 0 };
        let row =
            |row: usize| (first..first + columns).map(|at| count(element.register(arrays.rows[row], at))).collect();
        let rows = [row(0), row(1)];
        let totals = [0, 1].map(|cell| element.register(arrays.totals, cell) as u32);
        let [packets, marked] = [0, 1].map(|at| totals[at].wrapping_sub(self.totals[at]).into());
        self.totals = totals;
        let mut used = Vec::new();
        for (number, (_, _, before)) in &mut self.entries {
            let now = element.register(arrays.used, *number) as u32;
            if now != *before {
                used.push((*number, now.wrapping_sub(*before)));
            }
            *before = now;
        }
        let places = 1 << self.balance.sizes.flows_log2;
        Some(SketchWindow { packets, marked: (marked, places), rows, used })
    }

    /// Balance of the split program, with the slots of a request's version, entry and turn.
    #[must_use]
    pub fn balance(&self) -> &BalanceObjects {
        &self.balance
    }
}
