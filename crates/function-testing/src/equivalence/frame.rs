//! Frame construction and parsing: Ethernet, a VLAN tag, IPv4, then TCP, UDP, ICMP or the rest of a fragment.

/// TCP flags.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Fields in front of the ports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ipv4Fields {
    pub from: u32,
    pub to: u32,
    /// IPv4 identification, by which packets are distinguished.
    pub id: u16,
    pub vlan: Option<u16>,
    pub ttl: u8,
    /// Fragment offset in units of 8 bytes, and the more-fragments flag.
    pub fragment: (u16, bool),
}

impl Ipv4Fields {
    /// Ethernet frame with this header and a payload.
    pub fn frame(&self, protocol: u8, options: &[u8], transport: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(vlan) = self.vlan {
            bytes.extend([0x81, 0]);
            bytes.extend(vlan.to_be_bytes());
        }
        bytes.extend([8, 0]);
        let at = bytes.len();
        let (ihl, total) = (5 + options.len() / 4, 20 + options.len() + transport.len());
        bytes.extend([0x40 | ihl as u8, 0]);
        bytes.extend((total as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend((u16::from(self.fragment.1) << 13 | self.fragment.0).to_be_bytes());
        bytes.extend([self.ttl.max(2), protocol, 0, 0]);
        bytes.extend(self.from.to_be_bytes());
        bytes.extend(self.to.to_be_bytes());
        bytes.extend(options);
        bytes.extend(transport);
        correct_checksums(&mut bytes, at);
        bytes
    }

    /// TCP segment.
    pub fn tcp(&self, ports: (u16, u16), (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Vec<u8> {
        // A SYN has the maximum-segment-size option.
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 0xb4] } else { &[] };
        let mut transport = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        transport.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        transport.extend([((5 + options.len() / 4) << 4) as u8, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        transport.extend(options);
        transport.extend(payload);
        self.frame(TCP, &[], &transport)
    }

    /// UDP datagram.
    pub fn udp(&self, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        self.frame(UDP, &[], &datagram(ports, payload))
    }

    /// ICMP echo request or reply.
    pub fn echo(&self, reply: bool, (id, number): (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut transport = vec![if reply { 0 } else { 8 }, 0, 0, 0];
        transport.extend([id.to_be_bytes(), number.to_be_bytes()].concat());
        transport.extend(payload);
        self.frame(ICMP, &[], &transport)
    }

    /// ICMP error about an untagged frame: quotes its IPv4 header and 8 more bytes.
    pub fn icmp_error(&self, kind: u8, about: &[u8]) -> Vec<u8> {
        let mut transport = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        transport.extend(&about[14..about.len().min(14 + 28)]);
        self.frame(ICMP, &[], &transport)
    }
}

/// UDP datagram without the headers in front; the checksum is set later.
pub fn datagram(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut transport = [ports.0, ports.1, 8 + payload.len() as u16, 0xffff].map(u16::to_be_bytes).concat();
    transport.extend(payload);
    transport
}

/// Offsets in a frame, as the parser of `inet.p4` finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOffsets {
    /// Offset of the IPv4 header.
    pub ip: usize,
    pub vlan: u16,
    pub protocol: u8,
    pub offset: u16,
    /// Offset of the transport header, if it is TCP, UDP or ICMP and not a later fragment.
    pub transport: Option<usize>,
    /// Offset of the header that an ICMP error quotes, if it quotes ports.
    pub inner: Option<usize>,
}

impl FrameOffsets {
    /// Offsets in a frame; `None` without an IPv4 header.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let tagged = bytes.get(12..14)? == [0x81, 0];
        let (vlan, ip) = if tagged { (read_u16(bytes.get(..18)?, 14) & 0xfff, 18) } else { (0, 14) };
        if bytes.get(ip - 2..ip)? != [8, 0] || bytes.len() < ip + 20 {
            return None;
        }
        let ihl = usize::from(bytes[ip] & 15);
        let (protocol, offset) = (bytes[ip + 9], read_u16(bytes, ip + 6) & 0x1fff);
        let at = ip + ihl * 4;
        let length = match protocol {
            TCP => 20,
            UDP | ICMP => 8,
            _ => usize::MAX,
        };
        let there = ihl >= 5 && offset == 0 && bytes.len().saturating_sub(at) >= length;
        let mut layers = Self { ip, vlan, protocol, offset, transport: there.then_some(at), inner: None };
        if there && protocol == ICMP && matches!(bytes[at], 3 | 11 | 12) && bytes.len() >= at + 36 {
            let inner = at + 8;
            let whole = bytes[inner] == 0x45 && read_u16(bytes, inner + 6) & 0x1fff == 0;
            layers.inner = (whole && matches!(bytes[inner + 9], TCP | UDP | ICMP)).then_some(inner);
        }
        Some(layers)
    }

    /// Offsets of both ports; for an echo, twice the offset of its identifier.
    pub fn ports(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let at = self.transport?;
        match self.protocol {
            ICMP => matches!(bytes[at], 0 | 8).then_some((at + 4, at + 4)),
            _ => Some((at, at + 2)),
        }
    }
}

/// IPv4 identification.
pub fn identification(bytes: &[u8]) -> Option<u16> {
    FrameOffsets::of(bytes).map(|layers| read_u16(bytes, layers.ip + 4))
}

/// Key of a packet of the plan: its identification and fragment offset.
pub fn packet_key(bytes: &[u8]) -> Option<(u16, u16)> {
    FrameOffsets::of(bytes).map(|layers| (read_u16(bytes, layers.ip + 4), layers.offset))
}

/// Sets the identification of a frame, and corrects the checksums.
pub fn set_id(bytes: &mut [u8], id: u16) {
    if let Some(layers) = FrameOffsets::of(bytes) {
        write_u16(bytes, layers.ip + 4, id);
        correct_checksums(bytes, layers.ip);
    }
}

pub fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(read_u16(bytes, at)) << 16 | u32::from(read_u16(bytes, at + 2))
}

pub fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// One's complement sum of words; 0xffff is returned as 0.
pub fn ones_complement_sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words.map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0))).sum();
    let mut sum = sum;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum == 0xffff { 0 } else { sum as u16 }
}

