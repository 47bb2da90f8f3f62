//! Realistic flows: connections that begin, send, lose segments, retransmit and end; requests and replies; ICMP errors;
//! fragments.

use super::frame::{
    ACK, FIN, FrameOffsets, Ipv4Fields, PSH, RST, SYN, TCP, UDP, correct_checksums, datagram, read_u32, write_u32,
};
use super::random_choices::RandomChoices;

/// Packet of the plan: time, ingress port of the element, and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPacket {
    /// Time in µs.
    pub at_us: u64,
    /// Ingress port; 0 is the inside.
    pub port: u16,
    /// Whole frame.
    pub bytes: Vec<u8>,
}

impl PlannedPacket {
    /// Captured frame. Addresses in `inside`, a prefix and its mask, are mapped to 10.0.0.0/8, other addresses to one
    /// outside network.
    #[must_use]
    pub fn captured(at_us: u64, inside: (u32, u32), mut bytes: Vec<u8>) -> Self {
        let is_inside = |address: u32| address & inside.1 == inside.0;
        let mut port = 0;
        if let Some(layers) = FrameOffsets::of(&bytes) {
            port = u16::from(!is_inside(read_u32(&bytes, layers.ip + 12)));
            let inner = layers.inner.map_or(0..0, |inner| inner + 12..inner + 20);
            for at in (layers.ip + 12..layers.ip + 20).chain(inner).step_by(4) {
                let address = read_u32(&bytes, at);
                if !is_inside(address) {
                    write_u32(&mut bytes, at, 0xc633_6400 | address & 0xff);
                }
            }
            correct_checksums(&mut bytes, layers.ip);
        }
        Self { at_us, port, bytes }
    }
}

/// Both ends of a flow, with addresses and ports. The first end initiates, and sends into port 0 of the element.
#[derive(Debug, Clone, Copy)]
pub struct FlowEnds {
    pub one: (u32, u16),
    pub other: (u32, u16),
    pub vlan: Option<u16>,
}

/// Generator of flows.
pub struct FlowGenerator<'a> {
    pub dice: &'a mut RandomChoices,
    pub sent: Vec<PlannedPacket>,
    /// IPv4 identification of the next packet.
    pub next_id: u16,
    now_us: u64,
}

impl<'a> FlowGenerator<'a> {
    pub fn new(dice: &'a mut RandomChoices) -> Self {
        Self { dice, sent: Vec::new(), next_id: 1, now_us: 0 }
    }

    /// Begins a flow at a time.
    pub fn begin(&mut self, at_us: u64) {
        self.now_us = at_us;
    }

    /// Advances the time to the flow's next packet, which often follows closely.
    fn pause(&mut self) {
        self.now_us += match self.dice.below(8) {
            0..=3 => self.dice.below(150),
            4..=6 => self.dice.below(6_000),
            _ => 2_000 + self.dice.below(30_000),
        };
    }

    /// Advances the time by a round trip.
    pub fn wait_round_trip(&mut self) {
        self.now_us += 8_000 + self.dice.below(9_000);
    }

    fn ip_fields(&mut self, ends: &FlowEnds, back: bool) -> Ipv4Fields {
        let id = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        let (from, to) = if back { (ends.other.0, ends.one.0) } else { (ends.one.0, ends.other.0) };
        Ipv4Fields { from, to, id, vlan: ends.vlan, ttl: 64, fragment: (0, false) }
    }

    pub fn send(&mut self, back: bool, bytes: Vec<u8>) {
        self.sent.push(PlannedPacket { at_us: self.now_us, port: u16::from(back), bytes });
    }

    fn add_segment(&mut self, ends: &FlowEnds, back: bool, numbers: (u32, u32), flags: u8, length: usize) {
        let (one, other) = (ends.one.1, ends.other.1);
        let ports = if back { (other, one) } else { (one, other) };
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let bytes = self.ip_fields(ends, back).tcp(ports, numbers, flags, &payload);
        self.send(back, bytes);
    }

    /// TCP connection of `exchanges` exchanges: lost segments are sent again, overtaken ones come late, idle ends send
    /// keep-alives, and the connection ends in one of several ways, or not at all.
    pub fn add_tcp(&mut self, ends: &FlowEnds, exchanges: u64) {
        // Some sequence numbers are about to wrap.
        let near = |dice: &mut RandomChoices| {
            if dice.one_in(3) { 0u32.wrapping_sub(dice.below(9_000) as u32) } else { dice.bits() as u32 }
        };
        let (mut mine, mut theirs) = (near(self.dice), near(self.dice));
        self.add_segment(ends, false, (mine, 0), SYN, 0);
        if self.dice.one_in(6) {
            self.wait_round_trip();
            self.add_segment(ends, false, (mine, 0), SYN, 0);
        }
        self.wait_round_trip();
        mine = mine.wrapping_add(1);
        self.add_segment(ends, true, (theirs, mine), SYN | ACK, 0);
        theirs = theirs.wrapping_add(1);
        self.pause();
        self.add_segment(ends, false, (mine, theirs), ACK, 0);
        for _ in 0..exchanges {
            self.add_burst(ends, false, &mut mine, theirs);
            self.wait_round_trip();
            self.add_segment(ends, true, (theirs, mine), ACK, 0);
            if self.dice.one_in(2) {
                self.add_burst(ends, true, &mut theirs, mine);
            }
            if self.dice.one_in(8) {
                // Keep-alive with the last number, with or without a byte.
                let length = self.dice.below(2) as usize;
                self.add_segment(ends, false, (mine.wrapping_sub(1), theirs), ACK, length);
            }
            self.pause();
        }
        match self.dice.below(4) {
            0 => self.add_segment(ends, false, (mine, theirs), RST, 0),
            1 => {}
            _ => {
                self.add_segment(ends, false, (mine, theirs), FIN | ACK, 0);
                self.wait_round_trip();
                self.add_segment(ends, true, (theirs, mine.wrapping_add(1)), FIN | ACK, 0);
                self.pause();
                self.add_segment(ends, false, (mine.wrapping_add(1), theirs.wrapping_add(1)), ACK, 0);
            }
        }
        if self.dice.one_in(4) {
            // The ports are reused, with higher sequence numbers.
            self.wait_round_trip();
            self.add_segment(ends, false, (mine.wrapping_add(100_000), 0), SYN, 0);
            self.pause();
            self.add_segment(ends, false, (mine.wrapping_add(100_001), 0), ACK | PSH, 20);
        }
    }

