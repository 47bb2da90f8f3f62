//! Flows as they are in networks: connections that begin, send, lose, repeat and end; questions and answers; errors about
//! them; fragments.

use super::dice::Dice;
use super::frame::{ACK, FIN, Ip, Layers, PSH, RST, SYN, TCP, UDP, datagram, put_word, sum_up, word};

/// A packet of the plan: when, at which of the element's ports, what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Microseconds.
    pub at_us: u64,
    /// 0: from inside.
    pub port: u16,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Sent {
    /// A captured frame. `inside`: a prefix of 10.0.0.0/8 and its mask; other addresses become those of one network outside.
    #[must_use]
    pub fn captured(at_us: u64, inside: (u32, u32), mut bytes: Vec<u8>) -> Self {
        let is_inside = |address: u32| address & inside.1 == inside.0;
        let mut port = 0;
        if let Some(layers) = Layers::of(&bytes) {
            port = u16::from(!is_inside(word(&bytes, layers.ip + 12)));
            let inner = layers.inner.map_or(0..0, |inner| inner + 12..inner + 20);
            for at in (layers.ip + 12..layers.ip + 20).chain(inner).step_by(4) {
                let address = word(&bytes, at);
                if !is_inside(address) {
                    put_word(&mut bytes, at, 0xc633_6400 | address & 0xff);
                }
            }
            sum_up(&mut bytes, layers.ip);
        }
        Self { at_us, port, bytes }
    }
}

/// Two ends: addresses and ports; the first begins, and sends into port 0 of the element.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub one: (u32, u16),
    pub other: (u32, u16),
    pub vlan: Option<u16>,
}

/// What makes flows.
pub struct Maker<'a> {
    pub dice: &'a mut Dice,
    pub sent: Vec<Sent>,
    /// Identification of the next packet.
    pub next_id: u16,
    now_us: u64,
}

impl<'a> Maker<'a> {
    pub fn new(dice: &'a mut Dice) -> Self {
        Self { dice, sent: Vec::new(), next_id: 1, now_us: 0 }
    }

    /// A flow begins then.
    pub fn begin(&mut self, at_us: u64) {
        self.now_us = at_us;
    }

    /// Time until the flow's next packet: often it follows close.
    fn pause(&mut self) {
        self.now_us += match self.dice.below(8) {
            0..=3 => self.dice.below(150),
            4..=6 => self.dice.below(6_000),
            _ => 2_000 + self.dice.below(30_000),
        };
    }

    /// The way there and back.
    pub fn round_trip(&mut self) {
        self.now_us += 8_000 + self.dice.below(9_000);
    }

    fn ip(&mut self, ends: &Ends, back: bool) -> Ip {
        let id = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        let (from, to) = if back { (ends.other.0, ends.one.0) } else { (ends.one.0, ends.other.0) };
        Ip { from, to, id, vlan: ends.vlan, ttl: 64, fragment: (0, false) }
    }

    pub fn send(&mut self, back: bool, bytes: Vec<u8>) {
        self.sent.push(Sent { at_us: self.now_us, port: u16::from(back), bytes });
    }

    fn segment(&mut self, ends: &Ends, back: bool, numbers: (u32, u32), flags: u8, length: usize) {
        let (one, other) = (ends.one.1, ends.other.1);
        let ports = if back { (other, one) } else { (one, other) };
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let bytes = self.ip(ends, back).tcp(ports, numbers, flags, &payload);
        self.send(back, bytes);
    }

    /// A connection of so many exchanges: what goes lost is sent again, what was overtaken comes late, who has nothing to
    /// say keeps it alive, and it ends in one way or another, or not at all.
    pub fn tcp(&mut self, ends: &Ends, exchanges: u64) {
        // Some numbers are about to wrap.
        let near = |dice: &mut Dice| {
            if dice.one_in(3) { 0u32.wrapping_sub(dice.below(9_000) as u32) } else { dice.bits() as u32 }
        };
        let (mut mine, mut theirs) = (near(self.dice), near(self.dice));
        self.segment(ends, false, (mine, 0), SYN, 0);
        if self.dice.one_in(6) {
            self.round_trip();
            self.segment(ends, false, (mine, 0), SYN, 0);
        }
        self.round_trip();
        mine = mine.wrapping_add(1);
        self.segment(ends, true, (theirs, mine), SYN | ACK, 0);
        theirs = theirs.wrapping_add(1);
        self.pause();
        self.segment(ends, false, (mine, theirs), ACK, 0);
        for _ in 0..exchanges {
            self.burst(ends, false, &mut mine, theirs);
            self.round_trip();
            self.segment(ends, true, (theirs, mine), ACK, 0);
            if self.dice.one_in(2) {
                self.burst(ends, true, &mut theirs, mine);
            }
            if self.dice.one_in(8) {
                // A probe of the last number, with a byte or without.
                let length = self.dice.below(2) as usize;
                self.segment(ends, false, (mine.wrapping_sub(1), theirs), ACK, length);
            }
            self.pause();
        }
        match self.dice.below(4) {
            0 => self.segment(ends, false, (mine, theirs), RST, 0),
            1 => {}
            _ => {
                self.segment(ends, false, (mine, theirs), FIN | ACK, 0);
                self.round_trip();
                self.segment(ends, true, (theirs, mine.wrapping_add(1)), FIN | ACK, 0);
                self.pause();
                self.segment(ends, false, (mine.wrapping_add(1), theirs.wrapping_add(1)), ACK, 0);
            }
        }
        if self.dice.one_in(4) {
            // Its ports are used anew, with higher numbers.
            self.round_trip();
            self.segment(ends, false, (mine.wrapping_add(100_000), 0), SYN, 0);
            self.pause();
            self.segment(ends, false, (mine.wrapping_add(100_001), 0), ACK | PSH, 20);
        }
    }

