//! Packet of a frame as the pipeline receives it: Ethernet, IPv4, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Offset of the frame.
const FRAME_AT: usize = 14 + 20 + 8;
/// UDP port of frames.
pub(super) const PORT: u16 = 7702;
/// Address of the element.
pub(super) const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), PORT);

/// Address of an endpoint, from its number, so that a packet's destination identifies its endpoint.
pub(super) fn address(endpoint: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(endpoint), PORT)
}

/// MAC address of a host.
pub(super) fn station(ip: Ipv4Addr) -> u64 {
    0x0200_0000_0000 | u64::from(u32::from(ip))
}

/// Writes the packet that carries `frame`.
pub(super) fn emit(from: SocketAddrV4, to: SocketAddrV4, congested: bool, frame: &[u8], out: &mut Vec<u8>) {
    let len = |headers: usize| u16::try_from(headers + frame.len()).unwrap_or(u16::MAX).to_be_bytes();
    out.clear();
    out.extend(&station(*to.ip()).to_be_bytes()[2..]);
    out.extend(&station(*from.ip()).to_be_bytes()[2..]);
    out.extend([0x08, 0x00, 0x45, if congested { 3 } else { 2 }]);
    out.extend(len(28));
    out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    out.extend(from.ip().octets());
    out.extend(to.ip().octets());
    let sum = !sum(&out[14..34]);
    out[24..26].copy_from_slice(&sum.to_be_bytes());
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    out.extend(len(8));
    out.extend([0, 0]);
    out.extend(frame);
}

/// Packet that left the pipeline.
pub(super) struct ParsedPacket<'a> {
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    /// Frame, up to the end of the UDP datagram.
    pub(super) frame: &'a [u8],
    /// Number of bytes after the datagram.
    pub(super) trailer: usize,
}

/// Parses a packet that left.
///
/// # Errors
/// Faults of its headers.
pub(super) fn parse(bytes: &[u8]) -> Result<ParsedPacket<'_>, String> {
    let wrong = |what: &str| Err(format!("{what}: {bytes:02x?}"));
    if bytes.len() < FRAME_AT || bytes[12..15] != [0x08, 0x00, 0x45] {
        return wrong("no UDP over IPv4 leaves");
    }
    if sum(&bytes[14..34]) != 0xffff {
        return wrong("it leaves with a wrong checksum");
    }
    if bytes[15] & 3 != 2 || bytes[40..42] != [0, 0] {
        return wrong("it leaves marked, or with a sum of before");
    }
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let station_of = |at: usize| bytes[at..at + 6].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    if station_of(0) != station(ip(30)) || station_of(6) != station(*ELEMENT.ip()) {
        return wrong("it leaves for another station than host");
    }
    let frame = usize::from(word(16)).checked_sub(28).and_then(|len| bytes[FRAME_AT..].get(..len));
    match frame {
        Some(frame) if usize::from(word(38)) == frame.len() + 8 => {
            let (from, to) = (SocketAddrV4::new(ip(26), word(34)), SocketAddrV4::new(ip(30), word(36)));
            Ok(ParsedPacket { from, to, frame, trailer: bytes.len() - FRAME_AT - frame.len() })
        }
        _ => wrong("its lengths disagree"),
    }
}

/// Frame of a packet that left unchanged.
pub(super) fn frame(bytes: &[u8]) -> &[u8] {
    let len = bytes.get(38..40).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    bytes.get(FRAME_AT..(FRAME_AT + len).saturating_sub(8)).unwrap_or_default()
}

/// Folded sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
