//! Memory layout of the entries of a mirrored table, shared by C and Rust.
//!
//! ```text
//! struct nat_out_entry { struct nat_out_key key; uint32_t action; union { struct { … } rewrite; } args; };
//! ```
//!
//! Numbers of up to 64 bits are C integers, little-endian and aligned to their size; wider numbers are bytes in network
//! order. An entry that a handler writes is checked and normalised (bits beyond a field's width and padding are 0)
//! before it is stored, so that equal keys have equal bytes.

use pathcall_p4::ir::{ActionId, Match, MatchKind, Program, TableEntry, TableId, Ty};

/// Longest entry, bytes.
pub const ENTRY_BYTES_MAX: usize = 512;
/// Longest exact part of a key, bytes.
pub const EXACT_BYTES_MAX: usize = 64;

/// Error of a table that cannot be mirrored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The exact keys of the table are too long.
    #[error("table {table}: its exact keys take {got} bytes, at most {EXACT_BYTES_MAX} can be mirrored")]
    Key {
        /// Name of the table.
        table: String,
        /// Length of the exact keys, bytes.
        got: usize,
    },
    /// The entries of the table are too long.
    #[error("table {table}: an entry takes {got} bytes, at most {ENTRY_BYTES_MAX} can be mirrored")]
    Entry {
        /// Name of the table.
        table: String,
        /// Length of an entry, bytes.
        got: usize,
    },
}

/// Member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name in C.
    pub name: String,
    /// Type of the value.
    pub ty: Ty,
    /// Offset in the struct, bytes.
    pub offset: usize,
}

/// Layout of a struct.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Struct {
    /// Members of the struct.
    pub fields: Vec<Field>,
    /// Size, bytes.
    pub bytes: usize,
    /// Alignment, bytes.
    pub align: usize,
}

/// Key field of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyField {
    /// Index of the key's value in the struct's fields.
    pub value: usize,
    /// Index of the prefix length in the struct's fields, for a prefix match.
    pub prefix: Option<usize>,
}

/// Layout of an action of a table's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionLayout {
    /// Action of the program.
    pub id: ActionId,
    /// Name in C.
    pub name: String,
    /// Arguments of the action.
    pub args: Struct,
}

/// Layout of a table's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLayout {
    /// Table of the program.
    pub id: TableId,
    /// Name in C.
    pub name: String,
    /// Key, at offset 0.
    pub key: Struct,
    /// Key fields, in the table's order.
    pub keys: Vec<KeyField>,
    /// Widths of the key fields, bits.
    pub widths: Vec<u16>,
    /// Offset of the action's index.
    pub action_offset: usize,
    /// Offset of the action's arguments.
    pub args_offset: usize,
    /// Actions, in the table's order.
    pub actions: Vec<ActionLayout>,
    /// Size of an entry, bytes.
    pub bytes: usize,
}

/// Lookup key of a mirrored table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorKey {
    exact: [u8; EXACT_BYTES_MAX],
    exact_bytes: u8,
    /// Prefix part of the key, if the table has one; in a lookup, an address.
    pub prefix: Match,
}

impl MirrorKey {
    /// Exact part of the key.
    #[must_use]
    #[inline]
    pub fn exact(&self) -> &[u8] {
        &self.exact[..usize::from(self.exact_bytes)]
    }
}

/// Size and alignment of a value in C, bytes.
#[must_use]
pub fn size(ty: Ty) -> (usize, usize) {
    match ty.width() {
        0..=8 => (1, 1),
        9..=16 => (2, 2),
        17..=32 => (4, 4),
        33..=64 => (8, 8),
        width => (usize::from(width).div_ceil(8), 1),
    }
}

impl Struct {
    /// Appends a member and returns its index.
    pub fn push(&mut self, name: impl Into<String>, ty: Ty) -> usize {
        let (bytes, align) = size(ty);
        let offset = self.fields.last().map_or(0, |last| last.offset + size(last.ty).0).next_multiple_of(align);
        self.align = self.align.max(align).max(1);
        self.bytes = (offset + bytes).next_multiple_of(self.align);
        self.fields.push(Field { name: name.into(), ty, offset });
        self.fields.len() - 1
    }
}

