//! A server's half: which entries of its mirrored tables the element has, and what may not happen to them meanwhile.
//!
//! ```text
//! Lease(key) ─► the entry that matches, or a part of it with none beneath ─► leased: does not expire
//! handler changes or removes it ─► its response says so with the entry's number, and the controller recalls it
//! a more-specific prefix is to be added ─► recalled first, added when it is back
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::{Mutant, mutant};

use super::{EntryNumber, ServerId};
use crate::ir::{Entry, Match, TableId};

/// A server's mirrored tables, as leasing needs them.
pub trait Mirror {
    /// The entry that matches this key; with prefixes the longest.
    fn lookup(&self, table: TableId, key: &[u128]) -> Option<Entry>;

    /// Whether an entry other than this one matches some key that this one matches, and would go before it: a longer
    /// prefix within its own. Never in a table of exact keys.
    fn beneath(&self, table: TableId, keys: &[Match]) -> bool;

    /// Widths of the table's keys in bits.
    fn widths(&self, table: TableId) -> &[u16];

    /// Which of the table's keys is matched by its longest prefix, if one is.
    fn lpm(&self, table: TableId) -> Option<usize>;
}

/// What a server tells the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderOutput {
    /// The answer to a lease: the entry, if there is one that the element may have.
    Leased {
        /// Its number.
        number: EntryNumber,
        /// It.
        entry: Option<Entry>,
    },
    /// It is to leave the element.
    Recall {
        /// Its number.
        number: EntryNumber,
    },
    /// What was added beneath leased entries may be added now.
    Add {
        /// Where.
        table: TableId,
        /// What.
        entry: Entry,
    },
}

/// Entries of one server that the element has.
#[derive(Debug, Clone, Default)]
pub struct Holder {
    server: ServerId,
    leases: BTreeMap<EntryNumber, Lease>,
    /// By the server's own entry: the prefix in the element may be longer.
    by_entry: BTreeMap<(TableId, Vec<Match>), BTreeSet<EntryNumber>>,
    /// By what the element's entry matches, in tables of prefixes. None is within another, so what is around a prefix,
    /// or within it, stands next to it.
    by_place: BTreeMap<Place, EntryNumber>,
    /// Additions that wait for entries to be back.
    additions: Vec<(TableId, Entry)>,
    outputs: VecDeque<HolderOutput>,
}

#[derive(Debug, Clone)]
struct Lease {
    table: TableId,
    /// What the server's entry matches.
    held: Vec<Match>,
    /// What the element's matches: the same, or a part of it.
    given: Vec<Match>,
    recalled: bool,
    /// Packets that were worked on since, and so the server's values of mirrored registers; never 0.
    turn: u16,
}

/// The first key that a prefix matches: the values of the keys that are exact, then that of the prefix.
type Place = (TableId, Vec<u128>);

/// Turns have 14 bits.
const TURN_MAX: u16 = (1 << 14) - 1;

impl Holder {
    /// `turn` of the response to a request that names an exact entry which is not this server's: the flow is, so the
    /// element has the entry from a server that the flow was at before, and shall use it no more.
    pub const STRANGER: u16 = 2;

    /// A server that the element has nothing of.
    #[must_use]
    pub fn new(server: ServerId) -> Self {
        Self { server, ..Self::default() }
    }

    /// Which server this is.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// The controller asks for the entry that matches `key`; it is to have this number.
    pub fn lease(&mut self, mirror: &impl Mirror, table: TableId, key: &[u128], number: EntryNumber) {
        let entry = self.leasable(mirror, table, key, number);
        self.outputs.push_back(HolderOutput::Leased { number, entry });
    }

    /// The answer to such a question, where the entry is of a flow that comes here no more.
    pub fn refuse(&mut self, number: EntryNumber) {
        self.outputs.push_back(HolderOutput::Leased { number, entry: None });
    }

    fn leasable(&mut self, mirror: &impl Mirror, table: TableId, key: &[u128], number: EntryNumber) -> Option<Entry> {
        let mut entry = mirror.lookup(table, key)?;
        let held = entry.keys.clone();
        entry.keys = clear_prefix(mirror, table, key, &held)?;
        // Two parts of one entry may be in the element, one within the other need not.
        if self.leases.contains_key(&number) || self.waits(mirror, table, &entry.keys) {
            return None;
        }
        let known = match mirror.lpm(table) {
            None => self.is_leased(table, &held),
            Some(lpm) => self.touching(mirror, table, &entry.keys, lpm).next().is_some(),
        };
        if known {
            return None;
        }
        let lease = Lease { table, held: held.clone(), given: entry.keys.clone(), recalled: false, turn: 1 };
        self.leases.insert(number, lease);
        self.by_entry.entry((table, held)).or_default().insert(number);
        if let Some(lpm) = mirror.lpm(table) {
            self.by_place.insert(place(table, &entry.keys, lpm), number);
        }
        Some(entry)
    }

