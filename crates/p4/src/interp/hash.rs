//! Hash algorithms of v1model, bit for bit as in its reference implementation.

use crate::ir::HashAlgorithm;

/// Hash of the concatenation of `parts`.
pub fn hash<'a>(algorithm: HashAlgorithm, parts: impl Iterator<Item = &'a [u8]>) -> u128 {
    let bytes = parts.flatten().copied();
    match algorithm {
        HashAlgorithm::Crc32 => {
            u128::from(!bytes.fold(!0, |crc: u32, byte| CRC32[usize::from(crc as u8 ^ byte)] ^ crc >> 8))
        }
        HashAlgorithm::Crc16 => {
            u128::from(bytes.fold(0, |crc: u16, byte| CRC16[usize::from(crc as u8 ^ byte)] ^ crc >> 8))
        }
        HashAlgorithm::Csum16 => {
            let sum = words(bytes).fold(0u64, |sum, word| sum + u64::from(word));
            let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            u128::from(!(sum as u16))
        }
        HashAlgorithm::Xor16 => u128::from(words(bytes).fold(0, |all, word| all ^ word)),
        // The identity hash uses at most the first eight bytes.
        HashAlgorithm::Identity => bytes.take(8).fold(0, |value, byte| value << 8 | u128::from(byte)),
    }
}

/// Big-endian words; a single last byte is the high half of a word.
fn words(mut bytes: impl Iterator<Item = u8>) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let high = bytes.next()?;
        Some(u16::from_be_bytes([high, bytes.next().unwrap_or(0)]))
    })
}

const CRC32: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xa001 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: HashAlgorithm, bytes: &[u8]) -> u128 {
        hash(algorithm, [bytes].into_iter())
    }

    #[test]
    fn hashes_match_published_check_values() {
        // Check values of the CRC catalogue, and the example of RFC 1071.
        assert_eq!(of(HashAlgorithm::Crc32, b"123456789"), 0xcbf4_3926);
        assert_eq!(of(HashAlgorithm::Crc16, b"123456789"), 0xbb3d);
        assert_eq!(of(HashAlgorithm::Csum16, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        assert_eq!(of(HashAlgorithm::Xor16, &[0x12, 0x34, 0x56]), 0x4434);
        assert_eq!(of(HashAlgorithm::Identity, &[1, 2]), 0x0102);
        assert_eq!(of(HashAlgorithm::Identity, &[9; 12]), 0x0909_0909_0909_0909);
    }

    #[test]
    fn hash_of_parts_equals_hash_of_concatenation() {
        let whole = of(HashAlgorithm::Csum16, &[1, 2, 3, 4, 5]);
        assert_eq!(hash(HashAlgorithm::Csum16, [&[1u8, 2, 3][..], &[4, 5]].into_iter()), whole);
    }

    #[test]
    fn checksum_of_many_words_wraps_carry() {
        let bytes = vec![0xff; crate::exec::PACKET_MAX - 1];
        assert_eq!(of(HashAlgorithm::Csum16, &bytes), 0);
    }
}
