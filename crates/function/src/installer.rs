//! What a controller's commands mean in an execution of a split program.
//!
//! ```text
//! place::Command, scale::Command ─► Installer ─► entries, registers of an Execution
//! Digest, registers at a window's end ─► Installer ─► place::Heavy, place::Window
//! ```

use std::collections::{BTreeMap, BTreeSet};

use pathcall_wire::{Mutant, mutant};

use crate::exec::{Execution, TableError};
use crate::ir::{Entry, Match, MatchKind, RegisterId, TableId};
use crate::place::{self, EntryNumber, Given, Heavy, Mode, TableFacts, Window};
use crate::scale::{self, Device};
use crate::split::balance::{Balance, HEAVY, Mirrored, key_shape};

/// Requests lie so far apart in number that an element sends before it begins anew and after: by the golden ratio, so that
/// those of many beginnings do, too.
const REQUESTS_APART: u32 = 0x9e37_79b9;

/// Writes to one element.
#[derive(Debug, Clone)]
pub struct Installer {
    balance: Balance,
    shapes: BTreeMap<TableId, Vec<(u16, MatchKind)>>,
    servers: Vec<Device>,
    /// What is in the element, as it has it, and for how many packets it was used.
    entries: BTreeMap<EntryNumber, (TableId, Entry, u32)>,
    groups: BTreeSet<(u8, u16)>,
    owners: BTreeSet<(usize, u16)>,
    /// Totals at the end of the last window, and its number.
    totals: [u32; 2],
    window: Option<u64>,
    /// How often the element began, and whether it counts its requests from where they are no others'.
    begun: (u32, bool),
}

/// What came of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Entries that the element did not take.
    pub refused: Vec<EntryNumber>,
    /// Values of registers of entries that are not used any more.
    pub given: Vec<Given>,
}

impl Installer {
    /// For an element that runs this program, with these servers.
    #[must_use]
    pub fn new(program: &crate::ir::Program, balance: Balance, servers: Vec<Device>) -> Self {
        let shape = |mirrored: &Mirrored| (mirrored.table, key_shape(program, mirrored.table));
        Self {
            shapes: balance.tables.iter().map(shape).collect(),
            balance,
            servers,
            entries: BTreeMap::new(),
            groups: BTreeSet::new(),
            owners: BTreeSet::new(),
            totals: [0; 2],
            window: None,
            begun: (0, false),
        }
    }

    /// The mirrored tables, for a [`place::Placer`].
    #[must_use]
    pub fn facts(&self) -> Vec<TableFacts> {
        let facts = |mirrored: &Mirrored| TableFacts {
            table: mirrored.table,
            widths: self.shapes[&mirrored.table].iter().map(|(width, _)| *width).collect(),
            capacity: mirrored.capacity,
            first_number: mirrored.first_number,
            handed: mirrored.handed,
        };
        self.balance.tables.iter().map(facts).collect()
    }

    /// The element began anew, and has nothing.
    pub fn restarted(&mut self) {
        self.entries.clear();
        self.groups.clear();
        self.owners.clear();
        (self.totals, self.window) = ([0; 2], None);
        self.begun = (self.begun.0.wrapping_add(1), false);
    }

