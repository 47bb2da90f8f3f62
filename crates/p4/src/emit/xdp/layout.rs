//! Memory layout of an emitted program's maps, for the emitter's C structures and the loader's keys and values.
//!
//! Fields are ordered by size, largest first, so that each is aligned without padding. Numbers are in host byte order,
//! except for the keys of a trie.

use crate::ir::{ActionId, Match, MatchKind, Program, StmtKind, Table, Ty};

/// Layout of all maps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapLayouts {
    /// Tables, by [`crate::ir::TableId`].
    pub tables: Vec<TableMapLayout>,
    /// Registers, by [`crate::ir::RegisterId`].
    pub registers: Vec<RegisterMapLayout>,
    /// Map names of counters, by [`crate::ir::CounterId`].
    pub counters: Vec<String>,
    /// Kinds of digests, by their number in records.
    pub digests: Vec<DigestLayout>,
}

/// Byte range of a field in a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPlace {
    /// Offset.
    pub at: usize,
    /// Size: 1, 2, 4, 8 or 16.
    pub bytes: usize,
}

/// Map of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMapLayout {
    /// Name of the map.
    pub map: String,
    /// Key; `None` for a table without keys, which has no map.
    pub key: Option<MapKeyLayout>,
    /// Size of a value: the action's index in the table's list (32 bits), then its arguments.
    pub value_bytes: usize,
    /// Actions in the order of the table's list, with the places of their arguments.
    pub actions: Vec<(ActionId, Vec<FieldPlace>)>,
}

/// Key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapKeyLayout {
    /// Key of a hash table.
    Exact {
        /// Size of the key; bytes outside of the fields are 0.
        bytes: usize,
        /// Fields, by key of the table.
        fields: Vec<FieldPlace>,
    },
    /// Key of a trie: prefix length (32 bits), then the table's keys, highest bits first, the prefix key last.
    Lpm {
        /// Size of the matched bytes.
        bytes: usize,
        /// Offset behind the prefix length in bytes, and width in bits, by key of the table.
        fields: Vec<(usize, u16)>,
        /// Index of the prefix key.
        lpm: usize,
    },
}

/// Map of a register array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterMapLayout {
    /// Name of the map.
    pub map: String,
    /// Size of a cell: 4, 8 or 16 bytes; bits above the width are undefined.
    pub bytes: usize,
    /// Width of a value, bits.
    pub width: u16,
}

/// Digest record: number of the kind (32 bits), 4 bytes of padding, then the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestLayout {
    /// Name.
    pub name: String,
    /// Size of the record.
    pub bytes: usize,
    /// Places of the values.
    pub values: Vec<FieldPlace>,
}

/// Storage size for a value of this width.
pub(super) fn bytes_of(width: u16) -> usize {
    usize::from(width.div_ceil(8)).next_power_of_two()
}

/// Places of values of these widths from offset `at`, a multiple of 8; and the end offset.
fn places(at: usize, widths: &[u16]) -> (Vec<FieldPlace>, usize) {
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(bytes_of(widths[*i])), *i));
    let (mut places, mut at) = (vec![FieldPlace { at: 0, bytes: 0 }; widths.len()], at);
    for i in order {
        let bytes = bytes_of(widths[i]);
        places[i] = FieldPlace { at, bytes };
        at += bytes;
    }
    (places, at)
}

impl TableMapLayout {
    pub(super) fn of(program: &Program, table: &Table, map: String) -> Self {
        let widths: Vec<u16> = table.keys.iter().map(|key| key.expr.ty.width()).collect();
        let key = match table.keys.iter().position(|key| key.kind == MatchKind::Lpm) {
            _ if table.keys.is_empty() => None,
            None => {
                let (fields, end) = places(0, &widths);
                // Whole words, since the kernel's hash function is faster on them.
                let word = if fields.iter().any(|field| field.bytes >= 8) { 8 } else { 4 };
                Some(MapKeyLayout::Exact { bytes: end.next_multiple_of(word), fields })
            }
            Some(lpm) => {
                let (mut at, mut fields) = (0, vec![(0, 0); widths.len()]);
                for i in (0..widths.len()).filter(|i| *i != lpm).chain([lpm]) {
                    fields[i] = (at, widths[i]);
                    at += usize::from(widths[i].div_ceil(8));
                }
                Some(MapKeyLayout::Lpm { bytes: at, fields, lpm })
            }
        };
        let args = |id: &ActionId| {
            let widths: Vec<u16> =
                program.actions[id.0 as usize].params.iter().map(|slot| program.width(*slot)).collect();
            let (places, end) = places(8, &widths);
            ((*id, places), end)
        };
        // The default action need not be in the table's list.
        let default = (!table.actions.contains(&table.default.0)).then_some(&table.default.0);
        let (actions, ends): (Vec<_>, Vec<_>) = table.actions.iter().chain(default).map(args).unzip();
        let value_bytes = ends.into_iter().max().unwrap_or(8).max(16).next_multiple_of(8);
        Self { map, key, value_bytes, actions }
    }