impl Field {
    /// Reads the member from a struct.
    #[must_use]
    #[inline]
    pub fn read(&self, of: &[u8]) -> u128 {
        let at = &of[self.offset..];
        let value = match size(self.ty).0 {
            1 if self.ty.width() <= 8 => u128::from(at[0]),
            2 if self.ty.width() <= 16 => u128::from(u16::from_le_bytes([at[0], at[1]])),
            4 if self.ty.width() <= 32 => u128::from(u32::from_le_bytes(at[..4].try_into().expect("4 bytes"))),
            8 if self.ty.width() <= 64 => u128::from(u64::from_le_bytes(at[..8].try_into().expect("8 bytes"))),
            bytes => at[..bytes].iter().fold(0, |value, byte| value << 8 | u128::from(*byte)),
        };
        value & mask(self.ty.width())
    }

    /// Writes the member into a struct; a signed value is sign-extended, as in C.
    #[inline]
    pub fn write(&self, of: &mut [u8], value: u128) {
        let width = self.ty.width();
        let mut value = value & mask(width);
        if self.ty.signed() && width < 128 && value >> (width - 1) & 1 == 1 {
            value |= !mask(width);
        }
        let bytes = size(self.ty).0;
        let at = &mut of[self.offset..][..bytes];
        if width <= 64 {
            at.copy_from_slice(&value.to_le_bytes()[..bytes]);
        } else {
            at.copy_from_slice(&value.to_be_bytes()[16 - bytes..]);
        }
    }
}

impl TableLayout {
    /// Builds the layout of one table's entries.
    pub fn new(program: &Program, id: TableId) -> Result<Self, LayoutError> {
        let table = &program.tables[id.0 as usize];
        let names = members(table.keys.iter().map(|key| key.name.as_str()));
        let (mut key, mut keys, mut exact_bytes) = (Struct { align: 1, ..Struct::default() }, Vec::new(), 0);
        for (part, name) in table.keys.iter().zip(names) {
            let value = key.push(name.clone(), part.expr.ty);
            let prefix = (part.kind == MatchKind::Lpm).then(|| key.push(format!("{name}_prefix_bits"), Ty::Bit(16)));
            exact_bytes += if prefix.is_none() { size(part.expr.ty).0 } else { 0 };
            keys.push(KeyField { value, prefix });
        }
        if exact_bytes > EXACT_BYTES_MAX {
            return Err(LayoutError::Key { table: table.name.clone(), got: exact_bytes });
        }
        let names = members(table.actions.iter().map(|action| program.actions[action.0 as usize].name.as_str()));
        let actions: Vec<ActionLayout> = table
            .actions
            .iter()
            .zip(names)
            .map(|(&id, name)| {
                let params = &program.actions[id.0 as usize].params;
                let names = members(params.iter().map(|slot| program.slots[slot.0 as usize].name.as_str()));
                let mut args = Struct { align: 1, ..Struct::default() };
                for (slot, name) in params.iter().zip(names) {
                    args.push(name, program.slots[slot.0 as usize].ty);
                }
                ActionLayout { id, name, args }
            })
            .collect();
        let action_offset = key.bytes.next_multiple_of(4);
        let args_align = actions.iter().map(|action| action.args.align).max().unwrap_or(1);
        let args_bytes = actions.iter().map(|action| action.args.bytes).max().unwrap_or(0);
        let args_offset = (action_offset + 4).next_multiple_of(args_align);
        let align = key.align.max(args_align).max(4);
        let bytes = (args_offset + args_bytes.next_multiple_of(args_align)).next_multiple_of(align);
        if bytes > ENTRY_BYTES_MAX {
            return Err(LayoutError::Entry { table: table.name.clone(), got: bytes });
        }
        let name = table.name.clone();
        let widths = table.keys.iter().map(|key| key.expr.ty.width()).collect();
        Ok(Self { id, name, key, keys, widths, action_offset, args_offset, actions, bytes })
    }

