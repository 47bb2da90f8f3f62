//! What a seed plays: traffic, hosts, faults, the operator's wishes.

use std::time::Duration;

use pathcall_function::place::{self, Strategy};
use pathcall_function::scale;
use pathcall_function::split::balance::Sizes;
use pathcall_wire::Instant;

use super::program::Kind;
use crate::random::{Chance, Random};

/// Traffic comes until then; then everything has to come to rest.
pub(super) const TRAFFIC: Duration = Duration::from_millis(600);
/// It begins then, when servers are known.
pub(super) const BEGINS: Duration = Duration::from_millis(30);
/// An entry of a server that nothing used for so long goes.
pub(super) const ENTRY_IDLE: Duration = Duration::from_millis(150);

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Where chance comes from.
    pub seed: u64,
    /// How large the generated parts are.
    pub sizes: Sizes,
    /// How entries are placed.
    pub place: place::Config,
    /// How groups change.
    pub scale: scale::Config,
    /// Servers that there are.
    pub servers: usize,
    /// Of them, those that the operator wants at first.
    pub wanted: Vec<u16>,
    /// What is sent, when.
    pub packets: Vec<(Instant, Sent)>,
    /// What goes wrong or is changed, when.
    pub incidents: Vec<(Instant, Incident)>,
    /// Prefixes at first: value, bits, next hop.
    pub routes: Vec<(u32, u16, u32)>,
    /// A packet between element and server gets lost.
    pub loss: Chance,
    /// A packet between element and server comes once more.
    pub repeat: Chance,
    /// Others of its flow may overtake a packet between element and server.
    pub reorder: Chance,
    /// A packet's way to or from a server, at least and at most.
    pub delay: (Duration, Duration),
    /// A server's time for a packet.
    pub service: Duration,
    /// Between controller and everybody.
    pub control: Duration,
    /// Whether others get in the way, of whom this plan says nothing.
    pub disturbed: bool,
}

/// A packet that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// What it wants. Of `Back`, the key is the flow whose value it goes to.
    pub kind: Kind,
    /// Its flow.
    pub key: u32,
    /// Whether it ends its flow.
    pub last: bool,
}

/// What happens beside traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// A server dies, and is back after a while.
    Death(u16, Duration),
    /// The element loses all.
    Restart,
    /// The operator wants these servers.
    Want(Vec<u16>),
    /// The operator adds a route, or gives one another next hop.
    Route(u32, u16, u32),
}

impl Plan {
    /// Whether packets may get lost.
    #[must_use]
    pub fn faulty(&self) -> bool {
        let fault = |(_, incident): &(Instant, Incident)| matches!(incident, Incident::Death(..) | Incident::Restart);
        self.disturbed || self.loss != Chance(0) || self.incidents.iter().any(fault)
    }
}

/// The plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x6675_6e63_7469_6f6e);
    let servers = random.range(1..=4) as usize;
    let faulty = !random.happens(Chance::percent(40));
    let loss = if faulty && random.happens(Chance::percent(60)) {
        Chance(random.range(1_000..=40_000) as u32)
    } else {
        Chance(0)
    };
    let mut ms = |from: u64, to: u64| Duration::from_millis(random.range(from..=to));
    let place = place::Config {
        strategy: Strategy::Threshold,
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
            Strategy::None,
            Strategy::Random,
            Strategy::Heap,
            Strategy::Threshold,
            Strategy::Threshold,
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
    let mut plan = Plan {
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

/// Links that repeat, and links on which packets overtake each other; and how long an operator waits for old flows.
fn links(random: &mut Random, plan: &mut Plan) {
    if random.happens(Chance::percent(30)) {
        plan.repeat = Chance(random.range(1_000..=60_000) as u32);
    }
    if random.happens(Chance::percent(20)) {
        plan.reorder = Chance(random.range(10_000..=300_000) as u32);
        // Of packets that overtake each other nobody can say which are behind their flow's last.
        plan.packets.iter_mut().for_each(|(_, sent)| sent.last = false);
    }
    if random.happens(Chance::percent(30)) {
        plan.scale.drain_after = Duration::from_millis(random.range(5..=60));
    }
    if random.happens(Chance::percent(20)) {
        plan.scale.drain_idle = Some(ENTRY_IDLE * 3 / 4);
    }
    if random.happens(Chance::percent(10)) {
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

/// Prefixes of a few bits in one corner, so that many lie within others.
fn route(random: &mut Random) -> (u32, u16, u32) {
    let bits = random.pick(&[0u16, 4, 8, 16, 24, 26, 28, 30, 32]);
    let value = 0x0a00_0000 | (random.below(64) as u32 * 5) | (random.below(2) as u32) << 20;
    let mask = if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
    (value & mask, bits, 1 + random.below(1000) as u32)
}

fn traffic(random: &mut Random) -> Vec<(Instant, Sent)> {
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
        let kind = random.pick(&[Kind::Count, Kind::Count, Kind::Out, Kind::Out, Kind::Back, Kind::Route]);
        let key = rank.unwrap_or(0) as u32;
        let key = if kind == Kind::Route { 0x0a00_0000 | (key * 7) | (key % 2) << 20 } else { key + 1 };
        let last = matches!(kind, Kind::Count | Kind::Out) && random.happens(ends);
        packets.push((Instant(0) + at, Sent { kind, key, last }));
    }
    packets
}

fn incidents(random: &mut Random, servers: usize, faulty: bool) -> Vec<(Instant, Incident)> {
    let mut incidents = Vec::new();
    let mut happen = |random: &mut Random, incident| {
        let at = Instant(0) + Duration::from_millis(40) + random.up_to(TRAFFIC - Duration::from_millis(40));
        incidents.push((at, incident));
    };
    for _ in 0..random.below(5) {
        let want = subset(random, servers);
        happen(random, Incident::Want(want));
    }
    for _ in 0..random.below(8) {
        let (value, bits, hop) = route(random);
        happen(random, Incident::Route(value, bits, hop));
    }
    if faulty && random.happens(Chance::percent(40)) {
        let (server, away) = (random.index(servers) as u16, Duration::from_millis(random.range(5..=150)));
        happen(random, Incident::Death(server, away));
    }
    if faulty && random.happens(Chance::percent(30)) {
        happen(random, Incident::Restart);
    }
    incidents.sort_by_key(|(at, _)| *at);
    incidents
}