    /// Whether an addition waits here: nothing that covers it comes back into the element before it is added.
    fn waits(&self, mirror: &impl Mirror, table: TableId, keys: &[Match]) -> bool {
        let here = |(id, other): &(TableId, Entry)| *id == table && overlap(&other.keys, keys, mirror.widths(table));
        self.additions.iter().any(here)
    }

    /// A request of this entry has come (bits of its header's `turn`): whether the values that it carries are newer than
    /// the server's own, which they replace then.
    #[must_use]
    pub fn requested(&self, number: EntryNumber, turn: u16) -> bool {
        let newest = |lease: &Lease| lease.turn == turn >> 2 || mutant::on(Mutant::FunctionTurnIgnored);
        turn & 1 == 1 && self.leases.get(&number).is_some_and(newest)
    }

    /// A packet of this entry was worked on: `turn` of its response, which carries the server's values. None if the entry
    /// is not leased: then the response names none.
    pub fn responded(&mut self, number: EntryNumber) -> Option<u16> {
        let lease = self.leases.get_mut(&number)?;
        if !mutant::on(Mutant::FunctionTurnKept) {
            lease.turn = if lease.turn == TURN_MAX { 1 } else { lease.turn + 1 };
        }
        let gone = lease.recalled && !mutant::on(Mutant::FunctionChangeUnsaid);
        Some(lease.turn << 2 | u16::from(gone) << 1 | 1)
    }

    /// The entry's number, if the element has it or part of it.
    #[must_use]
    pub fn number(&self, mirror: &impl Mirror, table: TableId, keys: &[Match], key: &[u128]) -> Option<EntryNumber> {
        let Some(lpm) = mirror.lpm(table) else {
            return self.by_entry.get(&(table, keys.to_vec()))?.first().copied();
        };
        let whole = |(value, width): (&u128, &u16)| Match { value: *value, prefix_bits: *width };
        let key: Vec<_> = key.iter().zip(mirror.widths(table)).map(whole).collect();
        let covers = |(_, lease): &(EntryNumber, &Lease)| lease.held == keys;
        self.touching(mirror, table, &key, lpm).find(covers).map(|(number, _)| number)
    }

    /// The element no longer uses this entry, whose values were of this turn: whether they are newer than the server's
    /// own, which they replace then.
    #[must_use]
    pub fn given(&self, number: EntryNumber, turn: u16) -> bool {
        self.leases.get(&number).is_some_and(|lease| lease.turn == turn)
    }

