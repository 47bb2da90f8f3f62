//! Where the maps of an emitted program hold what: the emitter writes structures by it, the loader keys and values.
//!
//! Fields stand by size, the largest first, so that each is aligned and nothing lies between them; numbers are in the
//! machine's byte order but for what a trie matches.

use crate::ir::{ActionId, Match, MatchKind, Program, StmtKind, Table, Ty};

/// Where all maps hold what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// By [`crate::ir::TableId`].
    pub tables: Vec<TableLayout>,
    /// By [`crate::ir::RegisterId`].
    pub registers: Vec<RegisterLayout>,
    /// By [`crate::ir::CounterId`]: the names of their maps.
    pub counters: Vec<String>,
    /// Kinds of digests, as records number them.
    pub digests: Vec<DigestLayout>,
}

/// Bytes of something in a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The first one.
    pub at: usize,
    /// How many: 1, 2, 4, 8 or 16.
    pub bytes: usize,
}

/// The map of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    /// Its name.
    pub map: String,
    /// What it is looked up by; `None` for a table without keys, which has no map.
    pub key: Option<KeyLayout>,
    /// Of a value: the action's place in the table's list (32 bits), then its arguments.
    pub value_bytes: usize,
    /// By place in the table's list: the action, and where its arguments are.
    pub actions: Vec<(ActionId, Vec<Place>)>,
}

/// The key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLayout {
    /// Of a hash table.
    Exact {
        /// Of all of it; what no field has is 0.
        bytes: usize,
        /// By key of the table.
        fields: Vec<Place>,
    },
    /// Of a trie: how many bits count (32 bits), then the keys, highest bits first, the one with a prefix last.
    Lpm {
        /// Of what is matched.
        bytes: usize,
        /// By key of the table: where, in bytes behind the length, and its width in bits.
        fields: Vec<(usize, u16)>,
        /// Which one has a prefix.
        lpm: usize,
    },
}

/// The map of a register array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterLayout {
    /// Its name.
    pub map: String,
    /// Of a cell: 4, 8 or 16; bits above the width mean nothing.
    pub bytes: usize,
    /// Of a value, bits.
    pub width: u16,
}

/// A kind of digest: its number (32 bits), 4 bytes of nothing, then its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestLayout {
    /// Its name.
    pub name: String,
    /// Of the record.
    pub bytes: usize,
    /// Of its values.
    pub values: Vec<Place>,
}

/// Bytes that hold a value of this width.
pub(super) fn bytes_of(width: u16) -> usize {
    usize::from(width.div_ceil(8)).next_power_of_two()
}

/// Places for values of these widths, from `at` on, which is a multiple of 8; and the byte behind them.
fn places(at: usize, widths: &[u16]) -> (Vec<Place>, usize) {
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(bytes_of(widths[*i])), *i));
    let (mut places, mut at) = (vec![Place { at: 0, bytes: 0 }; widths.len()], at);
    for i in order {
        let bytes = bytes_of(widths[i]);
        places[i] = Place { at, bytes };
        at += bytes;
    }
    (places, at)
}

impl TableLayout {
    pub(super) fn of(program: &Program, table: &Table, map: String) -> Self {
        let widths: Vec<u16> = table.keys.iter().map(|key| key.expr.ty.width()).collect();
        let key = match table.keys.iter().position(|key| key.kind == MatchKind::Lpm) {
            _ if table.keys.is_empty() => None,
            None => {
                let (fields, end) = places(0, &widths);
                // In whole words: the kernel's hash function is faster so.
                let word = if fields.iter().any(|field| field.bytes >= 8) { 8 } else { 4 };
                Some(KeyLayout::Exact { bytes: end.next_multiple_of(word), fields })
            }
            Some(lpm) => {
                let (mut at, mut fields) = (0, vec![(0, 0); widths.len()]);
                for i in (0..widths.len()).filter(|i| *i != lpm).chain([lpm]) {
                    fields[i] = (at, widths[i]);
                    at += usize::from(widths[i].div_ceil(8));
                }
                Some(KeyLayout::Lpm { bytes: at, fields, lpm })
            }
        };
        let args = |id: &ActionId| {
            let widths: Vec<u16> =
                program.actions[id.0 as usize].params.iter().map(|slot| program.width(*slot)).collect();
            let (places, end) = places(8, &widths);
            ((*id, places), end)
        };
        // What runs on a miss may be in no entry.
        let default = (!table.actions.contains(&table.default.0)).then_some(&table.default.0);
        let (actions, ends): (Vec<_>, Vec<_>) = table.actions.iter().chain(default).map(args).unzip();
        let value_bytes = ends.into_iter().max().unwrap_or(8).max(16).next_multiple_of(8);
        Self { map, key, value_bytes, actions }
    }

