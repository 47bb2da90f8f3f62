//! TCP segments of a capture, each with the state of its connection at the capture point.
//!
//! Linux numbers the packets of a connection in the order in which it sends them (IPv4 identification). So a capture
//! shows what neither TRD nor tshark looks at: whether a segment was sent after segments with higher sequence numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use pcap_file::pcap::PcapReader;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
const ACK: u8 = 16;
/// Round trip that tshark assumes for a connection without captured handshake.
const ROUND_TRIP_US: u64 = 3000;
/// Time for which tshark considers duplicate acknowledgements.
const ASKED_US: u64 = 20_000;

type Direction = ([u8; 4], [u8; 4], u16, u16);

/// TCP segment of the capture.
#[derive(Clone)]
pub struct Segment {
    /// Frame number, from 1.
    pub frame: usize,
    /// Time since the first frame.
    pub at_us: u64,
    pub bytes: Vec<u8>,
    pub seq: u32,
    /// Length, counting SYN and FIN.
    pub length: u32,
    pub flags: u8,
    /// Distance of its first byte from the end of the highest sequence number so far; `None` for the first segment.
    pub ahead: Option<i32>,
    /// Time since the segment with the highest sequence number so far.
    pub newest_us: u64,
    /// Time for which some of its bytes had been missing between others; `None` if none was missing.
    pub missing_us: Option<u64>,
    /// Round trip of the connection, from its handshake.
    pub round_trip_us: u64,
    /// Two or more duplicate acknowledgements asked for it, the last not long ago.
    pub asked: bool,
    /// Sent after segments with higher sequence numbers.
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
    /// True if the sender had sent these bytes before, as far as the capture shows.
    pub fn was_sent_again(&self) -> bool {
        self.sent_again && !self.is_keep_alive()
    }

    /// IPv4 identification.
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.bytes[18], self.bytes[19]])
    }

    pub fn is_keep_alive(&self) -> bool {
        self.ahead == Some(-1) && self.length <= 1 && self.flags & (SYN | FIN | RST) == 0
    }
}

/// State of one direction of a connection.
#[derive(Default)]
struct DirectionState {
    next: Option<u32>,
    newest_us: u64,
    /// Missing ranges: start, end, and the time of the gap's opening.
    holes: Vec<(u32, u32, u64)>,
    /// Last acknowledgement, number of repeats, and time of the last one.
    acknowledged: (u32, u32, u64),
    /// Time of the last SYN without ACK, and the time from there to the first ACK.
    syn_us: Option<u64>,
    round_trip_us: Option<u64>,
    /// Sent segments: number in the order of sending, and end of the segment.
    sent: Vec<(Option<u16>, u32)>,
}

impl DirectionState {
    /// Records a segment. Returns the time for which some of its bytes had been missing.
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

/// All segments of a capture.
pub fn segments(capture: &Path) -> Vec<Segment> {
    let mut reader = PcapReader::new(File::open(capture).expect("a capture")).expect("pcap");
    let (mut known, mut out, mut first) = (BTreeMap::<Direction, DirectionState>::new(), Vec::new(), None);
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        let at_us = u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac);
        let at_us = at_us - *first.get_or_insert(at_us);
        out.push(segment(&mut known, out.len() + 1, at_us, packet.data.into_owned()));
    }
    out
}

fn segment(all: &mut BTreeMap<Direction, DirectionState>, frame: usize, at_us: u64, bytes: Vec<u8>) -> Segment {
    let half = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).expect("4 bytes");
    assert_eq!((half(12), bytes[23]), (0x0800, 6), "frame {frame}: TCP over IPv4");
    let tcp = 14 + usize::from(bytes[14] & 15) * 4;
    let (seq, ack, flags) = (word(tcp + 4), word(tcp + 8), bytes[tcp + 13]);
    let payload = u32::from(half(16)) - (tcp as u32 - 14) - u32::from(bytes[tcp + 12] >> 4) * 4;
    let length = payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let end = seq.wrapping_add(length);
    // A SYN-ACK has no identification of its own.
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
        // Without identification: in the order of arrival.
        _ => true,
    };
    let sent_again =
        length > 0 && own.sent.iter().any(|(other, other_end)| was_later(*other) && before(seq, *other_end));
    // An acknowledgement also shows what was sent before it.
    if flags & RST == 0 {
        own.sent.push((id, end));
    }
    let (ahead, newest_us) = (own.next.map(|next| seq.wrapping_sub(next) as i32), at_us - own.newest_us);
    let missing_us = if flags & RST == 0 || length > 0 { own.fill(seq, end, at_us) } else { None };
    let round_trip_us = own.round_trip_us.or(reverse_round_trip_us).unwrap_or(ROUND_TRIP_US);
    Segment { frame, at_us, bytes, seq, length, flags, ahead, newest_us, missing_us, round_trip_us, asked, sent_again }
}

/// True if a sequence number precedes another.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
