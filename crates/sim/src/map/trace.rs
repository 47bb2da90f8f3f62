//! Trace of a map run: frames, reports and faults.

use std::fmt;
use std::time::Duration;

use pathcall_endpoint::map::EpochChange;
use pathcall_wire::{Flags, Instant, MapFlags, MapFrame};

use super::link::{FrameArrival, LinkOutcome, LossCause};
use super::network::Datagram;
use super::node::{MapNodeId, NodeReport};
use crate::timeline::Timeline;
use crate::trace::brief;

impl<E> Timeline<E> {
    /// Records a frame that a node sends over a link.
    pub(super) fn sent(
        &mut self,
        (from, to): (MapNodeId, MapNodeId),
        frame: &Datagram,
        outcome: LinkOutcome,
        arrivals: &[FrameArrival],
    ) {
        let carried = CarriedFrame { now: self.now, outcome, arrivals };
        self.record(from, || format!("send {} → {to}{carried}", FrameSummary(&frame.bytes)));
        for arrival in arrivals {
            self.trace.mix(arrival.at.0 << 1 | u64::from(arrival.marked));
        }
    }

    /// Records a frame that a node receives.
    pub(super) fn arrived(&mut self, at: MapNodeId, datagram: &Datagram) {
        let hostile = if datagram.hostile { "HOSTILE " } else { "" };
        self.record(at, || format!("got  {hostile}{}", FrameSummary(&datagram.bytes)));
        let (words, rest) = datagram.bytes.as_chunks::<8>();
        for word in words {
            self.trace.mix(u64::from_le_bytes(*word));
        }
        let rest = rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        self.trace.mix(rest);
    }

    /// Records a renewal that arrives at a caller.
    pub(super) fn renewal(&mut self, to: MapNodeId, renewal: &EpochChange) {
        let EpochChange { epoch, element, committed, applied, .. } = renewal;
        self.record(to, || {
            let known = applied.iter().filter(|applied| applied.seq > 0).count();
            format!("told epoch {epoch}, element {element}, committed {committed}, {known} frames on record")
        });
    }

    /// Records the report of a host.
    pub(super) fn reported(&mut self, by: MapNodeId, report: &NodeReport) {
        self.record(by, || brief(report, 300));
    }

    /// Records an event of a node, in hash and text.
    pub(super) fn record(&mut self, node: MapNodeId, what: impl FnOnce() -> String) {
        self.trace.mix(self.now.0);
        self.node_line(node, what);
    }

    /// Appends a line about a node to the text.
    pub(super) fn node_line(&mut self, node: MapNodeId, what: impl FnOnce() -> String) {
        self.line(|| format!("{node:<13} {}", what()));
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
pub(super) struct FrameSummary<'a>(pub(super) &'a [u8]);

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