    /// Reads the key from the beginning of `bytes`: an entry or a lookup key (whose prefix lengths are ignored).
    #[must_use]
    #[inline]
    pub fn key(&self, bytes: &[u8]) -> MirrorKey {
        let none = Match { value: 0, prefix_bits: 0 };
        let mut key = MirrorKey { exact: [0; EXACT_BYTES_MAX], exact_bytes: 0, prefix: none };
        for part in &self.keys {
            let field = &self.key.fields[part.value];
            let value = field.read(bytes);
            match part.prefix {
                Some(prefix) => {
                    let width = field.ty.width();
                    let prefix_bits = (self.key.fields[prefix].read(bytes) as u16).min(width);
                    key.prefix = Match { value, prefix_bits };
                }
                None => {
                    let (len, at) = (size(field.ty).0, usize::from(key.exact_bytes));
                    key.exact[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
                    key.exact_bytes += len as u8;
                }
            }
        }
        key
    }

    /// Width of the prefix key, if the table has one.
    #[must_use]
    pub fn prefix_width(&self) -> Option<u16> {
        self.keys.iter().find(|key| key.prefix.is_some()).map(|key| self.key.fields[key.value].ty.width())
    }

    /// Whether the key has an exact part.
    #[must_use]
    pub fn has_exact(&self) -> bool {
        self.keys.iter().any(|key| key.prefix.is_none())
    }

    /// Normalises an entry as a handler wrote it; false if the entry names no action of this table, or if a prefix is
    /// longer than its key.
    #[must_use]
    pub fn normalise(&self, written: &[u8], entry: &mut [u8]) -> bool {
        entry.fill(0);
        let Some(action) = self.action(written) else { return false };
        for part in &self.keys {
            let field = &self.key.fields[part.value];
            let mut value = field.read(written);
            if let Some(prefix) = part.prefix {
                let prefix = &self.key.fields[prefix];
                let (bits, width) = (prefix.read(written) as u16, field.ty.width());
                if bits > width {
                    return false;
                }
                value &= !mask(width - bits);
                prefix.write(entry, u128::from(bits));
            }
            field.write(entry, value);
        }
        entry[self.action_offset..][..4].copy_from_slice(&written[self.action_offset..][..4]);
        for field in &action.args.fields {
            field.write(&mut entry[self.args_offset..], field.read(&written[self.args_offset..]));
        }
        true
    }

    /// Action of an entry.
    #[must_use]
    pub fn action(&self, entry: &[u8]) -> Option<&ActionLayout> {
        let index = u32::from_le_bytes(entry[self.action_offset..][..4].try_into().expect("4 bytes"));
        self.actions.get(index as usize)
    }

    /// Converts a normalised entry to the controller's form.
    #[must_use]
    pub fn to_ir(&self, entry: &[u8]) -> TableEntry {
        let action = self.action(entry).expect("stored entries have an action");
        let keys = self.keys.iter().map(|part| {
            let field = &self.key.fields[part.value];
            let prefix_bits = part.prefix.map_or(field.ty.width(), |prefix| self.key.fields[prefix].read(entry) as u16);
            Match { value: field.read(entry), prefix_bits }
        });
        let args = action.args.fields.iter().map(|field| field.read(&entry[self.args_offset..]));
        TableEntry { keys: keys.collect(), action: action.id, args: args.collect() }
    }

    /// Converts an entry of the controller to normalised bytes; false if the entry does not belong to this table.
    #[must_use]
    pub fn from_ir(&self, entry: &TableEntry, bytes: &mut [u8]) -> bool {
        bytes.fill(0);
        let Some(index) = self.actions.iter().position(|action| action.id == entry.action) else { return false };
        let action = &self.actions[index];
        if entry.args.len() != action.args.fields.len() || !self.key_from_ir(&entry.keys, bytes) {
            return false;
        }
        bytes[self.action_offset..][..4].copy_from_slice(&(index as u32).to_le_bytes());
        for (field, value) in action.args.fields.iter().zip(&entry.args) {
            field.write(&mut bytes[self.args_offset..], *value);
        }
        true
    }

    /// Converts keys of the controller to bytes; false if they do not belong to this table.
    #[must_use]
    pub fn key_from_ir(&self, keys: &[Match], bytes: &mut [u8]) -> bool {
        if keys.len() != self.keys.len() {
            return false;
        }
        for (part, matched) in self.keys.iter().zip(keys) {
            let field = &self.key.fields[part.value];
            let width = field.ty.width();
            if matched.prefix_bits > width || (part.prefix.is_none() && matched.prefix_bits != width) {
                return false;
            }
            field.write(bytes, matched.value & !mask(width - matched.prefix_bits));
            if let Some(prefix) = part.prefix {
                self.key.fields[prefix].write(bytes, u128::from(matched.prefix_bits));
            }
        }
        true
    }
}

/// Mask of the lowest `bits` bits.
#[must_use]
#[inline]
pub fn mask(bits: u16) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// Names of struct members: the last component of each path, with more components where names would clash.
#[must_use]
pub fn members<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let tail = |path: &str, parts: usize| {
        let all: Vec<String> = path.split('.').map(identifier).collect();
        all[all.len().saturating_sub(parts)..].join("_")
    };
    let parts = (1..8)
        .find(|&parts| {
            let mut names: Vec<String> = paths.clone().map(|path| tail(path, parts)).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            names.len() == count
        })
        .unwrap_or(8);
    paths.map(|path| tail(path, parts)).collect()
}

/// C identifier for `name`: other characters become `_`.
#[must_use]
pub fn identifier(name: &str) -> String {
    let mut name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    while name.ends_with('_') {
        name.pop();
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
