//! Frames, built and read: Ethernet, a VLAN tag, IPv4, and TCP, UDP, ICMP or a fragment's rest behind it.

/// Flags of TCP.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// What stands in front of the ports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ip {
    pub from: u32,
    pub to: u32,
    /// The identification: it tells packets apart.
    pub id: u16,
    pub vlan: Option<u16>,
    pub ttl: u8,
    /// Offset in units of 8 bytes, and whether more follow.
    pub fragment: (u16, bool),
}

impl Ip {
    /// This, in an Ethernet frame, with what lies behind it.
    pub fn frame(&self, protocol: u8, options: &[u8], behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(vlan) = self.vlan {
            bytes.extend([0x81, 0]);
            bytes.extend(vlan.to_be_bytes());
        }
        bytes.extend([8, 0]);
        let at = bytes.len();
        let (ihl, total) = (5 + options.len() / 4, 20 + options.len() + behind.len());
        bytes.extend([0x40 | ihl as u8, 0]);
        bytes.extend((total as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend((u16::from(self.fragment.1) << 13 | self.fragment.0).to_be_bytes());
        bytes.extend([self.ttl.max(2), protocol, 0, 0]);
        bytes.extend(self.from.to_be_bytes());
        bytes.extend(self.to.to_be_bytes());
        bytes.extend(options);
        bytes.extend(behind);
        sum_up(&mut bytes, at);
        bytes
    }

    /// A segment.
    pub fn tcp(&self, ports: (u16, u16), (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Vec<u8> {
        // A SYN says how long segments may be.
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 0xb4] } else { &[] };
        let mut behind = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        behind.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        behind.extend([((5 + options.len() / 4) << 4) as u8, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        behind.extend(options);
        behind.extend(payload);
        self.frame(TCP, &[], &behind)
    }

    /// A datagram.
    pub fn udp(&self, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        self.frame(UDP, &[], &datagram(ports, payload))
    }

    /// An echo, or its reply.
    pub fn echo(&self, reply: bool, (id, number): (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut behind = vec![if reply { 0 } else { 8 }, 0, 0, 0];
        behind.extend([id.to_be_bytes(), number.to_be_bytes()].concat());
        behind.extend(payload);
        self.frame(ICMP, &[], &behind)
    }

    /// An error about a frame without a VLAN tag: its IPv4 header and 8 bytes more.
    pub fn icmp_error(&self, kind: u8, about: &[u8]) -> Vec<u8> {
        let mut behind = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        behind.extend(&about[14..about.len().min(14 + 28)]);
        self.frame(ICMP, &[], &behind)
    }
}

/// A datagram without what is in front of it; its checksum comes with that.
pub fn datagram(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut behind = [ports.0, ports.1, 8 + payload.len() as u16, 0xffff].map(u16::to_be_bytes).concat();
    behind.extend(payload);
    behind
}

/// Where things are in a frame, as the parser of `inet.p4` finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// Offset of the IPv4 header.
    pub ip: usize,
    pub vlan: u16,
    pub protocol: u8,
    pub offset: u16,
    /// Offset of what lies behind it, if that is TCP, UDP or ICMP and whole.
    pub behind: Option<usize>,
    /// Offset of the header that an ICMP error quotes, if it quotes ports.
    pub inner: Option<usize>,
}

impl Layers {
    /// Of a frame; none without an IPv4 header.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let tagged = bytes.get(12..14)? == [0x81, 0];
        let (vlan, ip) = if tagged { (half(bytes.get(..18)?, 14) & 0xfff, 18) } else { (0, 14) };
        if bytes.get(ip - 2..ip)? != [8, 0] || bytes.len() < ip + 20 {
            return None;
        }
        let ihl = usize::from(bytes[ip] & 15);
        let (protocol, offset) = (bytes[ip + 9], half(bytes, ip + 6) & 0x1fff);
        let at = ip + ihl * 4;
        let length = match protocol {
            TCP => 20,
            UDP | ICMP => 8,
            _ => usize::MAX,
        };
        let there = ihl >= 5 && offset == 0 && bytes.len().saturating_sub(at) >= length;
        let mut layers = Self { ip, vlan, protocol, offset, behind: there.then_some(at), inner: None };
        if there && protocol == ICMP && matches!(bytes[at], 3 | 11 | 12) && bytes.len() >= at + 36 {
            let inner = at + 8;
            let whole = bytes[inner] == 0x45 && half(bytes, inner + 6) & 0x1fff == 0;
            layers.inner = (whole && matches!(bytes[inner + 9], TCP | UDP | ICMP)).then_some(inner);
        }
        Some(layers)
    }

    /// Offsets of both ports, or twice that of an echo's identifier.
    pub fn ports(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let at = self.behind?;
        match self.protocol {
            ICMP => matches!(bytes[at], 0 | 8).then_some((at + 4, at + 4)),
            _ => Some((at, at + 2)),
        }
    }
}

/// The identification of IPv4.
pub fn id(bytes: &[u8]) -> Option<u16> {
    Layers::of(bytes).map(|layers| half(bytes, layers.ip + 4))
}

/// What a packet of the plan is known by: its identification, and where in the datagram it begins.
pub fn mark(bytes: &[u8]) -> Option<(u16, u16)> {
    Layers::of(bytes).map(|layers| (half(bytes, layers.ip + 4), layers.offset))
}

/// Gives a frame another, and right checksums.
pub fn set_id(bytes: &mut [u8], id: u16) {
    if let Some(layers) = Layers::of(bytes) {
        put_half(bytes, layers.ip + 4, id);
        sum_up(bytes, layers.ip);
    }
}

pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

pub fn put_half(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub fn put_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The sum of words in one's complement; 0 and 0xffff are one.
pub fn ones(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words.map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0))).sum();
    let mut sum = sum;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum == 0xffff { 0 } else { sum as u16 }
}

/// What is summed up with a segment or datagram.
fn pseudo(bytes: &[u8], layers: &Layers) -> Vec<u8> {
    let mut pseudo = bytes[layers.ip + 12..layers.ip + 20].to_vec();
    pseudo.extend([0, layers.protocol]);
    pseudo.extend(((bytes.len() - layers.behind.unwrap_or(bytes.len())) as u16).to_be_bytes());
    pseudo
}

/// What all checksums of a frame are off by: 0 where they are right. In order: of IPv4, of what lies behind it (1 more; 0 for
/// UDP's "none"), of what that quotes.
pub fn residues(bytes: &[u8], layers: &Layers) -> [u32; 3] {
    let ihl = usize::from(bytes[layers.ip] & 15) * 4;
    let end = (layers.ip + ihl).clamp(layers.ip, bytes.len());
    let own = ones(&[&bytes[layers.ip..end]]).into();
    let behind = layers.behind.map_or(0, |at| match layers.protocol {
        ICMP => 1 + u32::from(ones(&[&bytes[at..]])),
        UDP if half(bytes, at + 6) == 0 => 0,
        _ => 1 + u32::from(ones(&[&pseudo(bytes, layers), &bytes[at..]])),
    });
    let inner = layers.inner.map_or(0, |at| ones(&[&bytes[at..at + 20]]).into());
    [own, behind, inner]
}

/// Makes all checksums right, of a frame whose IPv4 header begins at `ip`; UDP's "none" stays.
pub fn sum_up(bytes: &mut [u8], ip: usize) {
    let end = ip + usize::from(bytes[ip] & 15) * 4;
    put_half(bytes, ip + 10, 0);
    let sum = !ones(&[&bytes[ip..end]]);
    put_half(bytes, ip + 10, sum);
    let Some(layers) = Layers::of(bytes) else { return };
    if let Some(inner) = layers.inner {
        put_half(bytes, inner + 10, 0);
        let sum = !ones(&[&bytes[inner..inner + 20]]);
        put_half(bytes, inner + 10, sum);
    }
    let Some(at) = layers.behind else { return };
    let place = match layers.protocol {
        ICMP => at + 2,
        TCP => at + 16,
        _ if half(bytes, at + 6) == 0 || half(bytes, layers.ip + 6) & 0x2000 != 0 => return,
        _ => at + 6,
    };
    put_half(bytes, place, 0);
    let sum = match layers.protocol {
        ICMP => !ones(&[&bytes[at..]]),
        _ => !ones(&[&pseudo(bytes, &layers), &bytes[at..]]),
    };
    put_half(bytes, place, if sum == 0 { 0xffff } else { sum });
}
