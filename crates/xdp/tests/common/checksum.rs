//! Internet checksums of a packet: Ethernet, IPv4 without options, UDP (RFC 768, RFC 1071).

use std::ops::Range;

const IP: Range<usize> = 14..34;
const ADDRESSES: Range<usize> = 26..34;
const UDP_AT: usize = 34;
/// Range of the UDP checksum.
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

/// UDP checksum of a sender with checksum offload: the sum of the pseudo header.
pub fn pseudo(packet: &[u8]) -> u16 {
    sum(&[&packet[ADDRESSES], &[0, 17], &((packet.len() - UDP_AT) as u16).to_be_bytes()])
}

/// Writes the checksum of an IP header, with options if it has any.
pub fn fill_ip(packet: &mut [u8]) {
    let header = IP.start..(IP.start + usize::from(packet[IP.start] & 15) * 4).min(packet.len());
    packet[24..26].fill(0);
    let sum = !sum(&[&packet[header]]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the UDP checksum of a packet.
pub fn fill(packet: &mut [u8]) {
    packet[SUM].fill(0);
    let sum = match !udp(packet) {
        0 => 0xffff,
        sum => sum,
    };
    packet[SUM].copy_from_slice(&sum.to_be_bytes());
}

/// Checks the lengths and both checksums of a packet; the UDP checksum has to be present.
pub fn check(packet: &[u8]) -> Result<(), String> {
    let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match (length(16) + IP.start == packet.len(), length(38) + UDP_AT == packet.len()) {
        (true, true) => {}
        _ => {
            return Err(format!(
                "packet of {} bytes has IP and UDP lengths {} and {}",
                packet.len(),
                length(16),
                length(38)
            ));
        }
    }
    match (sum(&[&packet[IP]]), udp(packet), &packet[SUM]) {
        (0xffff, 0xffff, [0, 0]) => Err("the UDP checksum is missing".to_owned()),
        (0xffff, 0xffff, _) => Ok(()),
        (ip, udp, _) => Err(format!("sums of IP and UDP checksums are {ip:#x} and {udp:#x}, not 0xffff")),
    }
}
