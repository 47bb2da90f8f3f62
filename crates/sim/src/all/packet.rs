//! IPv4 and UDP encapsulation of frames and messages for the network function.

/// UDP port of the element.
const PORT: u16 = 7702;

/// Length of the IPv4 and UDP headers in bytes.
const HEADERS: usize = 28;
/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Source and destination address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow {
    pub(super) from: [u8; 4],
    pub(super) to: [u8; 4],
}

/// Builds a packet with this payload.
pub(super) fn wrap(flow: Flow, number: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADERS + payload.len());
    let [high, low] = ((HEADERS + payload.len()) as u16).to_be_bytes();
    let [one, other] = number.to_be_bytes();
    packet.extend([0x45, 0, high, low, one, other, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(flow.from.iter().chain(&flow.to));
    let sum = checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let port = PORT.to_be_bytes();
    let [high, low] = ((8 + payload.len()) as u16).to_be_bytes();
    // Over IPv4 the UDP checksum is optional.
    packet.extend([port[0], port[1], port[0], port[1], high, low, 0, 0]);
    packet.extend(payload);
    packet
}

/// Flow and payload of a packet; `None` if the packet is damaged.
pub(super) fn unwrap(packet: &[u8]) -> Option<(Flow, &[u8])> {
    let (headers, payload) = packet.split_at_checked(HEADERS)?;
    let (ip, udp) = headers.split_at(20);
    let whole = u16::from_be_bytes([ip[2], ip[3]]) == packet.len() as u16
        && u16::from_be_bytes([udp[4], udp[5]]) == (8 + payload.len()) as u16
        && (ip[0], ip[9], checksum(ip)) == (0x45, UDP, 0);
    let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
    whole.then(|| (Flow { from: address(12), to: address(16) }, payload))
}

/// IPv4 header checksum; 0 over a header that contains its checksum.
fn checksum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_packet_round_trips_and_damage_is_detected() {
        let flow = Flow { from: [10, 0, 0, 1], to: [10, 0, 0, 2] };
        let packet = wrap(flow, 7, b"a frame");
        assert_eq!(unwrap(&packet), Some((flow, &b"a frame"[..])));
        for at in 0..20 {
            let mut damaged = packet.clone();
            damaged[at] ^= 4;
            assert_eq!(unwrap(&damaged), None, "byte {at}");
        }
        assert_eq!(unwrap(&packet[..packet.len() - 1]), None);
    }
}
