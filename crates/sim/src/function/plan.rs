//! Plan of a function run, drawn from a seed: traffic, servers, faults, and commands of the operator.

use std::time::Duration;

use pathcall_netfn::place::{self, PlacementStrategy};
use pathcall_netfn::scale;
use pathcall_p4::split::balance::Sizes;
use pathcall_wire::Instant;

use super::program::PacketKind;
use crate::random::{Chance, Random};

/// End of the traffic.
pub(super) const TRAFFIC: Duration = Duration::from_millis(600);
/// Start of the traffic; the servers are known by then.
pub(super) const BEGINS: Duration = Duration::from_millis(30);
/// Time after which a server removes an unused entry.
pub(super) const ENTRY_IDLE: Duration = Duration::from_millis(150);

/// Plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionPlan {
    /// Seed of the plan.
    pub seed: u64,
    /// Sizes of the generated parts.
    pub sizes: Sizes,
    /// Configuration of the placement.
    pub place: place::Config,
    /// Configuration of the scaling.
    pub scale: scale::Config,
    /// Number of servers.
    pub servers: usize,
    /// Servers that the operator wants at the start.
    pub wanted: Vec<u16>,
    /// Packets, by time.
    pub packets: Vec<(Instant, PacketPlan)>,
    /// Incidents, by time.
    pub incidents: Vec<(Instant, FunctionIncident)>,
    /// Initial routes: value, prefix length, next hop.
    pub routes: Vec<(u32, u16, u32)>,
    /// Chance that a packet between element and server is lost.
    pub loss: Chance,
    /// Chance that a packet between element and server is repeated.
    pub repeat: Chance,
    /// Chance that later packets of its flow may overtake a packet between element and server.
    pub reorder: Chance,
    /// Minimum and maximum of the delay between element and server.
    pub delay: (Duration, Duration),
    /// Service time of a packet.
    pub service: Duration,
    /// Delay of control messages.
    pub control: Duration,
    /// Whether other parts of a combined run may disturb this one.
    pub disturbed: bool,
}

/// Planned packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketPlan {
    /// Kind of the packet. The key of a `Back` packet is the flow whose value it is sent to.
    pub kind: PacketKind,
    /// Key of its flow.
    pub key: u32,
    /// Whether it ends its flow.
    pub last: bool,
}

/// Incident beside the traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionIncident {
    /// A server dies and restarts after this time.
    Death(u16, Duration),
    /// The element restarts without state.
    Restart,
    /// The operator changes the wanted servers.
    Want(Vec<u16>),
    /// The operator adds a route, or changes its next hop.
    Route(u32, u16, u32),
}

impl FunctionPlan {
    /// Whether packets may be lost.
    #[must_use]
    pub fn faulty(&self) -> bool {
        let fault = |(_, incident): &(Instant, FunctionIncident)| {
            matches!(incident, FunctionIncident::Death(..) | FunctionIncident::Restart)
        };
        self.disturbed || self.loss != Chance(0) || self.incidents.iter().any(fault)
    }
}

/// Generates the plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> FunctionPlan {
    let mut random = Random::new(seed ^ 0x6675_6e63_7469_6f6e);
    let servers = random.range(1..=4) as usize;
    let faulty = !random.percent(40);
    let loss = if faulty && random.percent(60) { Chance(random.range(1_000..=40_000) as u32) } else { Chance(0) };
    let mut ms = |from: u64, to: u64| Duration::from_millis(random.range(from..=to));
    let place = place::Config {
        strategy: PlacementStrategy::Threshold,
        idle: ms(20, 100),
        stay: ms(5, 40),
        advantage: 1.2,
        force_after: None,
        answer_within: Duration::from_millis(15),
        reuse_after: Duration::from_millis(25),
        ..place::Config::default()
    };
    let scale = scale::Config {
        buckets: 16,
        calm: Duration::from_millis(30),
        report_within: Duration::from_millis(20),
        quiet: Duration::from_millis(10),
        drain_after: Duration::from_millis(100),
        drain_every: Duration::from_millis(10),
        quarantine: ms(150, 300),
        ..scale::Config::default()
    };
    let place = place::Config {
        strategy: random.pick(&[
            PlacementStrategy::None,
            PlacementStrategy::Random,
            PlacementStrategy::Heap,
            PlacementStrategy::Threshold,
            PlacementStrategy::Threshold,
        ]),
        k: random.pick(&[0.1, 1.0, 4.0]),
        batch: random.pick(&[1, 7, 1000]),
        seed,
        ..place
    };
    let sizes = Sizes {
        entries: random.pick(&[1, 4, 12, 64]),
        cells_log2: random.pick(&[3, 6, 12]),
        period_log2: 13,
        sketch_log2: random.pick(&[3, 6, 8]),
        window_log2: random.pick(&[12, 13, 14]),
        flows_log2: random.pick(&[5, 10]),
        filter_log2: random.pick(&[4, 8, 12]),
        buckets_log2: 4,
        repeats_log2: 14,
    };
    let routes = (0..random.range(3..=25)).map(|_| route(&mut random)).collect();
    let longest = random.range(60..=900);
    let delay = (Duration::from_micros(random.range(5..=50)), Duration::from_micros(longest));
    let mut plan = FunctionPlan {
        seed,
        sizes,
        place,
        scale,
        servers,
        wanted: subset(&mut random, servers),
        packets: Vec::new(),
        incidents: Vec::new(),
        routes,
        loss,
        repeat: Chance(0),
        reorder: Chance(0),
        delay,
        service: Duration::from_micros(random.range(1..=30)),
        control: Duration::from_micros(random.range(100..=3000)),
        disturbed: false,
    };
    plan.packets = traffic(&mut random);
    plan.incidents = incidents(&mut random, servers, faulty);
    links(&mut Random::new(seed ^ 0x6c69_6e6b_732e_2e2e), &mut plan);
    plan
}