/// Pseudo-header of a segment or datagram.
fn pseudo_header(bytes: &[u8], layers: &FrameOffsets) -> Vec<u8> {
    let mut pseudo = bytes[layers.ip + 12..layers.ip + 20].to_vec();
    pseudo.extend([0, layers.protocol]);
    pseudo.extend(((bytes.len() - layers.transport.unwrap_or(bytes.len())) as u16).to_be_bytes());
    pseudo
}

/// Error of each checksum in a frame, 0 where correct: of IPv4, of the transport (plus 1; 0 for UDP without a
/// checksum), of the quoted header.
pub fn checksum_errors(bytes: &[u8], layers: &FrameOffsets) -> [u32; 3] {
    let ihl = usize::from(bytes[layers.ip] & 15) * 4;
    let end = (layers.ip + ihl).clamp(layers.ip, bytes.len());
    let own = ones_complement_sum(&[&bytes[layers.ip..end]]).into();
    let transport = layers.transport.map_or(0, |at| match layers.protocol {
        ICMP => 1 + u32::from(ones_complement_sum(&[&bytes[at..]])),
        UDP if read_u16(bytes, at + 6) == 0 => 0,
        _ => 1 + u32::from(ones_complement_sum(&[&pseudo_header(bytes, layers), &bytes[at..]])),
    });
    let inner = layers.inner.map_or(0, |at| ones_complement_sum(&[&bytes[at..at + 20]]).into());
    [own, transport, inner]
}

/// Corrects all checksums of a frame with its IPv4 header at `ip`; a datagram without a checksum stays without.
pub fn correct_checksums(bytes: &mut [u8], ip: usize) {
    let end = ip + usize::from(bytes[ip] & 15) * 4;
    write_u16(bytes, ip + 10, 0);
    let sum = !ones_complement_sum(&[&bytes[ip..end]]);
    write_u16(bytes, ip + 10, sum);
    let Some(layers) = FrameOffsets::of(bytes) else { return };
    if let Some(inner) = layers.inner {
        write_u16(bytes, inner + 10, 0);
        let sum = !ones_complement_sum(&[&bytes[inner..inner + 20]]);
        write_u16(bytes, inner + 10, sum);
    }
    let Some(at) = layers.transport else { return };
    let place = match layers.protocol {
        ICMP => at + 2,
        TCP => at + 16,
        _ if read_u16(bytes, at + 6) == 0 || read_u16(bytes, layers.ip + 6) & 0x2000 != 0 => return,
        _ => at + 6,
    };
    write_u16(bytes, place, 0);
    let sum = match layers.protocol {
        ICMP => !ones_complement_sum(&[&bytes[at..]]),
        _ => !ones_complement_sum(&[&pseudo_header(bytes, &layers), &bytes[at..]]),
    };
    write_u16(bytes, place, if sum == 0 { 0xffff } else { sum });
}
