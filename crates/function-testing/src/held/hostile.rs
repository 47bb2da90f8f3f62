//! What nobody should send: frames cut short, with options, as fragments, with lengths that lie, of other protocols, of random
//! bytes.

use super::dice::Dice;
use super::frame::{Layers, TCP, half, put_half, sum_up};

/// What is done to a packet of the plan, when its way is known: the same to whatever stands in its allocated places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mangle {
    /// Only the first bytes are left; never fewer than an Ethernet header has.
    Cut(usize),
    /// So many words of IPv4 options, no-operations.
    Options(u8),
    /// The length of IPv4's header, in words.
    HeaderLength(u8),
    /// The length of TCP's header, in words.
    DataOffset(u8),
    /// It says that more fragments follow.
    MoreFragments,
    /// It is a fragment from so many units on.
    Fragment(u16),
    /// The bytes behind Ethernet are said to be IPv6, ARP or what nobody knows.
    EtherType(u16),
    /// The version of IPv4's header.
    Version(u8),
    /// A bit is another.
    Flip(usize, u8),
}

impl Mangle {
    /// One that suits a packet that comes in at this port.
    pub fn draw(dice: &mut Dice, port: u16, length: usize) -> Self {
        match dice.below(if port == 0 { 11 } else { 9 }) {
            0 | 1 => Self::Cut(14 + dice.below(length as u64 - 13) as usize),
            2 | 3 => Self::Options(1 + dice.below(10) as u8),
            4 => Self::HeaderLength(dice.below(16) as u8),
            5 => Self::DataOffset(dice.below(16) as u8),
            6 => Self::MoreFragments,
            7 => Self::Fragment(1 + dice.below(0x1fff) as u16),
            8 if dice.one_in(2) => Self::Version(dice.below(16) as u8),
            8 => Self::EtherType(dice.pick(&[0x86dd, 0x0806, 0x1234, 0x8100, 0x88a8])),
            // From outside, a value that is another would be another's in one run, and nobody's in the next.
            _ => Self::Flip(14 + dice.below(length as u64 - 14) as usize, dice.below(8) as u8),
        }
    }

    /// Does it.
    pub fn apply(self, bytes: &mut Vec<u8>) {
        let Some(layers) = Layers::of(bytes) else { return };
        let ip = layers.ip;
        match self {
            Self::Cut(length) => bytes.truncate(length),
            Self::Options(words) if bytes[ip] & 15 == 5 => {
                let options = vec![1; usize::from(words) * 4];
                let length = half(bytes, ip + 2).wrapping_add(options.len() as u16);
                bytes.splice(ip + 20..ip + 20, options);
                bytes[ip] = 0x40 | (5 + words);
                put_half(bytes, ip + 2, length);
                sum_up(bytes, ip);
            }
            Self::Options(_) => {}
            Self::HeaderLength(words) => bytes[ip] = bytes[ip] & 0xf0 | words,
            Self::DataOffset(words) => {
                if let Some(at) = layers.behind.filter(|_| layers.protocol == TCP) {
                    bytes[at + 12] = bytes[at + 12] & 15 | words << 4;
                }
            }
            Self::MoreFragments => bytes[ip + 6] |= 0x20,
            Self::Fragment(offset) => put_half(bytes, ip + 6, offset),
            Self::EtherType(of) => put_half(bytes, ip - 2, of),
            Self::Version(of) => bytes[ip] = bytes[ip] & 15 | of << 4,
            // What packets are told apart by stays.
            Self::Flip(at, _) if (ip + 4..ip + 6).contains(&at) || at < ip || at >= bytes.len() => {}
            Self::Flip(at, bit) => bytes[at] ^= 1 << bit,
        }
    }
}

/// Random bytes behind an Ethernet header that is in order: neither a request nor a response, whose types are the element's own.
pub fn garbage(dice: &mut Dice) -> Vec<u8> {
    let length = 4 + dice.below(90) as usize;
    let mut bytes = vec![2, 0, 0, 0, 0, 1];
    bytes.extend(dice.bytes(6));
    let kind: u16 = dice.pick(&[0x86dd, 0x86dd, 0x0806, 0x8100, 0x9000]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(dice.bytes(length));
    if kind == 0x8100 {
        // What is behind a tag is no IPv4 header: random addresses might be anybody's.
        bytes[16..18].copy_from_slice(&[0x86, 0xdd]);
    }
    bytes
}

/// A packet of IPv6, with UDP behind it: nothing of an IPv4 header is where one would be.
pub fn ipv6(dice: &mut Dice, ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
    bytes.extend(dice.bytes(32));
    bytes.extend([ports.0, ports.1, 12, 0xbeef].map(u16::to_be_bytes).concat());
    bytes.extend(dice.bytes(4));
    bytes
}
