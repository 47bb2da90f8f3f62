//! Internet checksums of a packet: Ethernet, IPv4 without options, UDP (RFC 768, RFC 1071).

use std::ops::Range;

const IP: Range<usize> = 14..34;
const ADDRESSES: Range<usize> = 26..34;
const UDP_AT: usize = 34;
/// Where the UDP checksum is.
pub const SUM: Range<usize> = 40..42;

/// Ones' complement sum, folded.
fn sum(parts: &[&[u8]]) -> u16 {
    let word = |bytes: &[u8]| u32::from(bytes[0]) << 8 | bytes.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn udp(packet: &[u8]) -> u16 {
    let length = (packet.len() - UDP_AT) as u16;
    sum(&[&packet[ADDRESSES], &[0, 17], &length.to_be_bytes(), &packet[UDP_AT..]])
}

/// What a sender writes that leaves the rest to its device: the sum of the pseudo header.
pub fn pseudo(packet: &[u8]) -> u16 {
    sum(&[&packet[ADDRESSES], &[0, 17], &((packet.len() - UDP_AT) as u16).to_be_bytes()])
}

/// Writes the checksum of an IP header, of as many words as it says.
pub fn fill_ip(packet: &mut [u8]) {
    let header = IP.start..(IP.start + usize::from(packet[IP.start] & 15) * 4).min(packet.len());
    packet[24..26].fill(0);
    let sum = !sum(&[&packet[header]]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Writes a packet's UDP checksum.
pub fn fill(packet: &mut [u8]) {
    packet[SUM].fill(0);
    let sum = match !udp(packet) {
        0 => 0xffff,
        sum => sum,
    };
    packet[SUM].copy_from_slice(&sum.to_be_bytes());
}

/// Whether lengths and both checksums are right, the UDP one not left out.
pub fn check(packet: &[u8]) -> Result<(), String> {
    let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match (length(16) + IP.start == packet.len(), length(38) + UDP_AT == packet.len()) {
        (true, true) => {}
        _ => return Err(format!("{} bytes leave, their headers say {} and {}", packet.len(), length(16), length(38))),
    }
    match (sum(&[&packet[IP]]), udp(packet), &packet[SUM]) {
        (0xffff, 0xffff, [0, 0]) => Err("the UDP checksum is left out".to_owned()),
        (0xffff, 0xffff, _) => Ok(()),
        (ip, udp, _) => Err(format!("checksums of IP and UDP come to {ip:#x} and {udp:#x}, not to 0xffff")),
    }
}
