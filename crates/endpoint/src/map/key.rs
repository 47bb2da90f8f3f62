//! Keys, and the 32-bit logical addresses that keys hash to (NetRPC §5.2.2).

use std::hash::{Hash, Hasher};

/// Key of a map: a string or an integer. The index of an array is an integer.
///
/// Stored in its encoding: a tag byte, `s` or `i`, and the bytes. A string too long for a frame is replaced by a number
/// that the server assigned: `n` and eight bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Encoding of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Key from its encoding.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (b's', text) if std::str::from_utf8(text).is_ok() => Some(Self(bytes.into())),
            (b'i' | b'n', int) if int.len() == 8 => Some(Self(bytes.into())),
            _ => None,
        }
    }

    /// Key with a number that replaces a key too long for a frame.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        let mut bytes = [b'n'; 9];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        Self(bytes.into())
    }

    /// Number assigned by the server, if this key replaces a longer one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.strip_prefix(b"n").and_then(|number| number.try_into().ok()).map(u64::from_be_bytes)
    }

    /// Whether the key is too long for a frame.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.0.len() > pathcall_wire::pairs::MAX_KEY
    }

    /// The string, if the key is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        self.0.strip_prefix(b"s").and_then(|text| std::str::from_utf8(text).ok())
    }

    /// The integer, if the key is an integer.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        self.0.strip_prefix(b"i").and_then(|int| int.try_into().ok()).map(i64::from_be_bytes)
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.push(b's');
        bytes.extend_from_slice(text.as_bytes());
        Self(bytes.into())
    }
}

impl From<i64> for Key {
    fn from(int: i64) -> Self {
        let mut bytes = [b'i'; 9];
        bytes[1..].copy_from_slice(&int.to_be_bytes());
        Self(bytes.into())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.as_str(), self.as_int(), self.as_number()) {
            (Some(text), ..) => write!(f, "{text:?}"),
            (_, Some(int), _) => write!(f, "{int}"),
            (.., Some(number)) => write!(f, "long key {number}"),
            _ => write!(f, "{:02x?}", self.0),
        }
    }
}

/// FNV-1a hash. Caller and server of different builds need the same hash, which the standard library does not promise.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// Logical address of a key. If several keys have the same address, the server assigns it to the first key, and the
/// other keys are always sent whole.
#[must_use]
pub fn logical_address(key: &[u8]) -> u32 {
    fold(|h| h.write(key))
}

/// Tag of a chunk, equal in all contributions: hash of the position in the call, the length of the call and the
/// modification. Never 0.
pub(super) fn tag(chunk: u32, lanes: usize, modify: super::Modify) -> u32 {
    fold(|h| (chunk, lanes as u64, modify.op as u8, modify.para).hash(h)).max(1)
}

fn fold(feed: impl FnOnce(&mut Fnv)) -> u32 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    feed(&mut hasher);
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        for key in [Key::from("word"), Key::from(""), Key::from(-7), Key::numbered(9)] {
            assert_eq!(Key::from_bytes(key.as_bytes()), Some(key.clone()));
        }
        assert_eq!((Key::numbered(9).as_number(), Key::from(9).as_number()), (Some(9), None));
        assert_eq!((Key::numbered(9).as_str(), Key::numbered(9).as_int()), (None, None));
        assert_eq!((Key::from("a").as_str(), Key::from("a").as_int()), (Some("a"), None));
        assert_eq!((Key::from(5).as_str(), Key::from(5).as_int()), (None, Some(5)));
        assert_eq!(Key::from_bytes(b"i123"), None);
        assert_eq!(Key::from_bytes(b"s\xff"), None);
        assert_eq!(Key::from_bytes(b""), None);
    }

    #[test]
    fn logical_address_is_stable() {
        assert_eq!(logical_address(Key::from("word").as_bytes()), logical_address(b"sword"));
        assert_ne!(logical_address(b"sword"), logical_address(b"sworD"));
    }

    #[test]
    fn tag_depends_on_position_and_length() {
        let modify = super::super::Modify::default();
        assert_ne!(tag(0, 256, modify), tag(1, 256, modify));
        assert_ne!(tag(0, 256, modify), tag(0, 257, modify));
    }
}
