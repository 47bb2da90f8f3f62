//! Lease holder of a server: the entries of its mirrored tables that the element has, and the changes that have to
//! wait.
//!
//! ```text
//! Lease(key) ─► the entry that matches, or a part of it with none beneath ─► leased: does not expire
//! handler changes or removes it ─► its response says so with the entry's number, and the controller recalls it
//! a more-specific prefix is to be added ─► recalled first, added when it is back
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::{Mutant, mutant};

use super::{EntryNumber, ServerId};
use pathcall_p4::ir::{Match, TableEntry, TableId};

/// Mirrored tables of a server, as leasing needs them.
pub trait LeasableTables {
    /// Entry that matches this key, in a table of prefixes the longest match.
    fn lookup(&self, table: TableId, key: &[u128]) -> Option<TableEntry>;

    /// Whether a more specific entry lies within this one: one with a longer prefix, which takes precedence for some of
    /// the keys. Always false in a table of exact keys.
    fn has_more_specific(&self, table: TableId, keys: &[Match]) -> bool;

    /// Widths of the table's keys, bits.
    fn widths(&self, table: TableId) -> &[u16];

    /// Index of the table's prefix key, if it has one.
    fn lpm(&self, table: TableId) -> Option<usize>;
}

/// Output of a lease holder for the controller or its own server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutput {
    /// Answer to a lease: the entry, or `None` if the element cannot have it.
    Leased {
        /// Number of the entry.
        number: EntryNumber,
        /// Leased entry.
        entry: Option<TableEntry>,
    },
    /// Recall of an entry from the element.
    Recall {
        /// Number of the entry.
        number: EntryNumber,
    },
    /// An entry that waited for more general leased entries can be added now.
    Add {
        /// Table of the entry.
        table: TableId,
        /// Entry to be added.
        entry: TableEntry,
    },
}

/// Leases of one server.
#[derive(Debug, Clone, Default)]
pub struct LeaseHolder {
    server: ServerId,
    leases: BTreeMap<EntryNumber, Lease>,
    /// Leases by the server's own entry; the prefix in the element may be longer.
    by_entry: BTreeMap<(TableId, Vec<Match>), BTreeSet<EntryNumber>>,
    /// Leases by the element's entry, in tables of prefixes. These do not overlap, so the leases around or within a
    /// prefix are its neighbours in this order.
    by_position: BTreeMap<PrefixPosition, EntryNumber>,
    /// Entries that wait for recalled entries before they are added.
    additions: Vec<(TableId, TableEntry)>,
    outputs: VecDeque<LeaseOutput>,
}

#[derive(Debug, Clone)]
struct Lease {
    table: TableId,
    /// Keys of the server's entry.
    held: Vec<Match>,
    /// Keys of the element's entry: the same, or a part of them.
    given: Vec<Match>,
    recalled: bool,
    /// Number of packets processed under this lease, the turn of the server's register values; never 0.
    turn: u16,
}

/// Position of a prefix in its table: the exact keys, then the first address that the prefix contains.
type PrefixPosition = (TableId, Vec<u128>);

/// Largest turn, 14 bits.
const TURN_MAX: u16 = (1 << 14) - 1;

impl LeaseHolder {
    /// `turn` of the response to a request that names an exact entry which is not this server's. The flow is this
    /// server's, so the element has the entry from an earlier server of the flow, and stops using it.
    pub const FOREIGN_ENTRY: u16 = 2;

    /// Lease holder without leases.
    #[must_use]
    pub fn new(server: ServerId) -> Self {
        Self { server, ..Self::default() }
    }

    /// Server of this holder.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Leases the entry that matches `key` under this number, on request of the controller.
    pub fn lease(&mut self, mirror: &impl LeasableTables, table: TableId, key: &[u128], number: EntryNumber) {
        let entry = self.try_lease(mirror, table, key, number);
        self.outputs.push_back(LeaseOutput::Leased { number, entry });
    }

    /// Refuses a lease, as for an entry whose flow has moved to another server.
    pub fn refuse(&mut self, number: EntryNumber) {
        self.outputs.push_back(LeaseOutput::Leased { number, entry: None });
    }

    fn try_lease(
        &mut self,
        mirror: &impl LeasableTables,
        table: TableId,
        key: &[u128],
        number: EntryNumber,
    ) -> Option<TableEntry> {
        let mut entry = mirror.lookup(table, key)?;
        let held = entry.keys.clone();
        entry.keys = clear_prefix(mirror, table, key, &held)?;
        // Two parts of one entry may be in the element, but never one within the other.
        if self.leases.contains_key(&number) || self.has_waiting_addition(mirror, table, &entry.keys) {
            return None;
        }
        let known = match mirror.lpm(table) {
            None => self.is_leased(table, &held),
            Some(lpm) => self.overlapping_leases(mirror, table, &entry.keys, lpm).next().is_some(),
        };
        if known {
            return None;
        }
        let lease = Lease { table, held: held.clone(), given: entry.keys.clone(), recalled: false, turn: 1 };
        self.leases.insert(number, lease);
        self.by_entry.entry((table, held)).or_default().insert(number);
        if let Some(lpm) = mirror.lpm(table) {
            self.by_position.insert(prefix_position(table, &entry.keys, lpm), number);
        }
        Some(entry)
    }

