//! Random plan of a run: packets, and faults and changes of the system, from a seed.

use super::corruption::{Corruption, garbage, ipv6};
use super::flows::{FlowEnds, FlowGenerator, PlannedPacket};
use super::frame::{self, TCP, UDP};
use super::random_choices::RandomChoices;
use pathcall_netfn::place::{PlacementStrategy, ServerId};

/// Functions that come with Pathcall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FunctionKind {
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

impl FunctionKind {
    /// All functions.
    pub const ALL: [Self; 5] = [Self::Snat, Self::Fib, Self::Trd, Self::Knock, Self::Smooth];

    /// File name without its extension.
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

/// Number of servers; not all of them are in the group.
pub const SERVERS: usize = 3;

/// Faults and changes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunFaults {
    /// Number of changes of the server group.
    pub changes: u32,
    /// A server dies.
    pub death: bool,
    /// The element restarts.
    pub restart: bool,
    /// Routes are added, changed and withdrawn.
    pub routes: bool,
    /// A pause in which all entries expire.
    pub silence: bool,
}

/// Step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanStep {
    /// Packet at a port, with inside addresses only, and its corruption.
    Packet(u16, Vec<u8>, Option<Corruption>),
    /// Sets the wanted server group.
    Want(Vec<ServerId>),
    /// Kills one of the busiest servers.
    Kill,
    /// Restarts the element.
    Restart,
    /// Applies the next change of routes.
    Route(u32),
    /// Pause that is long enough for all flow state to expire.
    Silence,
}

/// Plan of a run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Seed.
    pub seed: u64,
    /// Capacity of the element, entries.
    pub entries: u32,
    /// Placement strategy.
    pub strategy: PlacementStrategy,
    /// Number of servers in the first group.
    pub group: usize,
    /// Delay of control messages, µs.
    pub control_us: u64,
    /// Largest delay of a frame to or from a server, µs.
    pub delay_us: u64,
    /// Minimum residence of an entry, ms.
    pub stay_ms: u64,
    /// Faults.
    pub faults: RunFaults,
    /// Steps with their times.
    pub steps: Vec<(u64, PlanStep)>,
}

/// Time of the first packets; groups and ranges are installed by then.
pub const START_US: u64 = 1_000_000;
/// Period in which most flows begin.
const SPAN_US: u64 = 1_500_000;

impl RunPlan {
    /// Plan of a seed, with about `flows` flows.
    #[must_use]
    pub fn new(kind: FunctionKind, seed: u64, entries: u32, flows: u64, faults: RunFaults) -> Self {
        let mut dice = RandomChoices::new(seed ^ (kind as u64) << 56);
        let mut maker = FlowGenerator::new(&mut dice);
        for number in 0..flows {
            let at_us = START_US + maker.dice.below(SPAN_US);
            maker.begin(at_us);
            flow(kind, &mut maker, number, faults.death);
        }
        let sent = maker.sent;
        Self::of_packets(kind, dice, seed, entries, sent, faults)
    }

    /// Plan from captured packets; every packet gets a unique identification.
    #[must_use]
    pub fn of_capture(
        kind: FunctionKind,
        seed: u64,
        entries: u32,
        mut sent: Vec<PlannedPacket>,
        faults: RunFaults,
    ) -> Self {
        sent.truncate(usize::from(u16::MAX) / 2);
        for (id, sent) in (1..).zip(&mut sent) {
            sent.at_us += START_US;
            frame::set_id(&mut sent.bytes, id);
        }
        Self::of_packets(kind, RandomChoices::new(seed), seed, entries, sent, faults)
    }

