//! Match-action tables: a hash table for exact keys, and one probe per prefix length for a longest-prefix match.

use std::collections::HashMap;

use super::bits;
use crate::exec::TableError;
use crate::ir::{ActionId, Match, MatchKind, Program, TableEntry, TableId};

/// Table with its entries.
#[derive(Debug)]
pub struct MatchTable {
    name: String,
    widths: Vec<u16>,
    /// Index of the prefix key.
    lpm: Option<usize>,
    /// Actions of the table, with the widths of their parameters.
    actions: Vec<(ActionId, Vec<u16>)>,
    size: u32,
    default: LookupResult,
    default_args: Vec<u128>,
    /// Masked keys, followed by the prefix length if any, to the row.
    index: HashMap<Box<[u128]>, u32>,
    rows: Vec<Option<Row>>,
    free: Vec<u32>,
    /// Prefix lengths in use, longest first, with their numbers of entries.
    lengths: Vec<(u16, u32)>,
    /// Buffer for a lookup key.
    probe: Vec<u128>,
}

#[derive(Debug)]
struct Row {
    entry: TableEntry,
    found: LookupResult,
    used: bool,
    constant: bool,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy)]
pub struct LookupResult {
    /// Row; `None` for a miss.
    pub row: Option<u32>,
    /// Action.
    pub action: ActionId,
    /// Index of the action in the table's list.
    pub index: u32,
}

impl MatchTable {
    /// Table of a program, with the entries that the program declares.
    ///
    /// # Errors
    /// If these entries do not fit.
    pub fn new(program: &Program, id: TableId) -> Result<Self, TableError> {
        let table = &program.tables[id.0 as usize];
        let widths: Vec<u16> = table.keys.iter().map(|key| key.expr.ty.width()).collect();
        let params = |id: &ActionId| {
            let action = &program.actions[id.0 as usize];
            (*id, action.params.iter().map(|slot| program.width(*slot)).collect())
        };
        let mut made = Self {
            name: table.name.clone(),
            lpm: table.keys.iter().position(|key| key.kind == MatchKind::Lpm),
            actions: table.actions.iter().map(params).collect(),
            size: table.size,
            default: LookupResult { row: None, action: table.default.0, index: 0 },
            default_args: Vec::new(),
            index: HashMap::new(),
            rows: Vec::new(),
            free: Vec::new(),
            lengths: Vec::new(),
            probe: Vec::with_capacity(widths.len() + 1),
            widths,
        };
        if !table.actions.contains(&table.default.0) {
            made.actions.push(params(&table.default.0));
        }
        made.set_default(table.default.0, &table.default.1)?;
        for entry in &table.entries {
            let row = made.insert(entry)?;
            made.rows[row as usize].as_mut().expect("just filled").constant = true;
        }
        Ok(made)
    }

    /// Looks up the values in [`Self::key`], and marks the entry as used.
    #[inline]
    pub fn look_up(&mut self) -> LookupResult {
        let found = match self.lpm {
            None => self.index.get(self.probe.as_slice()).copied(),
            Some(at) => self.find_longest_prefix(at),
        };
        let Some(row) = found.and_then(|row| self.rows[row as usize].as_mut()) else { return self.default };
        row.used = true;
        row.found
    }

    fn find_longest_prefix(&mut self, at: usize) -> Option<u32> {
        let (whole, width) = (self.probe[at], self.widths[at]);
        self.probe.push(0);
        let last = self.probe.len() - 1;
        self.lengths.iter().find_map(|(length, _)| {
            self.probe[at] = whole & bits::prefix_mask(width, *length);
            self.probe[last] = u128::from(*length);
            self.index.get(self.probe.as_slice()).copied()
        })
    }

    /// Buffer for the key values of [`Self::look_up`].
    #[inline]
    pub fn key(&mut self) -> &mut Vec<u128> {
        self.probe.clear();
        &mut self.probe
    }

    /// Arguments of a lookup's result.
    #[inline]
    pub fn args(&self, found: LookupResult) -> &[u128] {
        match found.row.and_then(|row| self.rows[row as usize].as_ref()) {
            Some(row) => &row.entry.args,
            None => &self.default_args,
        }
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &TableEntry> {
        self.rows.iter().flatten().map(|row| &row.entry)
    }

    /// True if the table has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Adds an entry; returns its row.
    ///
    /// # Errors
    /// As [`crate::exec::Execution::insert`].
    pub fn insert(&mut self, entry: &TableEntry) -> Result<u32, TableError> {
        let index = self.check_entry(entry)?;
        let key = self.stored_key(&entry.keys);
        if self.index.contains_key(&key) {
            return Err(TableError::Exists { table: self.name.clone() });
        }
        if self.index.len() >= self.size as usize {
            return Err(TableError::Full { table: self.name.clone(), size: self.size });
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() as u32 - 1
        });
        let found = LookupResult { row: Some(at), action: entry.action, index };
        self.rows[at as usize] = Some(Row { entry: entry.clone(), found, used: false, constant: false });
        self.index.insert(key, at);
        if let Some(length) = self.prefix(&entry.keys) {
            match self.lengths.binary_search_by(|(other, _)| length.cmp(other)) {
                Ok(place) => self.lengths[place].1 += 1,
                Err(place) => self.lengths.insert(place, (length, 1)),
            }
        }
        Ok(at)
    }

