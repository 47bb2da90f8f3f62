//! What happens in a run: packets, and what befalls the system around them, from a seed.

use super::dice::Dice;
use super::flows::{Ends, Maker, Sent};
use super::frame::{self, TCP, UDP};
use super::hostile::{Mangle, garbage, ipv6};
use pathcall_function::place::{ServerId, Strategy};

/// The functions that come with Pathcall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// snat.p4c
    Snat,
    /// fib.p4c
    Fib,
    /// trd.p4c
    Trd,
    /// knock.p4c
    Knock,
    /// smooth.p4c
    Smooth,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Snat, Self::Fib, Self::Trd, Self::Knock, Self::Smooth];

    /// The file's name, without its ending.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Snat => "snat",
            Self::Fib => "fib",
            Self::Trd => "trd",
            Self::Knock => "knock",
            Self::Smooth => "smooth",
        }
    }
}

/// Servers that there are; not all serve.
pub const SERVERS: usize = 3;

/// What may befall a run, beside its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Changes of the group of servers.
    pub changes: u32,
    /// A server dies.
    pub death: bool,
    /// The element begins anew.
    pub restart: bool,
    /// Routes come, change and go.
    pub routes: bool,
    /// All is silent until every entry has expired.
    pub silence: bool,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A packet comes in here; all its addresses are as inside.
    Packet(u16, Vec<u8>, Option<Mangle>),
    /// The group shall be these servers.
    Want(Vec<ServerId>),
    /// One of the servers that have worked most dies.
    Kill,
    /// The element begins anew.
    Restart,
    /// The next change of routes.
    Route(u32),
    /// So much time passes that nothing is left of any flow.
    Silence,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it is made of.
    pub seed: u64,
    /// Entries that the element has room for.
    pub entries: u32,
    /// What is placed.
    pub strategy: Strategy,
    /// Servers of the first group.
    pub group: usize,
    /// What the controller's words take, microseconds.
    pub control_us: u64,
    /// A frame's way to a server, or back, at most.
    pub delay_us: u64,
    /// Milliseconds that an entry stays at least.
    pub stay_ms: u64,
    /// What may befall it.
    pub faults: Faults,
    /// What happens, and when.
    pub steps: Vec<(u64, Step)>,
}

/// When packets begin: groups and ranges are there by then.
pub const START_US: u64 = 1_000_000;
/// Until then most flows have begun.
const SPAN_US: u64 = 1_500_000;

impl Plan {
    /// Of a seed, with about so many flows.
    #[must_use]
    pub fn new(kind: Kind, seed: u64, entries: u32, flows: u64, faults: Faults) -> Self {
        let mut dice = Dice::new(seed ^ (kind as u64) << 56);
        let mut maker = Maker::new(&mut dice);
        for number in 0..flows {
            let at_us = START_US + maker.dice.below(SPAN_US);
            maker.begin(at_us);
            flow(kind, &mut maker, number, faults.death);
        }
        let sent = maker.sent;
        Self::of_packets(kind, dice, seed, entries, sent, faults)
    }

    /// Of packets that were captured; every identification is another.
    #[must_use]
    pub fn of_capture(kind: Kind, seed: u64, entries: u32, mut sent: Vec<Sent>, faults: Faults) -> Self {
        sent.truncate(usize::from(u16::MAX) / 2);
        for (id, sent) in (1..).zip(&mut sent) {
            sent.at_us += START_US;
            frame::set_id(&mut sent.bytes, id);
        }
        Self::of_packets(kind, Dice::new(seed), seed, entries, sent, faults)
    }

