//! Stored objects: numeric keys of 16 bytes, and values of 64 bytes derived from them (NetClone §5.5).

/// Bytes of a key.
pub const KEY: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 64;
/// Number of objects in the paper's stores.
pub const OBJECTS: u64 = 1_000_000;
/// Number of objects in a scan.
pub const SCAN: u32 = 100;

const PREFIX: &[u8; 4] = b"key-";

/// Key of this number, below 10^12.
#[must_use]
pub fn key(number: u64) -> [u8; KEY] {
    let mut key = *b"key-000000000000";
    let mut rest = number;
    for digit in key[PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Number of a key; `None` for other keys.
#[must_use]
pub fn number(key: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(PREFIX).filter(|digits| digits.len() == KEY - PREFIX.len())?;
    digits
        .iter()
        .try_fold(0_u64, |number, digit| Some(number * 10 + u64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?)))
}

/// Value of this number in a filled store; all values differ.
#[must_use]
pub fn value(number: u64) -> [u8; VALUE] {
    let (mut value, mut word) = ([0; VALUE], number);
    for bytes in value.chunks_exact_mut(8) {
        // SplitMix64: a bijection.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = word;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_others_are_rejected() {
        for n in [0, 7, 999_999, 999_999_999_999] {
            assert_eq!(number(&key(n)), Some(n));
        }
        assert_eq!(&key(42), b"key-000000000042");
        for other in [&b""[..], b"key-", b"key-00000000004x", b"kei-000000000042", b"key-0000000000042"] {
            assert_eq!(number(other), None, "{other:?}");
        }
    }

    #[test]
    fn values_differ() {
        let values: std::collections::HashSet<_> = (0..1000).map(value).collect();
        assert_eq!(values.len(), 1000);
    }
}
