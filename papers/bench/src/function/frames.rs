//! Packets of figures: Ethernet, IPv4 and UDP with correct checksums; and six traffic mixes.

use super::routes::XorShift;

/// Bytes before the payload.
pub(crate) const HEADERS: usize = 14 + 20 + 8;
/// Longest frame, without its check sequence.
pub(crate) const FRAME_MAX: usize = 1514;

/// Addresses and ports of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

impl Flow {
    /// Flow of inside host `n` to an outside host, with a distinct SNAT key.
    pub(crate) fn inside(n: usize) -> Self {
        let mut random = XorShift(n as u64 + 1);
        random.next();
        let n = n as u32;
        Self {
            src: 0x0a01_0000 | n >> 4,
            dst: 0xc633_6400 | random.next() & 0xff,
            sport: 1024 + (n as u16 & 0xf) * 4000 + (random.next() % 4000) as u16,
            dport: 443,
        }
    }
}

/// Frame of `length` bytes, at least [`HEADERS`], with a payload of zeros.
pub(crate) fn udp(flow: Flow, length: usize, dmac: [u8; 6]) -> Vec<u8> {
    let length = length.max(HEADERS);
    let mut frame = vec![0; length];
    frame[..6].copy_from_slice(&dmac);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let (ip, rest) = frame[14..].split_at_mut(20);
    let put = |bytes: &mut [u8], value: u16| bytes.copy_from_slice(&value.to_be_bytes());
    ip[0] = 0x45;
    put(&mut ip[2..4], (length - 14) as u16);
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&flow.src.to_be_bytes());
    ip[16..20].copy_from_slice(&flow.dst.to_be_bytes());
    let sum = checksum(&[ip]);
    put(&mut ip[10..12], sum);
    let long = (length - 34) as u16;
    put(&mut rest[0..2], flow.sport);
    put(&mut rest[2..4], flow.dport);
    put(&mut rest[4..6], long);
    let mut pseudo = [0; 12];
    pseudo[..8].copy_from_slice(&ip[12..20]);
    pseudo[9] = 17;
    put(&mut pseudo[10..12], long);
    let sum = checksum(&[&pseudo, rest]);
    put(&mut rest[6..8], if sum == 0 { 0xffff } else { sum });
    frame
}

/// True if a frame of [`udp`], possibly rewritten, has correct checksums.
pub(crate) fn has_correct_checksums(frame: &[u8]) -> bool {
    let (ip, udp) = (&frame[14..34], &frame[34..]);
    let mut pseudo = [0; 12];
    pseudo[..8].copy_from_slice(&ip[12..20]);
    pseudo[9] = 17;
    pseudo[10..12].copy_from_slice(&udp[4..6]);
    checksum(&[ip]) == 0 && checksum(&[&pseudo, udp]) == 0
}

/// Checksum of RFC 1071 over pieces of even length, except the last.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let mut sum = words.fold(0u32, |sum, word| sum + u32::from(word[0]) * 256 + word.get(1).map_or(0, |b| (*b).into()));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Traffic mix after CLIP Fig. 11: distribution of frame lengths. The paper names its traces and draws their lengths
/// without numbers, so these are assumed: in each group of three, frames grow longer.
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    /// Lengths of frames, with their share in percent.
    pub(crate) lengths: [(usize, u32); 4],
}

impl Mix {
    /// Mean frame length in bytes.
    pub(crate) fn mean(&self) -> f64 {
        let bytes: f64 = self.lengths.iter().map(|(length, share)| *length as f64 * f64::from(*share)).sum();
        bytes / 100.0
    }

    pub(crate) fn draw(&self, random: &mut XorShift) -> usize {
        let mut drawn = random.next() % 100;
        for (length, share) in self.lengths {
            match drawn.checked_sub(share) {
                Some(rest) => drawn = rest,
                None => return length,
            }
        }
        FRAME_MAX
    }
}

pub(crate) const MIXES: [Mix; 6] = [
    Mix { name: "access point", lengths: [(64, 55), (200, 20), (576, 10), (1514, 15)] },
    Mix { name: "backbone", lengths: [(64, 40), (200, 15), (576, 10), (1514, 35)] },
    Mix { name: "data center", lengths: [(64, 30), (200, 15), (576, 10), (1514, 45)] },
    Mix { name: "instant message", lengths: [(64, 60), (200, 30), (576, 7), (1514, 3)] },
    Mix { name: "web search", lengths: [(64, 35), (200, 20), (576, 15), (1514, 30)] },
    Mix { name: "video stream", lengths: [(64, 15), (200, 3), (576, 2), (1514, 80)] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_detects_changes() {
        for length in [42, 60, 61, 1514] {
            let mut frame = udp(Flow::inside(length), length, [2; 6]);
            assert!(has_correct_checksums(&frame), "{length}");
            frame[26] ^= 1;
            assert!(!has_correct_checksums(&frame));
        }
    }

    #[test]
    fn mix_shares_sum_up_and_flow_keys_are_distinct() {
        assert!(MIXES.iter().all(|mix| mix.lengths.iter().map(|(_, share)| share).sum::<u32>() == 100));
        let keys: std::collections::HashSet<(u32, u16)> =
            (0..1 << 16).map(Flow::inside).map(|flow| (flow.src, flow.sport)).collect();
        assert_eq!(keys.len(), 1 << 16);
    }
}
