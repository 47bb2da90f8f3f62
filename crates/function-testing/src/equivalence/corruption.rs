//! Corrupt and hostile frames: truncated, with options, fragments, wrong lengths, other protocols, random bytes.

use super::frame::{FrameOffsets, TCP, correct_checksums, read_u16, write_u16};
use super::random_choices::RandomChoices;

/// Corruption of a packet of the plan after its addresses are known; independent of allocated values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corruption {
    /// Truncates the frame to this length, at least an Ethernet header.
    Cut(usize),
    /// Adds this many words of IPv4 options (no-operation).
    Options(u8),
    /// Sets the length of the IPv4 header, in words.
    HeaderLength(u8),
    /// Sets the length of the TCP header, in words.
    DataOffset(u8),
    /// Sets the more-fragments flag.
    MoreFragments,
    /// Sets the fragment offset, in units of 8 bytes.
    Fragment(u16),
    /// Sets the EtherType: IPv6, ARP or an unknown one.
    EtherType(u16),
    /// Sets the version of the IPv4 header.
    Version(u8),
    /// Inverts a bit.
    Flip(usize, u8),
}

impl Corruption {
    /// Random corruption for a packet that arrives at this port.
    pub fn draw(dice: &mut RandomChoices, port: u16, length: usize) -> Self {
        match dice.below(if port == 0 { 11 } else { 9 }) {
            0 | 1 => Self::Cut(14 + dice.below(length as u64 - 13) as usize),
            2 | 3 => Self::Options(1 + dice.below(10) as u8),
            4 => Self::HeaderLength(dice.below(16) as u8),
            5 => Self::DataOffset(dice.below(16) as u8),
            6 => Self::MoreFragments,
            7 => Self::Fragment(1 + dice.below(0x1fff) as u16),
            8 if dice.one_in(2) => Self::Version(dice.below(16) as u8),
            8 => Self::EtherType(dice.pick(&[0x86dd, 0x0806, 0x1234, 0x8100, 0x88a8])),
            // In packets from outside, an allocated value must not be corrupted: it could be another flow's value in
            // one run and free in the other.
            _ => Self::Flip(14 + dice.below(length as u64 - 14) as usize, dice.below(8) as u8),
        }
    }

    /// Applies the corruption.
    pub fn apply(self, bytes: &mut Vec<u8>) {
        let Some(layers) = FrameOffsets::of(bytes) else { return };
        let ip = layers.ip;
        match self {
            Self::Cut(length) => bytes.truncate(length),
            Self::Options(words) if bytes[ip] & 15 == 5 => {
                let options = vec![1; usize::from(words) * 4];
                let length = read_u16(bytes, ip + 2).wrapping_add(options.len() as u16);
                bytes.splice(ip + 20..ip + 20, options);
                bytes[ip] = 0x40 | (5 + words);
                write_u16(bytes, ip + 2, length);
                correct_checksums(bytes, ip);
            }
            Self::Options(_) => {}
            Self::HeaderLength(words) => bytes[ip] = bytes[ip] & 0xf0 | words,
            Self::DataOffset(words) => {
                if let Some(at) = layers.transport.filter(|_| layers.protocol == TCP) {
                    bytes[at + 12] = bytes[at + 12] & 15 | words << 4;
                }
            }
            Self::MoreFragments => bytes[ip + 6] |= 0x20,
            Self::Fragment(offset) => write_u16(bytes, ip + 6, offset),
            Self::EtherType(of) => write_u16(bytes, ip - 2, of),
            Self::Version(of) => bytes[ip] = bytes[ip] & 15 | of << 4,
            // The identification of the packet is not changed.
            Self::Flip(at, _) if (ip + 4..ip + 6).contains(&at) || at < ip || at >= bytes.len() => {}
            Self::Flip(at, bit) => bytes[at] ^= 1 << bit,
        }
    }
}

/// Random bytes behind a valid Ethernet header, with other types than those of requests and responses.
pub fn garbage(dice: &mut RandomChoices) -> Vec<u8> {
    let length = 4 + dice.below(90) as usize;
    let mut bytes = vec![2, 0, 0, 0, 0, 1];
    bytes.extend(dice.bytes(6));
    let kind: u16 = dice.pick(&[0x86dd, 0x86dd, 0x0806, 0x8100, 0x9000]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(dice.bytes(length));
    if kind == 0x8100 {
        // The tagged content is not IPv4, since random addresses could belong to a flow.
        bytes[16..18].copy_from_slice(&[0x86, 0xdd]);
    }
    bytes
}

/// IPv6 packet with UDP; its bytes do not look like an IPv4 header.
pub fn ipv6(dice: &mut RandomChoices, ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
    bytes.extend(dice.bytes(32));
    bytes.extend([ports.0, ports.1, 12, 0xbeef].map(u16::to_be_bytes).concat());
    bytes.extend(dice.bytes(4));
    bytes
}