    /// Does what a [`place::Placer`] wants.
    pub fn place(&mut self, element: &mut dyn Execution, commands: &[place::Command]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut unused = Vec::new();
        for command in commands {
            match command {
                place::Command::Insert { table, entry, number } => {
                    if self.insert(element, *table, entry, *number).is_none() {
                        outcome.refused.push(*number);
                    }
                }
                place::Command::Mode { number, mode, .. } => {
                    if self.mode(element, *number, *mode) {
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
                    // 0 in the element: never.
                    let threshold = if *threshold == u32::MAX { 0 } else { *threshold };
                    element.set_register(self.balance.arrays.threshold, 0, threshold.into());
                }
            }
        }
        if !unused.is_empty() {
            // A packet that still uses an entry would change what is read here.
            element.settle();
            outcome.given.extend(unused.into_iter().filter_map(|number| self.given(element, number)));
        }
        outcome
    }

    fn mirrored(&self, table: TableId) -> Option<&Mirrored> {
        self.balance.tables.iter().find(|mirrored| mirrored.table == table)
    }

    /// As the element has it: with its number where the index of registers was, and behind its arguments.
    fn insert(
        &mut self,
        element: &mut dyn Execution,
        table: TableId,
        entry: &Entry,
        number: EntryNumber,
    ) -> Option<()> {
        let acting = *self.mirrored(table)?.actions.iter().find(|acting| acting.of_server == entry.action)?;
        let mut entry = Entry { action: acting.of_element, ..entry.clone() };
        if let Some(index) = acting.index_arg {
            *entry.args.get_mut(index)? = number.into();
        }
        entry.args.extend([u128::from(number), Mode::Active as u128]);
        element.insert(table, &entry).ok()?;
        // What came for it before may be older than what left since without knowing of it. Of which turn it was stays known:
        // a response that was overtaken is still older.
        if !mutant::on(Mutant::FunctionEarlyValues) {
            let state = element.register(self.balance.arrays.state, number);
            element.set_register(self.balance.arrays.state, number, state & !3);
        }
        self.entries.insert(number, (table, entry, 0));
        Some(())
    }

    /// How an entry is used from now on; whether it is no longer, and has values of registers.
    fn mode(&mut self, element: &mut dyn Execution, number: EntryNumber, mode: Mode) -> bool {
        let Some((table, entry, _)) = self.entries.get_mut(&number) else { return false };
        let Some(last) = entry.args.last_mut() else { return false };
        *last = mode as u128;
        let table = *table;
        // It was inserted, so it fits and is there.
        let changed: Result<(), TableError> = element.modify(table, entry);
        debug_assert!(changed.is_ok(), "{changed:?}");
        element.set_register(self.balance.arrays.force, number, u128::from(mode == Mode::Forced));
        mode == Mode::Pending && self.mirrored(table).is_some_and(|mirrored| mirrored.handed)
    }

    /// What an entry that is not used any more has of registers.
    fn given(&self, element: &dyn Execution, number: EntryNumber) -> Option<Given> {
        let turn = element.register(self.balance.arrays.state, number) as u16 >> 2;
        let value = |(register, _): &(RegisterId, _)| element.register(*register, number);
        (turn != 0).then(|| Given { number, turn, values: self.balance.vars.values.iter().map(value).collect() })
    }

    /// Does what a [`scale::Scaler`] wants.
    pub fn scale(&mut self, element: &mut dyn Execution, commands: &[scale::Command]) {
        for command in commands {
            match *command {
                scale::Command::Group { version, bucket, server, stays } => {
                    let known = self.groups.contains(&(version, bucket));
                    let keys = [u128::from(version), u128::from(bucket)];
                    let to = server.map(|server| (server, stays));
                    let there = self.steer(element, self.balance.group, (keys, [8, 16]), known, to);
                    if there {
                        self.groups.insert((version, bucket))
                    } else {
                        self.groups.remove(&(version, bucket))
                    };
                }
                scale::Command::Owner { partition, block, server } => {
                    let known = self.owners.contains(&(partition, block));
                    let keys = [partition as u128, u128::from(block)];
                    let to = server.map(|server| (server, false));
                    let there = self.steer(element, self.balance.owner, (keys, [8, 16]), known, to);
                    if there {
                        self.owners.insert((partition, block))
                    } else {
                        self.owners.remove(&(partition, block))
                    };
                }
                scale::Command::Version { version, previous } => {
                    if !self.begun.1 {
                        // Servers remember numbers of the element's time before.
                        let first = self.begun.0.wrapping_mul(REQUESTS_APART);
                        element.set_register(self.balance.arrays.numbers, 0, first.into());
                        self.begun.1 = true;
                    }
                    let before = if version == 1 { scale::VERSION_MAX } else { version.wrapping_sub(1) };
                    let old = if previous { u128::from(before) } else { 0 };
                    element.set_register(self.balance.arrays.groups, 0, old << 8 | u128::from(version));
                }
            }
        }
    }

    /// Writes or removes an entry that names a server; whether it is there afterwards.
    fn steer(
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
                let entry =
                    Entry { keys, action: self.balance.to_server, args: vec![device.port.into(), mac, stays.into()] };
                if known { element.modify(table, &entry) } else { element.insert(table, &entry) }
            }
            None if known => element.remove(table, &keys),
            None => Ok(()),
        };
        debug_assert!(done.is_ok(), "{done:?}");
        device.is_some()
    }

    /// A digest of the element, if it is a flow's report.
    #[must_use]
    pub fn heavy(&self, name: &str, values: &[u128]) -> Option<Heavy> {
        let [table, hash, key @ ..] = values else { return None };
        let table = TableId(u32::try_from(*table).ok()?);
        let known = name == HEAVY && self.mirrored(table).is_some();
        known.then(|| Heavy { table, key: key.to_vec(), hash: *hash as u32 })
    }

    /// Microseconds of a window.
    #[must_use]
    pub fn window_us(&self) -> u64 {
        1 << self.balance.sizes.window_log2
    }

    /// What the element has counted in the window before this one, if it has not been asked for; call it once in every
    /// window, soon after it began. `now_us` as packets come with it.
    pub fn window(&mut self, element: &mut dyn Execution, now_us: u64) -> Option<Window> {
        let ended = (now_us >> self.balance.sizes.window_log2).checked_sub(1)?;
        if self.window == Some(ended) {
            return None;
        }
        self.window = Some(ended);
        let (arrays, columns) = (self.balance.arrays, 1u32 << self.balance.sizes.sketch_log2);
        let first = if ended % 2 == 1 { columns } else { 0 };
        let count = |cell: u128| if cell >> 24 == u128::from(ended & 0xff) { (cell & 0xff_ffff) as u32 } else { 0 };
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
        Some(Window { packets, marked: (marked, places), rows, used })
    }

    /// What a request says of its flow's version, entry and turn has these slots.
    #[must_use]
    pub fn balance(&self) -> &Balance {
        &self.balance
    }
}