    /// The entry is the server's again: it may expire from now on. What its addition waited for is added.
    pub fn released(&mut self, mirror: &impl Mirror, number: EntryNumber) {
        let Some(lease) = self.leases.remove(&number) else { return };
        if let Some(lpm) = mirror.lpm(lease.table) {
            self.by_place.remove(&place(lease.table, &lease.given, lpm));
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

    /// The controller began anew: it knows of no lease.
    pub fn released_all(&mut self, mirror: &impl Mirror) {
        let numbers: Vec<_> = self.leases.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.released(mirror, number));
    }

    /// An operator adds an entry: at once, or when those that cover it have left the element ([`HolderOutput::Add`]).
    pub fn add(&mut self, mirror: &impl Mirror, table: TableId, entry: Entry) {
        let numbers = self.overlapping(mirror, table, &entry.keys);
        if numbers.is_empty() || mutant::on(Mutant::FunctionAddedAtOnce) {
            self.outputs.push_back(HolderOutput::Add { table, entry });
            return;
        }
        numbers.into_iter().for_each(|number| self.recall(number));
        self.additions.push((table, entry));
    }

    /// An operator takes an entry out: one that still waits to be added never comes.
    pub fn forget(&mut self, table: TableId, keys: &[Match]) {
        self.additions.retain(|(other, entry)| (*other, entry.keys.as_slice()) != (table, keys));
    }

    /// The handler has added, changed or removed an entry: what the element has of it is wrong from now on. The numbers
    /// that the response says it with; they are recalled.
    pub fn changed(&mut self, mirror: &impl Mirror, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        let numbers = self.overlapping(mirror, table, keys);
        numbers.iter().for_each(|number| self.recall(*number));
        numbers
    }

    /// The server wants an entry back, though it is as it was.
    pub fn recall_entry(&mut self, table: TableId, keys: &[Match]) {
        self.of_entry(table, keys).into_iter().for_each(|number| self.recall(number));
    }

    /// Whether the element has this entry, or part of it: it does not expire then.
    #[must_use]
    pub fn is_leased(&self, table: TableId, keys: &[Match]) -> bool {
        self.by_entry.contains_key(&(table, keys.to_vec()))
    }

    /// The server's entry that this number is of, or of a part of.
    #[must_use]
    pub fn held(&self, number: EntryNumber) -> Option<(TableId, &[Match])> {
        self.leases.get(&number).map(|lease| (lease.table, lease.held.as_slice()))
    }

    /// Entries in the element.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// What is to be said.
    pub fn poll(&mut self) -> Option<HolderOutput> {
        self.outputs.pop_front()
    }

    /// Leases that say something else once the server's entry for `keys` is another: of that entry itself, and those
    /// that cover it. One that is more specific goes before it as ever.
    fn overlapping(&self, mirror: &impl Mirror, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        let Some(lpm) = mirror.lpm(table) else {
            return self.of_entry(table, keys);
        };
        let covers = |(_, lease): &(EntryNumber, &Lease)| lease.held[lpm].prefix_bits <= keys[lpm].prefix_bits;
        let mut numbers: Vec<_> =
            self.touching(mirror, table, keys, lpm).filter(covers).map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Leases of a server's own entry.
    fn of_entry(&self, table: TableId, keys: &[Match]) -> Vec<EntryNumber> {
        self.by_entry.get(&(table, keys.to_vec())).into_iter().flatten().copied().collect()
    }

    /// Leases that match some key which `keys` match: the one around them, or those within.
    fn touching(
        &self,
        mirror: &impl Mirror,
        table: TableId,
        keys: &[Match],
        lpm: usize,
    ) -> impl Iterator<Item = (EntryNumber, &Lease)> {
        let widths = mirror.widths(table);
        let first = place(table, keys, lpm);
        let mut last = first.clone();
        if let Some(value) = last.1.last_mut() {
            *value |= low_bits(widths[lpm].saturating_sub(keys[lpm].prefix_bits));
        }
        let before = self.by_place.range(..&first).next_back();
        let all = before.into_iter().chain(self.by_place.range(first..=last));
        let leases = all.map(|(_, number)| (*number, &self.leases[number]));
        leases.filter(move |(_, lease)| lease.table == table && overlap(&lease.given, keys, widths))
    }

    fn recall(&mut self, number: EntryNumber) {
        if let Some(lease) = self.leases.get_mut(&number)
            && !lease.recalled
        {
            lease.recalled = true;
            self.outputs.push_back(HolderOutput::Recall { number });
        }
    }
}

/// The shortest prefix of `key`, no shorter than what the entry matches, with no more-specific entry beneath it: what
/// of an entry the element may have without ever being wrong (CLIP §V-A). None only if the table contradicts itself.
pub fn clear_prefix(mirror: &impl Mirror, table: TableId, key: &[u128], held: &[Match]) -> Option<Vec<Match>> {
    let widths = mirror.widths(table);
    let Some(lpm) = mirror.lpm(table) else { return Some(held.to_vec()) };
    let with = |bits: u16| {
        let mut keys = held.to_vec();
        keys[lpm] = prefix_match(key[lpm], bits, widths[lpm]);
        keys
    };
    // Shorter prefixes cover more: from the first that is clear on, all are.
    let (mut dirty, mut clear) = (held[lpm].prefix_bits, widths[lpm]);
    if !mirror.beneath(table, held) || mutant::on(Mutant::FunctionPrefixUncleared) {
        return Some(held.to_vec());
    }
    while clear - dirty > 1 {
        let middle = dirty + (clear - dirty) / 2;
        if mirror.beneath(table, &with(middle)) { dirty = middle } else { clear = middle }
    }
    let keys = with(clear);
    (!mirror.beneath(table, &keys)).then_some(keys)
}

/// Where a prefix stands.
fn place(table: TableId, keys: &[Match], lpm: usize) -> Place {
    let exact = keys.iter().enumerate().filter(|(at, _)| *at != lpm).map(|(_, key)| key.value);
    (table, exact.chain([keys[lpm].value]).collect())
}

/// The lowest bits, so many of them.
fn low_bits(bits: u16) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// The highest `bits` of a value.
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