    fn of_packets(kind: Kind, mut dice: Dice, seed: u64, entries: u32, sent: Vec<Sent>, faults: Faults) -> Self {
        let end_us = sent.iter().map(|sent| sent.at_us).max().unwrap_or(START_US);
        let mut steps = Vec::new();
        let mut next_id = sent.iter().filter_map(|sent| frame::id(&sent.bytes)).max().unwrap_or(0);
        for Sent { at_us, port, bytes } in sent {
            // A copy of some is mangled: what it was made of comes as well.
            if dice.one_in(12) && next_id < u16::MAX {
                let mut copy = bytes.clone();
                next_id += 1;
                frame::set_id(&mut copy, next_id);
                let mangle = Mangle::draw(&mut dice, port, bytes.len());
                // Sensors whose numbers differ in their upper half alone share their state.
                let shares = kind == Kind::Smooth && matches!(mangle, Mangle::Flip(42..44, _));
                let mangle = if shares { Mangle::MoreFragments } else { mangle };
                steps.push((at_us + dice.below(3_000), Step::Packet(port, copy, Some(mangle))));
            }
            steps.push((at_us, Step::Packet(port, bytes, None)));
        }
        let at = |dice: &mut Dice| START_US + dice.below(end_us - START_US + 1);
        for _ in 0..steps.len() / 40 {
            let port = dice.below(2) as u16;
            let bytes = if dice.one_in(2) { garbage(&mut dice) } else { ipv6(&mut dice, (7001, 22)) };
            steps.push((at(&mut dice), Step::Packet(port, bytes, None)));
        }
        for _ in 0..faults.changes {
            let wanted = 1 + dice.below((1 << SERVERS) - 1);
            let wanted = (0..SERVERS as ServerId).filter(|id| wanted >> id & 1 == 1).collect();
            steps.push((at(&mut dice), Step::Want(wanted)));
        }
        if faults.death {
            steps.push((START_US + (end_us - START_US) * (1 + dice.below(3)) / 8, Step::Kill));
        }
        if faults.restart {
            steps.push((at(&mut dice), Step::Restart));
        }
        for number in 0..if faults.routes && kind == Kind::Fib { 6 } else { 0 } {
            steps.push((START_US + (end_us - START_US) * (number + 1) / 7, Step::Route(number as u32)));
        }
        if faults.silence {
            steps.push((at(&mut dice), Step::Silence));
        }
        steps.sort_by_key(|(at_us, _)| *at_us);
        Self {
            seed,
            entries,
            strategy: dice.pick(&[Strategy::Threshold, Strategy::Heap, Strategy::Heap, Strategy::Random]),
            group: if faults.death { 2 } else { 1 + dice.below(SERVERS as u64) as usize },
            control_us: dice.pick(&[50, 300, 2_000]),
            delay_us: dice.pick(&[100, 600, 3_000]),
            stay_ms: dice.pick(&[0, 20, 100]),
            faults,
            steps,
        }
    }
}

/// One flow, as this function meets them.
fn flow(kind: Kind, maker: &mut Maker<'_>, number: u64, mortal: bool) {
    let size = if maker.dice.one_in(6) { 12 } else { 1 + maker.dice.below(4) };
    let host = 1 + maker.dice.below(12) as u32;
    let peer = 0xc633_6400 | (1 + maker.dice.below(9) as u32);
    let ends = |one: u32, vlan| Ends { one: (one, 1024 + number as u16), other: (peer, 443), vlan };
    match kind {
        Kind::Snat => {
            let tag = maker.dice.one_in(5).then_some(7);
            let ends = ends(0x0a00_0000 | host, tag);
            let neighbour = Ends { other: (0x0a00_0000 | (host + 1), 1024 + number as u16 - 1), ..ends };
            match maker.dice.below(if mortal { 6 } else { 8 }) {
                0..=2 => maker.tcp(&ends, size),
                3 => maker.udp(&ends, 3 * size),
                4 => maker.ping(&ends, 2 * size),
                5 => {
                    maker.udp(&ends, size);
                    maker.errors(&ends, UDP, size);
                }
                6 => maker.fragments(&ends, size),
                _ => maker.udp(&neighbour, size),
            }
            if maker.dice.one_in(8) {
                maker.errors(&ends, TCP, 1);
            }
        }
        Kind::Fib => {
            let tenant = maker.dice.below(4) as u16;
            let one = 0x0a00_0000 | (maker.dice.below(4) as u32) << 8 | maker.dice.below(256) as u32;
            let ends = ends(one, (tenant > 0).then_some(tenant));
            if maker.dice.one_in(2) { maker.tcp(&ends, size) } else { maker.udp(&ends, 3 * size) }
        }
        Kind::Trd => {
            let ends = ends(0x0a00_0000 | host, None);
            if maker.dice.one_in(8) { maker.udp(&ends, size) } else { maker.tcp(&ends, 2 * size) }
        }
        Kind::Knock => {
            let guard = Ends { one: (0x0a00_0000 | number as u32, 40_000), other: (peer, 22), vlan: None };
            let wrong = maker.dice.below(6);
            for (at, port) in [7001, 9003, 8002].into_iter().enumerate() {
                let port = if wrong == at as u64 { 7500 } else { port };
                maker.udp(&Ends { other: (peer, port), ..guard }, 1);
            }
            maker.tcp(&guard, 2 * size);
            if maker.dice.one_in(3) {
                maker.udp(&Ends { other: (peer, 53), ..guard }, size);
            }
        }
        Kind::Smooth => {
            let ends = Ends { other: (peer, 5683), ..ends(0x0a00_0000 | host, None) };
            for _ in 0..4 * size {
                let odd = [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 3.0, f32::MAX];
                let value = if maker.dice.one_in(20) { maker.dice.pick(&odd) } else { maker.dice.below(1000) as f32 };
                maker.reading(&ends, number as u32, value);
                maker.round_trip();
            }
            maker.udp(&Ends { other: (peer, 53), ..ends }, size);
        }
    }
}
