//! Trace of a run: a hash of all events, and text if requested.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use pathcall_endpoint::map::EpochChange;
use pathcall_wire::{Flags, Instant, MapFlags, MapFrame};

use crate::link::{FrameArrival, LinkOutcome, LossCause};
use crate::network::Datagram;
use crate::node::{FrameDecision, MapNodeId, NodeReport};
use crate::scenario::{ElementFailure, RegisterRange};

/// Recorder of all events of a run.
pub(crate) struct Trace<'a> {
    hash: u64,
    text: Option<&'a mut dyn Write>,
    /// First error of writing the text; no text is written after it.
    broken: Option<io::Error>,
}

impl<'a> Trace<'a> {
    pub(crate) fn new(text: Option<&'a mut dyn Write>) -> Self {
        Self { hash: 0, text, broken: None }
    }

    /// Hash that differs between different runs; used only to compare runs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_error(self) -> Option<io::Error> {
        self.broken
    }

    /// Records a frame that a node sends over a link.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        (from, to): (MapNodeId, MapNodeId),
        frame: &Datagram,
        outcome: LinkOutcome,
        arrivals: &[FrameArrival],
    ) {
        self.mix(now.0);
        for arrival in arrivals {
            self.mix(arrival.at.0 << 1 | u64::from(arrival.marked));
        }
        self.line(now, from, || {
            format!("send {} → {to}{}", FrameSummary(&frame.bytes), CarriedFrame { now, outcome, arrivals })
        });
    }

    /// Records that an owner continues without its element.
    pub(crate) fn suspended(&mut self, now: Instant, owner: MapNodeId) {
        self.mix(now.0);
        self.line(now, owner, || "GOES ON without the element, which is silent".to_owned());
    }

    /// Records a change of an application's memory.
    pub(crate) fn moved(&mut self, now: Instant, owner: MapNodeId, memory: Option<RegisterRange>) {
        self.mix(now.0);
        self.line(now, owner, || format!("MOVES to {memory:?}"));
    }

    /// Records a frame that a node receives.
    pub(crate) fn arrived(&mut self, now: Instant, at: MapNodeId, datagram: &Datagram) {
        self.mix(now.0);
        self.mix_bytes(&datagram.bytes);
        let hostile = if datagram.hostile { "HOSTILE " } else { "" };
        self.line(now, at, || format!("got  {hostile}{}", FrameSummary(&datagram.bytes)));
    }

    /// Records a datagram that a full inbox dropped.
    pub(crate) fn inbox_full(&mut self, now: Instant, at: MapNodeId, bytes: &[u8]) {
        self.line(now, at, || format!("LOST (inbox full) {}", FrameSummary(bytes)));
    }

    /// Records the death of a node's process.
    pub(crate) fn killed(&mut self, now: Instant, node: MapNodeId) {
        self.line(now, node, || "KILLED".to_owned());
    }

    /// Records a pause of a node's machine.
    pub(crate) fn paused(&mut self, now: Instant, node: MapNodeId, time: Duration) {
        self.line(now, node, || format!("STANDS STILL for {time:?}"));
    }

    /// Records a node's decision on a frame.
    pub(crate) fn decided(&mut self, now: Instant, at: MapNodeId, decision: FrameDecision) {
        if decision != FrameDecision::Taken {
            self.line(now, at, || format!("     └ {decision:?}"));
        }
    }

    /// Records a failure of an element.
    pub(crate) fn failed(&mut self, now: Instant, failure: ElementFailure) {
        self.mix(now.0);
        self.line(now, MapNodeId::Element(failure.element), || format!("FAILS {failure:?}"));
    }

    /// Records a renewal that arrives at a caller.
    pub(crate) fn renewal(&mut self, now: Instant, to: MapNodeId, renewal: &EpochChange) {
        self.mix(now.0);
        let EpochChange { epoch, element, committed, applied, .. } = renewal;
        let text = || {
            let known = applied.iter().filter(|applied| applied.seq > 0).count();
            format!("told epoch {epoch}, element {element}, committed {committed}, {known} frames on record")
        };
        self.line(now, to, text);
    }

    /// Records the report of a host.
    pub(crate) fn reported(&mut self, now: Instant, by: MapNodeId, report: &NodeReport) {
        self.mix(now.0);
        self.line(now, by, || {
            let mut text = format!("{report:?}");
            if let Some((end, _)) = text.char_indices().nth(300) {
                text.truncate(end);
                text.push('…');
            }
            text
        });
    }

    fn line(&mut self, now: Instant, node: MapNodeId, what: impl FnOnce() -> String) {
        let Some(text) = &mut self.text else { return };
        if self.broken.is_none() {
            self.broken = writeln!(text, "{:>12} {node:<13} {}", Millis(now), what()).err();
        }
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let rest = rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        self.mix(rest);
    }
}