    /// Replaces the action of an entry.
    ///
    /// # Errors
    /// As [`crate::exec::Execution::modify`].
    pub fn modify(&mut self, entry: &TableEntry) -> Result<(), TableError> {
        let index = self.check_entry(entry)?;
        let at = self.find(&entry.keys)?;
        let row = self.rows[at as usize].as_mut().expect("indexed rows are filled");
        if row.constant {
            return Err(TableError::Constant { table: self.name.clone() });
        }
        row.entry = entry.clone();
        row.found = LookupResult { row: Some(at), action: entry.action, index };
        Ok(())
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// As [`crate::exec::Execution::remove`].
    pub fn remove(&mut self, keys: &[Match]) -> Result<(), TableError> {
        let at = self.find(keys)?;
        if self.rows[at as usize].as_ref().is_some_and(|row| row.constant) {
            return Err(TableError::Constant { table: self.name.clone() });
        }
        self.index.remove(&self.stored_key(keys));
        self.rows[at as usize] = None;
        self.free.push(at);
        if let Some(length) = self.prefix(keys)
            && let Ok(place) = self.lengths.binary_search_by(|(other, _)| length.cmp(other))
        {
            self.lengths[place].1 -= 1;
            if self.lengths[place].1 == 0 {
                self.lengths.remove(place);
            }
        }
        Ok(())
    }

    /// Sets the default action.
    ///
    /// # Errors
    /// As [`crate::exec::Execution::set_default`].
    pub fn set_default(&mut self, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        let index = self.check_action(action, args)?;
        self.default = LookupResult { row: None, action, index };
        self.default_args = args.to_vec();
        Ok(())
    }

    /// Calls `each` for every entry that was hit, and clears the marks.
    pub fn take_used(&mut self, each: &mut dyn FnMut(&TableEntry)) {
        for row in self.rows.iter_mut().flatten().filter(|row| row.used) {
            row.used = false;
            each(&row.entry);
        }
    }

    fn find(&self, keys: &[Match]) -> Result<u32, TableError> {
        self.check_keys(keys)?;
        let missing = || TableError::Missing { table: self.name.clone() };
        self.index.get(&self.stored_key(keys)).copied().ok_or_else(missing)
    }

    fn prefix(&self, keys: &[Match]) -> Option<u16> {
        self.lpm.map(|at| keys[at].prefix_bits)
    }

    fn stored_key(&self, keys: &[Match]) -> Box<[u128]> {
        keys.iter().map(|key| key.value).chain(self.prefix(keys).map(u128::from)).collect()
    }

    /// Checks an entry; returns the index of its action in the table's list.
    fn check_entry(&self, entry: &TableEntry) -> Result<u32, TableError> {
        self.check_keys(&entry.keys)?;
        self.check_action(entry.action, &entry.args)
    }

    fn check_keys(&self, keys: &[Match]) -> Result<(), TableError> {
        self.check_number("keys", self.widths.len(), keys.len())?;
        for (at, (key, width)) in keys.iter().zip(&self.widths).enumerate() {
            let width = *width;
            let prefix_fits = if self.lpm == Some(at) { key.prefix_bits <= width } else { key.prefix_bits == width };
            if !prefix_fits {
                return Err(self.width_error("prefix", key.prefix_bits.into(), width));
            }
            if key.value & !bits::prefix_mask(width, key.prefix_bits) != 0 {
                return Err(self.width_error("key", key.value, key.prefix_bits));
            }
        }
        Ok(())
    }

    fn check_action(&self, action: ActionId, args: &[u128]) -> Result<u32, TableError> {
        let Some(index) = self.actions.iter().position(|(id, _)| *id == action) else {
            return Err(TableError::Action { table: self.name.clone(), action: action.0 });
        };
        let widths = &self.actions[index].1;
        self.check_number("arguments", widths.len(), args.len())?;
        match args.iter().zip(widths).find(|(arg, width)| **arg & !bits::mask(**width) != 0) {
            Some((arg, width)) => Err(self.width_error("argument", *arg, *width)),
            None => Ok(index as u32),
        }
    }

    fn check_number(&self, what: &'static str, expected: usize, got: usize) -> Result<(), TableError> {
        if expected == got {
            return Ok(());
        }
        Err(TableError::Number { table: self.name.clone(), what, expected, got })
    }

    fn width_error(&self, what: &'static str, value: u128, width: u16) -> TableError {
        TableError::Width { table: self.name.clone(), what, value, width }
    }
}