    /// Consecutive segments, of which one may come late or twice.
    fn add_burst(&mut self, ends: &FlowEnds, back: bool, next: &mut u32, ack: u32) {
        let segments = 1 + self.dice.below(6);
        let mut late = None;
        for at in 0..segments {
            let length = 1 + self.dice.below(200) as usize;
            if at + 1 < segments && self.dice.one_in(6) && late.is_none() {
                late = Some((*next, length));
            } else {
                self.add_segment(ends, back, (*next, ack), ACK | PSH, length);
                if self.dice.one_in(10) {
                    self.pause();
                    self.add_segment(ends, back, (*next, ack), ACK | PSH, length);
                }
            }
            *next = next.wrapping_add(length as u32);
            self.pause();
        }
        if let Some((number, length)) = late {
            // Reordered slightly, or retransmitted after a round trip.
            if self.dice.one_in(2) {
                self.wait_round_trip();
            }
            self.add_segment(ends, back, (number, ack), ACK | PSH, length);
        }
    }

    /// UDP datagrams in both directions.
    pub fn add_udp(&mut self, ends: &FlowEnds, exchanges: u64) {
        for at in 0..exchanges {
            let payload = self.dice.bytes(4 + at as usize % 40);
            let mut bytes = self.ip_fields(ends, false).udp((ends.one.1, ends.other.1), &payload);
            if self.dice.one_in(5) {
                // Without a checksum, as UDP over IPv4 allows.
                let place = bytes.len() - payload.len() - 2;
                bytes[place..place + 2].fill(0);
            }
            self.send(false, bytes);
            if self.dice.one_in(2) {
                self.wait_round_trip();
                let bytes = self.ip_fields(ends, true).udp((ends.other.1, ends.one.1), &payload);
                self.send(true, bytes);
            }
            self.pause();
        }
    }

    /// Reading of a sensor.
    pub fn add_reading(&mut self, ends: &FlowEnds, sensor: u32, value: f32) {
        let payload = [sensor, value.to_bits(), 0].map(u32::to_be_bytes).concat();
        let bytes = self.ip_fields(ends, false).udp((ends.one.1, ends.other.1), &payload);
        self.send(false, bytes);
        self.pause();
    }

    /// Echo requests and replies.
    pub fn add_pings(&mut self, ends: &FlowEnds, count: u64) {
        for number in 0..count as u16 {
            let bytes = self.ip_fields(ends, false).echo(false, (ends.one.1, number), b"abcdefgh");
            self.send(false, bytes);
            self.wait_round_trip();
            let bytes = self.ip_fields(ends, true).echo(true, (ends.one.1, number), b"abcdefgh");
            self.send(true, bytes);
            self.pause();
        }
    }

    /// ICMP errors about packets of the first end, from a router on the path, and from the first end about packets that
    /// it received.
    pub fn add_icmp_errors(&mut self, ends: &FlowEnds, protocol: u8, count: u64) {
        let about = |maker: &mut Self, back: bool, ends: &FlowEnds| {
            let ends = FlowEnds { vlan: None, ..*ends };
            let (one, other) = (ends.one.1, ends.other.1);
            let ports = if back { (other, one) } else { (one, other) };
            let ip = maker.ip_fields(&ends, back);
            if protocol == TCP { ip.tcp(ports, (7, 9), ACK, b"lost") } else { ip.udp(ports, b"lost") }
        };
        for _ in 0..count {
            let kind = self.dice.pick(&[3, 11, 12]);
            if self.dice.one_in(3) {
                let lost = about(self, true, ends);
                let bytes = self.ip_fields(ends, false).icmp_error(kind, &lost);
                self.send(false, bytes);
            } else {
                let lost = about(self, false, ends);
                let router = FlowEnds { other: (ends.other.0 ^ 0xff, 0), ..*ends };
                let bytes = self.ip_fields(&router, true).icmp_error(kind, &lost);
                self.send(true, bytes);
            }
            self.wait_round_trip();
        }
    }

    /// Fragmented datagrams, in order.
    pub fn add_fragments(&mut self, ends: &FlowEnds, count: u64) {
        for _ in 0..count {
            let payload = self.dice.bytes(100);
            let whole = datagram((ends.one.1, ends.other.1), &payload);
            let ip = self.ip_fields(ends, false);
            for (at, part) in whole.chunks(48).enumerate() {
                let more = (at + 1) * 48 < whole.len();
                let ip = Ipv4Fields { fragment: (at as u16 * 6, more), ..ip };
                let bytes = ip.frame(UDP, &[], part);
                self.send(false, bytes);
                self.now_us += self.dice.below(60);
            }
            self.pause();
        }
    }
}