/// Time in milliseconds, to the nanosecond.
pub(crate) struct Millis(pub(crate) Instant);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:06}", self.0.0 / 1_000_000, self.0.0 % 1_000_000))
    }
}

struct CarriedFrame<'a> {
    now: Instant,
    outcome: LinkOutcome,
    arrivals: &'a [FrameArrival],
}

impl fmt::Display for CarriedFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome.lost {
            Some(LossCause::Chance) => f.write_str(" LOST")?,
            Some(LossCause::QueueFull) => f.write_str(" LOST (queue full)")?,
            Some(LossCause::Cut) => f.write_str(" LOST (link cut)")?,
            Some(LossCause::Damaged) => f.write_str(" LOST (damaged)")?,
            None => {}
        }
        for (i, arrival) in self.arrivals.iter().enumerate() {
            let after: Duration = arrival.at.since(self.now);
            write!(f, "{} {after:?}", if i == 0 { " in" } else { " AGAIN in" })?;
            f.write_str(if arrival.marked { " (marked)" } else { "" })?;
        }
        f.write_str(if self.outcome.delayed { " HELD BACK" } else { "" })
    }
}

/// Main fields of a frame.
pub(crate) struct FrameSummary<'a>(pub(crate) &'a [u8]);

impl fmt::Display for FrameSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = match MapFrame::new_checked(self.0) {
            Ok(frame) => frame,
            Err(error) => return write!(f, "{} bytes: {error}", self.0.len()),
        };
        let (base, map) = (frame.base(), frame.map());
        write!(f, "{:?} {}→{}", frame.kind(), base.src(), base.dst())?;
        if base.seq() != 0 {
            write!(f, " slot {} seq {}", base.slot(), base.seq())?;
        }
        if map.has(MapFlags::LINEAR) || map.has(MapFlags::ROUND) {
            write!(f, " row {} round {}", map.index(), base.round())?;
        }
        if map.has(MapFlags::ROUND | MapFlags::COUNT) {
            write!(f, " worker {} of {} tag {:08x}", map.worker(), map.threshold(), map.tag())?;
        }
        if !map.has(MapFlags::ROUND) && map.tag() != 0 {
            write!(f, " lock {} tag {}", map.index(), map.tag())?;
        }
        if map.lanes() > 0 {
            write!(f, " lanes {}+{}", map.first_lane(), map.lanes())?;
        }
        if map.payload_len() > 0 {
            write!(f, " payload {}", map.payload_len())?;
        }
        names(f, base.flags(), &BASE_FLAGS)?;
        names(f, map.flags(), &MAP_FLAGS)
    }
}

const BASE_FLAGS: [(u16, &str); 5] = [
    (Flags::ECN, "ECN"),
    (Flags::FROM_SERVER, "SERVER"),
    (Flags::MCAST, "MCAST"),
    (Flags::CROSS, "CROSS"),
    (Flags::NOT_ADMITTED, "NOT_ADMITTED"),
];

const MAP_FLAGS: [(u16, &str); 13] = [
    (MapFlags::OVERFLOW, "OVERFLOW"),
    (MapFlags::COUNT, "COUNT"),
    (MapFlags::CLEAR, "CLEAR"),
    (MapFlags::ADD, "ADD"),
    (MapFlags::GET, "GET"),
    (MapFlags::WIDE, "WIDE"),
    (MapFlags::BARE, "BARE"),
    (MapFlags::REACHED, "REACHED"),
    (MapFlags::OLD, "OLD"),
    (MapFlags::DIVERTED, "DIVERTED"),
    (MapFlags::LOGICAL, "LOGICAL"),
    (MapFlags::DENIED, "DENIED"),
    (MapFlags::CLAIM, "CLAIM"),
];

fn names(f: &mut fmt::Formatter<'_>, flags: u16, table: &[(u16, &str)]) -> fmt::Result {
    for (_, name) in table.iter().filter(|(flag, _)| flags & flag != 0) {
        write!(f, " {name}")?;
    }
    Ok(())
}