    fn of_packets(
        kind: FunctionKind,
        mut dice: RandomChoices,
        seed: u64,
        entries: u32,
        sent: Vec<PlannedPacket>,
        faults: RunFaults,
    ) -> Self {
        let end_us = sent.iter().map(|sent| sent.at_us).max().unwrap_or(START_US);
        let mut steps = Vec::new();
        let mut next_id = sent.iter().filter_map(|sent| frame::identification(&sent.bytes)).max().unwrap_or(0);
        for PlannedPacket { at_us, port, bytes } in sent {
            // Some packets are also sent as a corrupted copy.
            if dice.one_in(12) && next_id < u16::MAX {
                let mut copy = bytes.clone();
                next_id += 1;
                frame::set_id(&mut copy, next_id);
                let corruption = Corruption::draw(&mut dice, port, bytes.len());
                // Sensors whose numbers differ only in the upper half share their state.
                let shares = kind == FunctionKind::Smooth && matches!(corruption, Corruption::Flip(42..44, _));
                let corruption = if shares { Corruption::MoreFragments } else { corruption };
                steps.push((at_us + dice.below(3_000), PlanStep::Packet(port, copy, Some(corruption))));
            }
            steps.push((at_us, PlanStep::Packet(port, bytes, None)));
        }
        let at = |dice: &mut RandomChoices| START_US + dice.below(end_us - START_US + 1);
        for _ in 0..steps.len() / 40 {
            let port = dice.below(2) as u16;
            let bytes = if dice.one_in(2) { garbage(&mut dice) } else { ipv6(&mut dice, (7001, 22)) };
            steps.push((at(&mut dice), PlanStep::Packet(port, bytes, None)));
        }
        for _ in 0..faults.changes {
            let wanted = 1 + dice.below((1 << SERVERS) - 1);
            let wanted = (0..SERVERS as ServerId).filter(|id| wanted >> id & 1 == 1).collect();
            steps.push((at(&mut dice), PlanStep::Want(wanted)));
        }
        if faults.death {
            steps.push((START_US + (end_us - START_US) * (1 + dice.below(3)) / 8, PlanStep::Kill));
        }
        if faults.restart {
            steps.push((at(&mut dice), PlanStep::Restart));
        }
        for number in 0..if faults.routes && kind == FunctionKind::Fib { 6 } else { 0 } {
            steps.push((START_US + (end_us - START_US) * (number + 1) / 7, PlanStep::Route(number as u32)));
        }
        if faults.silence {
            steps.push((at(&mut dice), PlanStep::Silence));
        }
        steps.sort_by_key(|(at_us, _)| *at_us);
        Self {
            seed,
            entries,
            strategy: dice.pick(&[
                PlacementStrategy::Threshold,
                PlacementStrategy::Heap,
                PlacementStrategy::Heap,
                PlacementStrategy::Random,
            ]),
            group: if faults.death { 2 } else { 1 + dice.below(SERVERS as u64) as usize },
            control_us: dice.pick(&[50, 300, 2_000]),
            delay_us: dice.pick(&[100, 600, 3_000]),
            stay_ms: dice.pick(&[0, 20, 100]),
            faults,
            steps,
        }
    }
}

/// Flow of the kind that this function handles.
fn flow(kind: FunctionKind, maker: &mut FlowGenerator<'_>, number: u64, mortal: bool) {
    let size = if maker.dice.one_in(6) { 12 } else { 1 + maker.dice.below(4) };
    let host = 1 + maker.dice.below(12) as u32;
    let peer = 0xc633_6400 | (1 + maker.dice.below(9) as u32);
    let ends = |one: u32, vlan| FlowEnds { one: (one, 1024 + number as u16), other: (peer, 443), vlan };
    match kind {
        FunctionKind::Snat => {
            let tag = maker.dice.one_in(5).then_some(7);
            let ends = ends(0x0a00_0000 | host, tag);
            let neighbour = FlowEnds { other: (0x0a00_0000 | (host + 1), 1024 + number as u16 - 1), ..ends };
            match maker.dice.below(if mortal { 6 } else { 8 }) {
                0..=2 => maker.add_tcp(&ends, size),
                3 => maker.add_udp(&ends, 3 * size),
                4 => maker.add_pings(&ends, 2 * size),
                5 => {
                    maker.add_udp(&ends, size);
                    maker.add_icmp_errors(&ends, UDP, size);
                }
                6 => maker.add_fragments(&ends, size),
                _ => maker.add_udp(&neighbour, size),
            }
            if maker.dice.one_in(8) {
                maker.add_icmp_errors(&ends, TCP, 1);
            }
        }
        FunctionKind::Fib => {
            let tenant = maker.dice.below(4) as u16;
            let one = 0x0a00_0000 | (maker.dice.below(4) as u32) << 8 | maker.dice.below(256) as u32;
            let ends = ends(one, (tenant > 0).then_some(tenant));
            if maker.dice.one_in(2) { maker.add_tcp(&ends, size) } else { maker.add_udp(&ends, 3 * size) }
        }
        FunctionKind::Trd => {
            let ends = ends(0x0a00_0000 | host, None);
            if maker.dice.one_in(8) { maker.add_udp(&ends, size) } else { maker.add_tcp(&ends, 2 * size) }
        }
        FunctionKind::Knock => {
            let guard = FlowEnds { one: (0x0a00_0000 | number as u32, 40_000), other: (peer, 22), vlan: None };
            let wrong = maker.dice.below(6);
            for (at, port) in [7001, 9003, 8002].into_iter().enumerate() {
                let port = if wrong == at as u64 { 7500 } else { port };
                maker.add_udp(&FlowEnds { other: (peer, port), ..guard }, 1);
            }
            maker.add_tcp(&guard, 2 * size);
            if maker.dice.one_in(3) {
                maker.add_udp(&FlowEnds { other: (peer, 53), ..guard }, size);
            }
        }
        FunctionKind::Smooth => {
            let ends = FlowEnds { other: (peer, 5683), ..ends(0x0a00_0000 | host, None) };
            for _ in 0..4 * size {
                let odd = [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE / 3.0, f32::MAX];
                let value = if maker.dice.one_in(20) { maker.dice.pick(&odd) } else { maker.dice.below(1000) as f32 };
                maker.add_reading(&ends, number as u32, value);
                maker.wait_round_trip();
            }
            maker.add_udp(&FlowEnds { other: (peer, 53), ..ends }, size);
        }
    }
}