    /// Segments that follow each other: one may come late, or twice.
    fn burst(&mut self, ends: &Ends, back: bool, next: &mut u32, ack: u32) {
        let segments = 1 + self.dice.below(6);
        let mut late = None;
        for at in 0..segments {
            let length = 1 + self.dice.below(200) as usize;
            if at + 1 < segments && self.dice.one_in(6) && late.is_none() {
                late = Some((*next, length));
            } else {
                self.segment(ends, back, (*next, ack), ACK | PSH, length);
                if self.dice.one_in(10) {
                    self.pause();
                    self.segment(ends, back, (*next, ack), ACK | PSH, length);
                }
            }
            *next = next.wrapping_add(length as u32);
            self.pause();
        }
        if let Some((number, length)) = late {
            // Overtaken a little, or sent again after a round trip.
            if self.dice.one_in(2) {
                self.round_trip();
            }
            self.segment(ends, back, (number, ack), ACK | PSH, length);
        }
    }

    /// Datagrams there and back.
    pub fn udp(&mut self, ends: &Ends, exchanges: u64) {
        for at in 0..exchanges {
            let payload = self.dice.bytes(4 + at as usize % 40);
            let mut bytes = self.ip(ends, false).udp((ends.one.1, ends.other.1), &payload);
            if self.dice.one_in(5) {
                // No checksum, as UDP over IPv4 allows.
                let place = bytes.len() - payload.len() - 2;
                bytes[place..place + 2].fill(0);
            }
            self.send(false, bytes);
            if self.dice.one_in(2) {
                self.round_trip();
                let bytes = self.ip(ends, true).udp((ends.other.1, ends.one.1), &payload);
                self.send(true, bytes);
            }
            self.pause();
        }
    }

    /// A reading of a sensor.
    pub fn reading(&mut self, ends: &Ends, sensor: u32, value: f32) {
        let payload = [sensor, value.to_bits(), 0].map(u32::to_be_bytes).concat();
        let bytes = self.ip(ends, false).udp((ends.one.1, ends.other.1), &payload);
        self.send(false, bytes);
        self.pause();
    }

    /// Echoes and their replies.
    pub fn ping(&mut self, ends: &Ends, count: u64) {
        for number in 0..count as u16 {
            let bytes = self.ip(ends, false).echo(false, (ends.one.1, number), b"abcdefgh");
            self.send(false, bytes);
            self.round_trip();
            let bytes = self.ip(ends, true).echo(true, (ends.one.1, number), b"abcdefgh");
            self.send(true, bytes);
            self.pause();
        }
    }

    /// Errors about what the one sent, from a router on the way; and from the one about what it got.
    pub fn errors(&mut self, ends: &Ends, protocol: u8, count: u64) {
        let about = |maker: &mut Self, back: bool, ends: &Ends| {
            let ends = Ends { vlan: None, ..*ends };
            let (one, other) = (ends.one.1, ends.other.1);
            let ports = if back { (other, one) } else { (one, other) };
            let ip = maker.ip(&ends, back);
            if protocol == TCP { ip.tcp(ports, (7, 9), ACK, b"lost") } else { ip.udp(ports, b"lost") }
        };
        for _ in 0..count {
            let kind = self.dice.pick(&[3, 11, 12]);
            if self.dice.one_in(3) {
                let lost = about(self, true, ends);
                let bytes = self.ip(ends, false).icmp_error(kind, &lost);
                self.send(false, bytes);
            } else {
                let lost = about(self, false, ends);
                let router = Ends { other: (ends.other.0 ^ 0xff, 0), ..*ends };
                let bytes = self.ip(&router, true).icmp_error(kind, &lost);
                self.send(true, bytes);
            }
            self.round_trip();
        }
    }

    /// Datagrams in fragments, in order.
    pub fn fragments(&mut self, ends: &Ends, count: u64) {
        for _ in 0..count {
            let payload = self.dice.bytes(100);
            let whole = datagram((ends.one.1, ends.other.1), &payload);
            let ip = self.ip(ends, false);
            for (at, part) in whole.chunks(48).enumerate() {
                let more = (at + 1) * 48 < whole.len();
                let ip = Ip { fragment: (at as u16 * 6, more), ..ip };
                let bytes = ip.frame(UDP, &[], part);
                self.send(false, bytes);
                self.now_us += self.dice.below(60);
            }
            self.pause();
        }
    }
}