    /// What the map is updated by for an entry with these keys; `None` for a table without keys.
    #[must_use]
    pub fn key(&self, keys: &[Match]) -> Option<Vec<u8>> {
        match self.key.as_ref()? {
            KeyLayout::Exact { bytes, fields } => {
                let mut key = vec![0; *bytes];
                fields.iter().zip(keys).for_each(|(place, of)| put(&mut key, *place, of.value));
                Some(key)
            }
            KeyLayout::Lpm { bytes, fields, lpm } => {
                let mut key = vec![0; 4 + bytes];
                let before = (bytes - usize::from(fields[*lpm].1.div_ceil(8))) * 8;
                let length = before as u32 + u32::from(keys.get(*lpm)?.prefix_bits);
                key[..4].copy_from_slice(&length.to_ne_bytes());
                for (i, (&(at, width), of)) in fields.iter().zip(keys).enumerate() {
                    let bytes = usize::from(width.div_ceil(8));
                    // The prefix begins at the highest bit of a byte; others end with the lowest of one.
                    let spare = if i == *lpm { bytes as u16 * 8 - width } else { 0 };
                    let value = (of.value << spare).to_be_bytes();
                    key[4 + at..4 + at + bytes].copy_from_slice(&value[16 - bytes..]);
                }
                Some(key)
            }
        }
    }

    /// The value of an entry that does this; `None` if the table does not list the action.
    #[must_use]
    pub fn value(&self, action: ActionId, args: &[u128]) -> Option<Vec<u8>> {
        let index = self.actions.iter().position(|(id, _)| *id == action)?;
        let mut value = vec![0; self.value_bytes];
        value[..4].copy_from_slice(&(index as u32).to_ne_bytes());
        self.actions[index].1.iter().zip(args).for_each(|(place, arg)| put(&mut value, *place, *arg));
        Some(value)
    }
}

impl RegisterLayout {
    pub(super) fn of(map: String, ty: Ty) -> Self {
        Self { map, bytes: bytes_of(ty.width()).max(4), width: ty.width() }
    }

    /// A cell that holds this value.
    #[must_use]
    pub fn cell(&self, value: u128) -> Vec<u8> {
        let mut cell = vec![0; self.bytes];
        put(&mut cell, Place { at: 0, bytes: self.bytes }, value & mask(self.width));
        cell
    }

    /// The value in a cell.
    #[must_use]
    pub fn value(&self, cell: &[u8]) -> Option<u128> {
        Some(get(cell, Place { at: 0, bytes: self.bytes })? & mask(self.width))
    }
}

impl DigestLayout {
    /// The values of a record; `None` if it is too short.
    #[must_use]
    pub fn values(&self, record: &[u8]) -> Option<Vec<u128>> {
        self.values.iter().map(|place| get(record, *place)).collect()
    }
}

/// Kinds of digests of a program, in the order of their first statement; two of one name and other values are two.
pub(super) fn digests(program: &Program) -> Vec<DigestLayout> {
    let mut found: Vec<DigestLayout> = Vec::new();
    crate::emit::walk::statements(program, &mut |stmt| {
        if let StmtKind::Digest { name, values } = &stmt.kind {
            let layout = DigestLayout::of(name, &values.iter().map(|value| value.ty.width()).collect::<Vec<_>>());
            if !found.contains(&layout) {
                found.push(layout);
            }
        }
    });
    found
}

impl DigestLayout {
    pub(super) fn of(name: &str, widths: &[u16]) -> Self {
        let (values, end) = places(8, widths);
        Self { name: name.to_owned(), bytes: end.next_multiple_of(8), values }
    }
}

/// The lowest bits set, so many.
pub(super) fn mask(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

fn put(bytes: &mut [u8], place: Place, value: u128) {
    let of = &mut bytes[place.at..place.at + place.bytes];
    match place.bytes {
        1 => of.copy_from_slice(&(value as u8).to_ne_bytes()),
        2 => of.copy_from_slice(&(value as u16).to_ne_bytes()),
        4 => of.copy_from_slice(&(value as u32).to_ne_bytes()),
        8 => of.copy_from_slice(&(value as u64).to_ne_bytes()),
        _ => of.copy_from_slice(&value.to_ne_bytes()),
    }
}

fn get(bytes: &[u8], place: Place) -> Option<u128> {
    let of = bytes.get(place.at..place.at + place.bytes)?;
    Some(match place.bytes {
        1 => u128::from(of[0]),
        2 => u128::from(u16::from_ne_bytes(of.try_into().ok()?)),
        4 => u128::from(u32::from_ne_bytes(of.try_into().ok()?)),
        8 => u128::from(u64::from_ne_bytes(of.try_into().ok()?)),
        _ => u128::from_ne_bytes(of.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trie_matches_the_highest_bits_first() {
        let layout = TableLayout {
            map: "t".into(),
            key: Some(KeyLayout::Lpm { bytes: 5, fields: vec![(2, 20), (0, 12)], lpm: 0 }),
            value_bytes: 8,
            actions: Vec::new(),
        };
        let keys = [Match { value: 0xab000, prefix_bits: 8 }, Match { value: 0x123, prefix_bits: 12 }];
        let key = layout.key(&keys).expect("keys");
        assert_eq!(key[..4], 24_u32.to_ne_bytes());
        assert_eq!(key[4..], [0x01, 0x23, 0xab, 0, 0]);
    }

    #[test]
    fn fields_are_aligned_and_without_gaps() {
        let (places, end) = places(8, &[1, 48, 9, 32, 128]);
        assert_eq!(places.iter().map(|place| place.at).collect::<Vec<_>>(), [38, 24, 36, 32, 8]);
        assert_eq!(end, 39);
        let mut bytes = vec![0; end];
        for (i, place) in places.iter().enumerate() {
            put(&mut bytes, *place, i as u128 + 1);
        }
        assert!(places.iter().enumerate().all(|(i, place)| get(&bytes, *place) == Some(i as u128 + 1)));
    }
}
