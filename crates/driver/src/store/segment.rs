//! Segment: a file of groups of batches, each group with a checksum.
//!
//! ```text
//! group = mark, length, CRC-32, then batches, each with its length
//! ```
//!
//! A group is written and synced at once. So a damaged last group was never acknowledged, and is cut; a damaged group
//! before an intact one means that the file was changed.

/// First bytes of a group.
const MARK: [u8; 4] = *b"Pco1";
/// Length of the header of a group.
const HEADER: usize = 12;

/// Encodes a group of batches.
pub(super) fn encode(batches: &[Vec<u8>]) -> Vec<u8> {
    let len = batches.iter().map(|batch| 4 + batch.len()).sum::<usize>();
    let mut group = Vec::with_capacity(HEADER + len);
    group.extend_from_slice(&MARK);
    group.extend_from_slice(&(len as u32).to_le_bytes());
    group.extend_from_slice(&[0; 4]);
    for batch in batches {
        group.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        group.extend_from_slice(batch);
    }
    let sum = crc32(&group[HEADER..]);
    group[8..HEADER].copy_from_slice(&sum.to_le_bytes());
    group
}

/// Batches of a segment, without a torn end.
///
/// # Errors
/// Position of a damaged group before an intact one.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Vec<u8>>, usize> {
    let (mut batches, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((group, end)) = group_at(bytes, at) else {
            let later = (at + 1..bytes.len()).any(|later| group_at(bytes, later).is_some());
            return if later { Err(at) } else { Ok(batches) };
        };
        batches.extend(group.into_iter().map(<[u8]>::to_vec));
        at = end;
    }
    Ok(batches)
}

/// Batches of the group at this position, and its end; `None` if there is no intact group.
fn group_at(bytes: &[u8], at: usize) -> Option<(Vec<&[u8]>, usize)> {
    let header = bytes.get(at..at + HEADER).filter(|header| header[..4] == MARK)?;
    let end = at.checked_add(HEADER)?.checked_add(number(&header[4..])? as usize)?;
    let mut rest = bytes.get(at + HEADER..end).filter(|body| Some(crc32(body)) == number(&header[8..]))?;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (batch, after) = rest.get(4..)?.split_at_checked(number(rest)? as usize)?;
        batches.push(batch);
        rest = after;
    }
    Some((batches, end))
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> [Vec<Vec<u8>>; 3] {
        [vec![b"one".to_vec(), Vec::new()], vec![vec![7; 300]], vec![b"last".to_vec()]]
    }

    fn segment() -> Vec<u8> {
        groups().iter().flat_map(|group| encode(group)).collect()
    }

    #[test]
    fn crc_has_the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn segment_round_trips() {
        assert_eq!(decode(&segment()), Ok(groups().concat()));
        assert_eq!(decode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn torn_end_is_cut() {
        let (whole, last) = (segment(), encode(&groups()[2]).len());
        for torn in 1..=last {
            let kept = decode(&whole[..whole.len() - torn]);
            assert_eq!(kept, Ok(groups()[..2].concat()), "{torn} bytes are missing");
        }
        let mut zeros = whole[..whole.len() - last].to_vec();
        zeros.extend_from_slice(&[0; 4096]);
        assert_eq!(decode(&zeros), Ok(groups()[..2].concat()), "the file has grown, and the data is missing");
    }

    #[test]
    fn damage_before_an_intact_group_is_an_error() {
        let whole = segment();
        let (first, last) = (encode(&groups()[0]).len(), whole.len() - encode(&groups()[2]).len());
        for at in 0..last {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged), Err(if at < first { 0 } else { first }), "byte {at}");
        }
    }
}