    /// Whether an addition waits here; a less specific entry is not leased before the addition is done.
    fn has_waiting_addition(&self, mirror: &impl LeasableTables, table: TableId, keys: &[Match]) -> bool {
        let waits =
            |(id, other): &(TableId, TableEntry)| *id == table && overlap(&other.keys, keys, mirror.widths(table));
        self.additions.iter().any(waits)
    }

    /// Whether the register values of a request for this entry are newer than the server's own and replace them;
    /// `turn`: bits of the request header.
    #[must_use]
    pub fn requested(&self, number: EntryNumber, turn: u16) -> bool {
        let newest = |lease: &Lease| lease.turn == turn >> 2 || mutant::on(Mutant::FunctionTurnIgnored);
        turn & 1 == 1 && self.leases.get(&number).is_some_and(newest)
    }

    /// Turn of the response to a packet of this entry, which carries the server's register values; `None` if the entry
    /// is not leased, and the response names no entry.
    pub fn responded(&mut self, number: EntryNumber) -> Option<u16> {
        let lease = self.leases.get_mut(&number)?;
        if !mutant::on(Mutant::FunctionTurnKept) {
            lease.turn = if lease.turn == TURN_MAX { 1 } else { lease.turn + 1 };
        }
        let recalled_now = lease.recalled && !mutant::on(Mutant::FunctionChangeNotReported);
        Some(lease.turn << 2 | u16::from(recalled_now) << 1 | 1)
    }

    /// Number of the lease that covers `key`, if the element has the entry or a part of it.
    #[must_use]
    pub fn number(
        &self,
        mirror: &impl LeasableTables,
        table: TableId,
        keys: &[Match],
        key: &[u128],
    ) -> Option<EntryNumber> {
        let Some(lpm) = mirror.lpm(table) else {
            return self.by_entry.get(&(table, keys.to_vec()))?.first().copied();
        };
        let whole = |(value, width): (&u128, &u16)| Match { value: *value, prefix_bits: *width };
        let key: Vec<_> = key.iter().zip(mirror.widths(table)).map(whole).collect();
        let covers = |(_, lease): &(EntryNumber, &Lease)| lease.held == keys;
        self.overlapping_leases(mirror, table, &key, lpm).find(covers).map(|(number, _)| number)
    }

    /// Whether the register values of an entry that left the element are newer than the server's own and replace them.
    #[must_use]
    pub fn given(&self, number: EntryNumber, turn: u16) -> bool {
        self.leases.get(&number).is_some_and(|lease| lease.turn == turn)
    }

