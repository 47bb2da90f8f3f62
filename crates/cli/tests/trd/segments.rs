//! The TCP segments of a capture, each with what was known at that place when it came, from the packets themselves.
//!
//! Linux numbers the packets of a connection in the order in which it sends them (IPv4 identification). So a capture tells
//! what neither TRD nor tshark looks at: whether a segment was sent after others that it comes behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use pcap_file::pcap::PcapReader;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
const ACK: u8 = 16;
/// What tshark takes for the round trip of a connection whose beginning it has not seen.
const ROUND_TRIP_US: u64 = 3000;
/// How long acknowledgements that ask for a segment count, to tshark.
const ASKED_US: u64 = 20_000;

type Direction = ([u8; 4], [u8; 4], u16, u16);

/// A segment.
#[derive(Clone)]
pub struct Segment {
    /// From 1.
    pub frame: usize,
    /// Since the first.
    pub at_us: u64,
    pub bytes: Vec<u8>,
    pub seq: u32,
    /// With SYN and FIN.
    pub length: u32,
    pub flags: u8,
    /// From what is behind the highest number so far to its first; none: it is the first.
    pub ahead: Option<i32>,
    /// Since the segment with the highest number so far.
    pub newest_us: u64,
    /// For how long some of its bytes had been missing between others; none: none had.
    pub missing_us: Option<u64>,
    /// The connection's, from its handshake.
    pub round_trip_us: u64,
    /// Acknowledgements, two or more of one number and the last not long ago, asked for it.
    pub asked: bool,
    /// It was sent after others that have higher numbers.
    sent_again: bool,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            frame,
            at_us,
            seq,
            length,
            flags,
            ahead,
            newest_us,
            missing_us,
            round_trip_us,
            asked,
            sent_again,
            ..
        } = self;
        write!(
            f,
            "frame {frame} at {at_us} µs: {seq} + {length}, flags {flags:#x}, ahead {ahead:?}, newest {newest_us} µs ago, \
             missing for {missing_us:?} µs, round trip {round_trip_us} µs, asked for: {asked}, sent again: {sent_again}"
        )
    }
}

impl Segment {
    /// Whether its sender had sent these numbers before, so far as can be known from what came by.
    pub fn was_sent_again(&self) -> bool {
        self.sent_again && !self.is_keep_alive()
    }

    /// IPv4's.
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.bytes[18], self.bytes[19]])
    }

    pub fn is_keep_alive(&self) -> bool {
        self.ahead == Some(-1) && self.length <= 1 && self.flags & (SYN | FIN | RST) == 0
    }
}

/// What is known of one direction of a connection.
#[derive(Default)]
struct Known {
    next: Option<u32>,
    newest_us: u64,
    /// Numbers that were passed over: from, to, and since when.
    holes: Vec<(u32, u32, u64)>,
    /// Its last acknowledgement, how often it was repeated, and when last.
    acknowledged: (u32, u32, u64),
    /// Its last SYN without ACK, and the time from there to its first ACK.
    syn_us: Option<u64>,
    round_trip_us: Option<u64>,
    /// What was sent so far: number in the order of sending, and what is behind it.
    sent: Vec<(Option<u16>, u32)>,
}

impl Known {
    /// A segment comes: for how long some of its numbers had been missing.
    fn fill(&mut self, seq: u32, end: u32, at_us: u64) -> Option<u64> {
        let mut since = None::<u64>;
        let mut left = Vec::new();
        for (from, to, opened_us) in self.holes.drain(..) {
            if !(before(from, end) && before(seq, to)) {
                left.push((from, to, opened_us));
                continue;
            }
            since = Some(since.map_or(opened_us, |since| since.min(opened_us)));
            left.extend(before(from, seq).then_some((from, seq, opened_us)));
            left.extend(before(end, to).then_some((end, to, opened_us)));
        }
        self.holes = left;
        if let Some(next) = self.next.filter(|next| before(*next, seq)) {
            self.holes.push((next, seq, at_us));
        }
        if self.next.is_none_or(|next| before(next, end)) {
            (self.next, self.newest_us) = (Some(end), at_us);
        }
        since.map(|since| at_us - since)
    }

    fn acknowledge(&mut self, flags: u8, ack: u32, length: u32, at_us: u64) {
        if flags & SYN != 0 {
            self.syn_us = (flags & ACK == 0).then_some(at_us);
        } else if flags & ACK != 0 {
            self.round_trip_us = self.round_trip_us.or(self.syn_us.map(|syn_us| at_us - syn_us));
            let repeats = ack == self.acknowledged.0 && length == 0;
            self.acknowledged = (ack, if repeats { self.acknowledged.1 + 1 } else { 0 }, at_us);
        }
    }
}

/// All of them.
pub fn segments(capture: &Path) -> Vec<Segment> {
    let mut reader = PcapReader::new(File::open(capture).expect("a capture")).expect("pcap");
    let (mut known, mut out, mut first) = (BTreeMap::<Direction, Known>::new(), Vec::new(), None);
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        let at_us = u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac);
        let at_us = at_us - *first.get_or_insert(at_us);
        out.push(segment(&mut known, out.len() + 1, at_us, packet.data.into_owned()));
    }
    out
}

fn segment(all: &mut BTreeMap<Direction, Known>, frame: usize, at_us: u64, bytes: Vec<u8>) -> Segment {
    let half = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).expect("4 bytes");
    assert_eq!((half(12), bytes[23]), (0x0800, 6), "frame {frame}: TCP over IPv4");
    let tcp = 14 + usize::from(bytes[14] & 15) * 4;
    let (seq, ack, flags) = (word(tcp + 4), word(tcp + 8), bytes[tcp + 13]);
    let payload = u32::from(half(16)) - (tcp as u32 - 14) - u32::from(bytes[tcp + 12] >> 4) * 4;
    let length = payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let end = seq.wrapping_add(length);
    // The answer to a SYN has no number of its own.
    let id = (flags & (SYN | ACK) != SYN | ACK).then(|| half(18));

    let direction = (address(26), address(30), half(tcp), half(tcp + 2));
    let reverse = all.entry((direction.1, direction.0, direction.3, direction.2)).or_default();
    let (asked_for, times, asked_us) = reverse.acknowledged;
    let asked = times >= 2 && at_us - asked_us < ASKED_US && !before(seq, asked_for);
    let reverse_round_trip_us = reverse.round_trip_us;
    let own = all.entry(direction).or_default();
    own.acknowledge(flags, ack, length, at_us);
    let was_later = |other: Option<u16>| match (id, other) {
        (Some(id), Some(other)) => (id.wrapping_sub(other) as i16) > 0,
        // Without a number: in the order of coming.
        _ => true,
    };
    let sent_again = length > 0 && own.sent.iter().any(|(other, behind)| was_later(*other) && before(seq, *behind));
    // Also an acknowledgement says what was sent before it.
    if flags & RST == 0 {
        own.sent.push((id, end));
    }
    let (ahead, newest_us) = (own.next.map(|next| seq.wrapping_sub(next) as i32), at_us - own.newest_us);
    let missing_us = if flags & RST == 0 || length > 0 { own.fill(seq, end, at_us) } else { None };
    let round_trip_us = own.round_trip_us.or(reverse_round_trip_us).unwrap_or(ROUND_TRIP_US);
    Segment { frame, at_us, bytes, seq, length, flags, ahead, newest_us, missing_us, round_trip_us, asked, sent_again }
}

/// Whether a number is before another.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