/// Draws repeats and reordering of the links, and the operator's limits for old flows.
fn links(random: &mut Random, plan: &mut FunctionPlan) {
    if random.percent(30) {
        plan.repeat = Chance(random.range(1_000..=60_000) as u32);
    }
    if random.percent(20) {
        plan.reorder = Chance(random.range(10_000..=300_000) as u32);
        // With reordering, the packets behind the last one of their flow are unknown.
        plan.packets.iter_mut().for_each(|(_, sent)| sent.last = false);
    }
    if random.percent(30) {
        plan.scale.drain_after = Duration::from_millis(random.range(5..=60));
    }
    if random.percent(20) {
        plan.scale.drain_idle = Some(ENTRY_IDLE * 3 / 4);
    }
    if random.percent(10) {
        plan.scale.drain_within = Some(Duration::from_millis(random.range(60..=200)));
    }
}

fn subset(random: &mut Random, servers: usize) -> Vec<u16> {
    let mut all: Vec<u16> = (0..servers as u16).collect();
    random.shuffle(&mut all);
    all.truncate(1 + random.index(servers));
    all.sort_unstable();
    all
}

/// Draws a short prefix in a small range, so that many prefixes nest.
fn route(random: &mut Random) -> (u32, u16, u32) {
    let bits = random.pick(&[0u16, 4, 8, 16, 24, 26, 28, 30, 32]);
    let value = 0x0a00_0000 | (random.below(64) as u32 * 5) | (random.below(2) as u32) << 20;
    let mask = if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
    (value & mask, bits, 1 + random.below(1000) as u32)
}

fn traffic(random: &mut Random) -> Vec<(Instant, PacketPlan)> {
    let flows = random.range(4..=40);
    let alpha = random.pick(&[0.0, 0.5, 0.9, 0.99, 1.2]);
    let weights: Vec<u64> = (1..=flows).map(|rank| (1e6 * (rank as f64).powf(-alpha)) as u64).collect();
    let sum: u64 = weights.iter().sum();
    let mean = random.range(60..=600);
    let ends = Chance(random.pick(&[0, 5_000, 30_000]));
    let mut packets = Vec::new();
    let mut at = BEGINS;
    while at < TRAFFIC {
        at += Duration::from_micros(random.below(2 * mean));
        let mut left = random.below(sum);
        let rank = weights.iter().position(|weight| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        let kind = random.pick(&[
            PacketKind::Count,
            PacketKind::Count,
            PacketKind::Out,
            PacketKind::Out,
            PacketKind::Back,
            PacketKind::Route,
        ]);
        let key = rank.unwrap_or(0) as u32;
        let key = if kind == PacketKind::Route { 0x0a00_0000 | (key * 7) | (key % 2) << 20 } else { key + 1 };
        let last = matches!(kind, PacketKind::Count | PacketKind::Out) && random.happens(ends);
        packets.push((Instant(0) + at, PacketPlan { kind, key, last }));
    }
    packets
}

fn incidents(random: &mut Random, servers: usize, faulty: bool) -> Vec<(Instant, FunctionIncident)> {
    let mut incidents = Vec::new();
    let mut happen = |random: &mut Random, incident| {
        let at = Instant(0) + Duration::from_millis(40) + random.up_to(TRAFFIC - Duration::from_millis(40));
        incidents.push((at, incident));
    };
    for _ in 0..random.below(5) {
        let want = subset(random, servers);
        happen(random, FunctionIncident::Want(want));
    }
    for _ in 0..random.below(8) {
        let (value, bits, hop) = route(random);
        happen(random, FunctionIncident::Route(value, bits, hop));
    }
    if faulty && random.percent(40) {
        let (server, away) = (random.index(servers) as u16, Duration::from_millis(random.range(5..=150)));
        happen(random, FunctionIncident::Death(server, away));
    }
    if faulty && random.percent(30) {
        happen(random, FunctionIncident::Restart);
    }
    incidents.sort_by_key(|(at, _)| *at);
    incidents
}