    /// Ends a lease: the entry may expire from now on. Additions that waited for it are done.
    pub fn released(&mut self, mirror: &impl LeasableTables, number: EntryNumber) {
        let Some(lease) = self.leases.remove(&number) else { return };
        if let Some(lpm) = mirror.lpm(lease.table) {
            self.by_position.remove(&prefix_position(lease.table, &lease.given, lpm));
        }
        let held = (lease.table, lease.held);
        if let Some(numbers) = self.by_entry.get_mut(&held) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_entry.remove(&held);
            }
        }
        let waiting = std::mem::take(&mut self.additions);
        for (table, entry) in waiting {
            self.add(mirror, table, entry);
        }
    }

    /// Ends all leases, as the controller has restarted and knows of none.
    pub fn released_all(&mut self, mirror: &impl LeasableTables) {
        let numbers: Vec<_> = self.leases.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.released(mirror, number));
    }

    /// Adds an operator's entry: at once, or after the entries that cover it have left the element
    /// ([`LeaseOutput::Add`]).
    pub fn add(&mut self, mirror: &impl LeasableTables, table: TableId, entry: TableEntry) {
        let numbers = self.outdated_leases(mirror, table, &entry.keys);
        if numbers.is_empty() || mutant::on(Mutant::FunctionAddedAtOnce) {
            self.outputs.push_back(LeaseOutput::Add { table, entry });
            return;
        }
        numbers.into_iter().for_each(|number| self.recall(number));
        self.additions.push((table, entry));
    }

    /// Drops a waiting addition of an entry that an operator removes.
    pub fn cancel_addition(&mut self, table: TableId, keys: &[Match]) {
        self.additions.retain(|(other, entry)| (*other, entry.keys.as_slice()) != (table, keys));
    }

    /// Recalls the leases that are out of date because the handler added, changed or removed an entry. Returns their
    /// numbers, for the response.
    pub fn changed(&mut self, mirror: &impl LeasableTables, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        let numbers = self.outdated_leases(mirror, table, keys);
        numbers.iter().for_each(|number| self.recall(*number));
        numbers
    }

    /// Recalls an unchanged entry.
    pub fn recall_entry(&mut self, table: TableId, keys: &[Match]) {
        self.of_entry(table, keys).into_iter().for_each(|number| self.recall(number));
    }

    /// Whether the element has this entry or a part of it, so that it does not expire.
    #[must_use]
    pub fn is_leased(&self, table: TableId, keys: &[Match]) -> bool {
        self.by_entry.contains_key(&(table, keys.to_vec()))
    }

    /// Server's entry of the lease with this number.
    #[must_use]
    pub fn held(&self, number: EntryNumber) -> Option<(TableId, &[Match])> {
        self.leases.get(&number).map(|lease| (lease.table, lease.held.as_slice()))
    }

    /// Number of leases.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Next output, if there is one.
    pub fn poll(&mut self) -> Option<LeaseOutput> {
        self.outputs.pop_front()
    }

    /// Leases that are out of date after a change of the server's entry for `keys`: those of the entry itself, and
    /// those that cover it. More specific leases stay valid.
    fn outdated_leases(&self, mirror: &impl LeasableTables, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        let Some(lpm) = mirror.lpm(table) else {
            return self.of_entry(table, keys);
        };
        let covers = |(_, lease): &(EntryNumber, &Lease)| lease.held[lpm].prefix_bits <= keys[lpm].prefix_bits;
        let mut numbers: Vec<_> =
            self.overlapping_leases(mirror, table, keys, lpm).filter(covers).map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Leases of one entry of the server.
    fn of_entry(&self, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        self.by_entry.get(&(table, keys.to_vec())).into_iter().flatten().copied().collect()
    }

    /// Leases that overlap `keys`: the one that contains them, or those within.
    fn overlapping_leases(
        &self,
        mirror: &impl LeasableTables,
        table: TableId,
        keys: &[Match],
        lpm: usize,
    ) -> impl Iterator<Item = (EntryNumber, &Lease)> {
        let widths = mirror.widths(table);
        let first = prefix_position(table, keys, lpm);
        let mut last = first.clone();
        if let Some(value) = last.1.last_mut() {
            *value |= low_bits(widths[lpm].saturating_sub(keys[lpm].prefix_bits));
        }
        let before = self.by_position.range(..&first).next_back();
        let all = before.into_iter().chain(self.by_position.range(first..=last));
        let leases = all.map(|(_, number)| (*number, &self.leases[number]));
        leases.filter(move |(_, lease)| lease.table == table && overlap(&lease.given, keys, widths))
    }

    fn recall(&mut self, number: EntryNumber) {
        if let Some(lease) = self.leases.get_mut(&number)
            && !lease.recalled
        {
            lease.recalled = true;
            self.outputs.push_back(LeaseOutput::Recall { number });
        }
    }
}

/// Shortest prefix of `key` within the entry that has no more specific entry beneath it: the part of the entry that the
/// element can use safely (CLIP §V-A). `None` only if the table is inconsistent.
pub fn clear_prefix(mirror: &impl LeasableTables, table: TableId, key: &[u128], held: &[Match]) -> Option<Vec<Match>> {
    let widths = mirror.widths(table);
    let Some(lpm) = mirror.lpm(table) else { return Some(held.to_vec()) };
    let with = |bits: u16| {
        let mut keys = held.to_vec();
        keys[lpm] = prefix_match(key[lpm], bits, widths[lpm]);
        keys
    };
    // Binary search: if a prefix is clear, all longer prefixes are clear.
    let (mut dirty, mut clear) = (held[lpm].prefix_bits, widths[lpm]);
    if !mirror.has_more_specific(table, held) || mutant::on(Mutant::FunctionPrefixUncleared) {
        return Some(held.to_vec());
    }
    while clear - dirty > 1 {
        let middle = dirty + (clear - dirty) / 2;
        if mirror.has_more_specific(table, &with(middle)) { dirty = middle } else { clear = middle }
    }
    let keys = with(clear);
    (!mirror.has_more_specific(table, &keys)).then_some(keys)
}

/// Position of a prefix.
fn prefix_position(table: TableId, keys: &[Match], lpm: usize) -> PrefixPosition {
    let exact = keys.iter().enumerate().filter(|(at, _)| *at != lpm).map(|(_, key)| key.value);
    (table, exact.chain([keys[lpm].value]).collect())
}

/// Mask of the lowest `bits` bits.
fn low_bits(bits: u16) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// Prefix match of the highest `bits` of a value.
pub(super) fn prefix_match(value: u128, bits: u16, width: u16) -> Match {
    let rest = width.saturating_sub(bits);
    let value = if rest >= 128 { 0 } else { value >> rest << rest };
    Match { value, prefix_bits: bits.min(width) }
}

/// Whether some key matches both.
fn overlap(one: &[Match], other: &[Match], widths: &[u16]) -> bool {
    let same = |((one, other), width): ((&Match, &Match), &u16)| {
        let bits = one.prefix_bits.min(other.prefix_bits);
        prefix_match(one.value, bits, *width).value == prefix_match(other.value, bits, *width).value
    };
    one.iter().zip(other).zip(widths).all(same)
}
