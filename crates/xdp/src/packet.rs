//! Packet of a frame as the kernel's program sees it: Ethernet, IPv4, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes before the frame.
pub(crate) const FRAME_AT: usize = 14 + 20 + 8;
/// Source port of a frame that user space forwards to the addressed endpoint (`enum slow`).
pub const SLOW_FORWARD: u16 = 1;
/// Source port of a frame that user space sends to its application's group.
pub const SLOW_MULTICAST: u16 = 2;
/// Source port of a request that user space forwards as addressed, and then processes in its second pass.
pub const SLOW_CLONE: u16 = 3;

/// Addresses of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub from: SocketAddrV4,
    /// Destination address.
    pub to: SocketAddrV4,
    /// ECN mark "congestion experienced".
    pub congested: bool,
}

impl Packet {
    /// Writes a packet with `frame` into `out`; its UDP checksum is 0 (none).
    pub fn emit(&self, frame: &[u8], out: &mut Vec<u8>) {
        let len = |headers: usize| u16::try_from(headers + frame.len()).unwrap_or(u16::MAX).to_be_bytes();
        out.clear();
        out.extend([0; 12]);
        out.extend([0x08, 0x00, 0x45, if self.congested { 3 } else { 2 }]);
        out.extend(len(28));
        out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.extend(self.from.ip().octets());
        out.extend(self.to.ip().octets());
        let sum: u32 = out[14..34].as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        out[24..26].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
        out.extend(self.from.port().to_be_bytes());
        out.extend(self.to.port().to_be_bytes());
        out.extend(len(8));
        out.extend([0, 0]);
        out.extend(frame);
    }

    /// Parses a packet in the form that [`emit`](Self::emit) writes; returns its addresses and its frame.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (headers, frame) = bytes.split_at_checked(FRAME_AT)?;
        let address = |ip: usize, port: usize| {
            let ip: [u8; 4] = *headers[ip..].first_chunk().expect("within the headers");
            let port = *headers[port..].first_chunk().expect("within the headers");
            SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_be_bytes(port))
        };
        Some((Self { from: address(26, 34), to: address(30, 36), congested: headers[15] & 3 == 3 }, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_encoding_round_trips() {
        let addr = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        let packet = Packet { from: addr(1, 7), to: addr(2, 7702), congested: true };
        let mut bytes = Vec::new();
        packet.emit(b"frame", &mut bytes);
        assert_eq!(Packet::parse(&bytes), Some((packet, &b"frame"[..])));
        let sum: u32 = bytes[14..34].as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum of the IP header");
        assert_eq!(Packet::parse(&bytes[..41]), None);
    }
}
