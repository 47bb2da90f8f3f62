//! What happened: always as one number, and as text when somebody wants to read it.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use pathcall_endpoint::map::Renewal;
use pathcall_wire::{Flags, Instant, MapFlags, MapFrame};

use crate::link::{Arrival, Fate, Loss};
use crate::network::Datagram;
use crate::party::{Decision, Node, Report};
use crate::scenario::{ElementFailure, Memory};

/// Takes note of all that happens in a run.
pub(crate) struct Trace<'a> {
    hash: u64,
    text: Option<&'a mut dyn Write>,
    /// The first error of writing the text; nothing is written after it.
    broken: Option<io::Error>,
}

impl<'a> Trace<'a> {
    pub(crate) fn new(text: Option<&'a mut dyn Write>) -> Self {
        Self { hash: 0, text, broken: None }
    }

    /// A number that differs between different runs: for telling them apart, no more.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_error(self) -> Option<io::Error> {
        self.broken
    }

    /// A frame left a node by a link.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        (from, to): (Node, Node),
        frame: &Datagram,
        fate: Fate,
        arrivals: &[Arrival],
    ) {
        self.mix(now.0);
        for arrival in arrivals {
            self.mix(arrival.at.0 << 1 | u64::from(arrival.marked));
        }
        self.line(now, from, || format!("send {} → {to}{}", Frame(&frame.bytes), Carried { now, fate, arrivals }));
    }

    /// An owner goes on without its element.
    pub(crate) fn suspended(&mut self, now: Instant, owner: Node) {
        self.mix(now.0);
        self.line(now, owner, || "GOES ON without the element, which is silent".to_owned());
    }

    /// An application's memory is another.
    pub(crate) fn moved(&mut self, now: Instant, owner: Node, memory: Option<Memory>) {
        self.mix(now.0);
        self.line(now, owner, || format!("MOVES to {memory:?}"));
    }

    /// A frame came to a node, which has taken it.
    pub(crate) fn arrived(&mut self, now: Instant, at: Node, datagram: &Datagram) {
        self.mix(now.0);
        self.mix_bytes(&datagram.bytes);
        let hostile = if datagram.hostile { "HOSTILE " } else { "" };
        self.line(now, at, || format!("got  {hostile}{}", Frame(&datagram.bytes)));
    }

    /// A datagram came to a node whose machine has no room for it.
    pub(crate) fn no_room(&mut self, now: Instant, at: Node, bytes: &[u8]) {
        self.line(now, at, || format!("LOST (inbox full) {}", Frame(bytes)));
    }

    /// A node's process is killed.
    pub(crate) fn killed(&mut self, now: Instant, node: Node) {
        self.line(now, node, || "KILLED".to_owned());
    }

    /// A node's machine stands still.
    pub(crate) fn paused(&mut self, now: Instant, node: Node, time: Duration) {
        self.line(now, node, || format!("STANDS STILL for {time:?}"));
    }

    /// What the node did with it.
    pub(crate) fn decided(&mut self, now: Instant, at: Node, decision: Decision) {
        if decision != Decision::Taken {
            self.line(now, at, || format!("     └ {decision:?}"));
        }
    }

    /// The element fails.
    pub(crate) fn failed(&mut self, now: Instant, failure: ElementFailure) {
        self.mix(now.0);
        self.line(now, Node::Element(failure.element), || format!("FAILS {failure:?}"));
    }

    /// The controller's word comes.
    pub(crate) fn told(&mut self, now: Instant, to: Node, renewal: &Renewal) {
        self.mix(now.0);
        let Renewal { epoch, element, committed, applied, .. } = renewal;
        let text = || {
            let known = applied.iter().filter(|applied| applied.seq > 0).count();
            format!("told epoch {epoch}, element {element}, committed {committed}, {known} frames on record")
        };
        self.line(now, to, text);
    }

    /// A host's report.
    pub(crate) fn reported(&mut self, now: Instant, by: Node, report: &Report) {
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

    fn line(&mut self, now: Instant, node: Node, what: impl FnOnce() -> String) {
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

/// A time in milliseconds, to the nanosecond.
pub(crate) struct Millis(pub(crate) Instant);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:06}", self.0.0 / 1_000_000, self.0.0 % 1_000_000))
    }
}

struct Carried<'a> {
    now: Instant,
    fate: Fate,
    arrivals: &'a [Arrival],
}

impl fmt::Display for Carried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate.lost {
            Some(Loss::Chance) => f.write_str(" LOST")?,
            Some(Loss::QueueFull) => f.write_str(" LOST (queue full)")?,
            Some(Loss::Cut) => f.write_str(" LOST (link cut)")?,
            Some(Loss::Damaged) => f.write_str(" LOST (damaged)")?,
            None => {}
        }
        for (i, arrival) in self.arrivals.iter().enumerate() {
            let after: Duration = arrival.at.since(self.now);
            write!(f, "{} {after:?}", if i == 0 { " in" } else { " AGAIN in" })?;
            f.write_str(if arrival.marked { " (marked)" } else { "" })?;
        }
        f.write_str(if self.fate.delayed { " HELD BACK" } else { "" })
    }
}

/// A frame's main fields.
pub(crate) struct Frame<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Frame<'_> {
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