    /// Map key of an entry; `None` for a table without keys.
    #[must_use]
    pub fn key(&self, keys: &[Match]) -> Option<Vec<u8>> {
        match self.key.as_ref()? {
            MapKeyLayout::Exact { bytes, fields } => {
                let mut key = vec![0; *bytes];
                fields.iter().zip(keys).for_each(|(place, of)| put(&mut key, *place, of.value));
                Some(key)
            }
            MapKeyLayout::Lpm { bytes, fields, lpm } => {
                let mut key = vec![0; 4 + bytes];
                let before = (bytes - usize::from(fields[*lpm].1.div_ceil(8))) * 8;
                let length = before as u32 + u32::from(keys.get(*lpm)?.prefix_bits);
                key[..4].copy_from_slice(&length.to_ne_bytes());
                for (i, (&(at, width), of)) in fields.iter().zip(keys).enumerate() {
                    let bytes = usize::from(width.div_ceil(8));
                    // The prefix key begins at the high bit of a byte, other keys end at the low bit of one.
                    let spare = if i == *lpm { bytes as u16 * 8 - width } else { 0 };
                    let value = (of.value << spare).to_be_bytes();
                    key[4 + at..4 + at + bytes].copy_from_slice(&value[16 - bytes..]);
                }
                Some(key)
            }
        }
    }

    /// Map value of an entry; `None` if the table does not list the action.
    #[must_use]
    pub fn value(&self, action: ActionId, args: &[u128]) -> Option<Vec<u8>> {
        let index = self.actions.iter().position(|(id, _)| *id == action)?;
        let mut value = vec![0; self.value_bytes];
        value[..4].copy_from_slice(&(index as u32).to_ne_bytes());
        self.actions[index].1.iter().zip(args).for_each(|(place, arg)| put(&mut value, *place, *arg));
        Some(value)
    }
}

impl RegisterMapLayout {
    pub(super) fn of(map: String, ty: Ty) -> Self {
        Self { map, bytes: bytes_of(ty.width()).max(4), width: ty.width() }
    }

    /// Cell with this value.
    #[must_use]
    pub fn cell(&self, value: u128) -> Vec<u8> {
        let mut cell = vec![0; self.bytes];
        put(&mut cell, FieldPlace { at: 0, bytes: self.bytes }, value & mask(self.width));
        cell
    }

    /// Value of a cell.
    #[must_use]
    pub fn value(&self, cell: &[u8]) -> Option<u128> {
        Some(get(cell, FieldPlace { at: 0, bytes: self.bytes })? & mask(self.width))
    }
}

impl DigestLayout {
    /// Values of a record; `None` if the record is too short.
    #[must_use]
    pub fn values(&self, record: &[u8]) -> Option<Vec<u128>> {
        self.values.iter().map(|place| get(record, *place)).collect()
    }
}

/// Digest kinds of a program, in the order of their first statement. Digests of one name with different values are
/// different kinds.
pub(super) fn digests(program: &Program) -> Vec<DigestLayout> {
    let mut found: Vec<DigestLayout> = Vec::new();
    crate::emit::visit::statements(program, &mut |stmt| {
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

/// Mask of the lowest bits.
pub(super) fn mask(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

fn put(bytes: &mut [u8], place: FieldPlace, value: u128) {
    let of = &mut bytes[place.at..place.at + place.bytes];
    match place.bytes {
        1 => of.copy_from_slice(&(value as u8).to_ne_bytes()),
        2 => of.copy_from_slice(&(value as u16).to_ne_bytes()),
        4 => of.copy_from_slice(&(value as u32).to_ne_bytes()),
        8 => of.copy_from_slice(&(value as u64).to_ne_bytes()),
        _ => of.copy_from_slice(&value.to_ne_bytes()),
    }
}

fn get(bytes: &[u8], place: FieldPlace) -> Option<u128> {
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
    fn trie_key_has_high_bits_first() {
        let layout = TableMapLayout {
            map: "t".into(),
            key: Some(MapKeyLayout::Lpm { bytes: 5, fields: vec![(2, 20), (0, 12)], lpm: 0 }),
            value_bytes: 8,
            actions: Vec::new(),
        };
        let keys = [Match { value: 0xab000, prefix_bits: 8 }, Match { value: 0x123, prefix_bits: 12 }];
        let key = layout.key(&keys).expect("keys");
        assert_eq!(key[..4], 24_u32.to_ne_bytes());
        assert_eq!(key[4..], [0x01, 0x23, 0xab, 0, 0]);
    }

    #[test]
    fn map_fields_are_aligned_without_gaps() {
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
