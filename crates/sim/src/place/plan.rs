//! What a seed plays: hosts, an application, requests, and what befalls nodes and links.

use std::time::Duration;

use pathcall_place::model::{NodeRole, Preset};
use pathcall_place::{Config, KindId, Path, Paths, Strategy};
use pathcall_wire::Instant;

use super::bed::Between;
use super::beds::{self, App};
use super::station::{Spell, Trouble};
use crate::random::{Chance, Random};

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Where chance comes from.
    pub seed: u64,
    /// What both hosts are.
    pub hosts: Preset,
    /// What runs on them.
    pub app: App,
    /// How paths are chosen.
    pub strategy: Strategy,
    /// The selector's bounds.
    pub config: Config,
    /// What lies between the hosts.
    pub between: Between,
    /// What time stamps add at most, nanoseconds.
    pub noise_ns: u64,
    /// How often the server's part of a time is not measured.
    pub unmeasured: Chance,
    /// A message that is not back after so long has failed.
    pub time_out: Duration,
    /// Whether hosts hear at once of a message that is lost.
    pub loud: bool,
    /// Requests, by the time at which they are made.
    pub asks: Vec<Ask>,
    /// What befalls which station, by its place in [`Paths::resources`].
    pub spells: Vec<(usize, Spell)>,
    /// Whether and how it is watched that the selector leaves a path in time.
    pub watch: Option<Watch>,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// When it is made.
    pub at: Instant,
    /// Its type.
    pub kind: KindId,
    /// Its address.
    pub address: u64,
    /// Its message.
    pub message: u64,
    /// After so long nobody wants it any more.
    pub abandoned: Option<Duration>,
}

/// A selector has to leave a station that fails, and to use it again: at a load that the other path bears, and from a
/// moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// The station, by its place in [`Paths::resources`].
    pub station: usize,
    /// When it fails, and until when.
    pub from: Instant,
    /// When it is well again.
    pub until: Instant,
}

/// Addresses of a run.
const ADDRESSES: u64 = 40;

/// The plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> Plan {
    let random = &mut Random::new(seed ^ 0x706c_6163_6500_0001);
    let hosts = random.pick(&beds::HOSTS);
    let app = random.pick(&App::ALL);
    let paths = beds::paths(hosts, app);
    let watched = random.happens(Chance::percent(35));
    let mut plan = Plan {
        seed,
        hosts,
        app,
        strategy: if watched { Strategy::Leo } else { strategy(random) },
        config: config(random),
        between: Between {
            network_ns: random.pick(&[(3_000, 9_000), (3_000, 3_000), (500, 40_000)]),
            ordered: true,
            jitter: random.pick(&[0, 50, 300]),
        },
        noise_ns: 0,
        unmeasured: Chance::default(),
        time_out: Duration::from_nanos(slowest(&paths) * random.range(20..=60)) + Duration::from_micros(300),
        loud: random.happens(Chance::percent(50)),
        asks: Vec::new(),
        spells: Vec::new(),
        watch: None,
    };
    if watched {
        watched_plan(random, &paths, &mut plan)
    } else {
        any_plan(random, &paths, &mut plan)
    }
    plan
}

fn strategy(random: &mut Random) -> Strategy {
    match random.below(10) {
        0..=3 => Strategy::Leo,
        4 => Strategy::ShortestQueue,
        5 => random.pick(&[Strategy::GreedyE2e, Strategy::GreedyIntra]),
        6 => Strategy::RoundRobin,
        7 => random.pick(&[Strategy::AllCpu, Strategy::AllAcc]),
        8 => Strategy::Migration,
        _ => Strategy::Horizon { depth: random.range(1..=4) as u8 },
    }
}

fn config(random: &mut Random) -> Config {
    Config::default()
        .in_flight_max(random.pick(&[1, 3, 64, 4096]))
        .attempts_max(random.range(1..=5) as u8)
        .stall_factor(random.pick(&[2, 8, 50]))
        .stall_ns_min(random.pick(&[20_000, 300_000, 1_000_000]))
        .slow_max(random.range(1..=8) as u8)
        .probe_ns(random.pick(&[10_000, 200_000, 1_000_000]))
        .probe_ns_max(5_000_000)
}

/// Whatever may happen: what matters is that every request has its one right answer.
fn any_plan(random: &mut Random, paths: &Paths, plan: &mut Plan) {
    let slowest = slowest(paths);
    // Up to several times as much as the hosts bear.
    let mean = random.pick(&[slowest / 20, slowest / 4, slowest, slowest * 5]).max(50);
    plan.noise_ns = random.pick(&[0, slowest / 50, slowest * 3]);
    plan.unmeasured = random.pick(&[Chance(0), Chance(0), Chance::percent(10), Chance::percent(100)]);
    let (count, addresses) = (random.range(10..=400), random.pick(&[1, 4, ADDRESSES]));
    let abandoned = random.pick(&[Chance(0), Chance(0), Chance::percent(5)]);
    let mut at = 0.0;
    let mut message = 0;
    while plan.asks.len() < count as usize {
        at += random.exponential(mean as f64);
        let kind = KindId(random.below(paths.kinds.len() as u64) as u16);
        message += 1;
        for _ in 0..random.pick(&[1, 1, 4]) {
            let given_up = random.happens(abandoned).then(|| random.up_to(Duration::from_nanos(slowest * 4)));
            let address = random.below(addresses);
            plan.asks.push(Ask { at: Instant(at as u64), kind, address, message, abandoned: given_up });
        }
    }
    let span = at as u64 + slowest * 10;
    for _ in 0..random.below(4) {
        let from = random.below(span);
        let long = random.pick(&[slowest * 3, slowest * 30, plan.time_out.as_nanos() as u64 * 2]);
        let until = Instant(from + 1 + random.below(long));
        let what = match random.below(3) {
            0 => Trouble::Slow(random.pick(&[10, 100])),
            1 => Trouble::Stands,
            _ => Trouble::Dead,
        };
        plan.spells.push((random.index(paths.resources.len()), Spell { from: Instant(from), until, what }));
    }
}

/// Requests before a device fails, while it does, and after it.
const PHASES: [u64; 3] = [300, 1_200, 1_500];

/// One device becomes slow, stands still or dies at a load that the other path bears, and is well again.
fn watched_plan(random: &mut Random, paths: &Paths, plan: &mut Plan) {
    // The selector has to know the machine that it is on, and to be let do what it can.
    let stall_ns_min = 200_000;
    plan.config = Config::default().stall_ns_min(stall_ns_min).probe_ns(200_000).probe_ns_max(5_000_000);
    plan.between.jitter = plan.between.jitter.min(50);
    let slowest = slowest(paths);
    let mean = slowest.max(2 * plan.between.network_ns.1);
    let kind = (0..paths.kinds.len() as u16).map(KindId).find(|kind| paths.of_kind(*kind).len() > 1);
    let kind = kind.unwrap_or(KindId(0));
    let mut at = 0.0;
    let mut starts = [0; 3];
    for (phase, count) in PHASES.into_iter().enumerate() {
        starts[phase] = at as u64;
        for _ in 0..count {
            at += random.exponential(mean as f64);
            let (message, address) = (plan.asks.len() as u64, random.bits());
            plan.asks.push(Ask { at: Instant(at as u64), kind, address, message, abandoned: None });
        }
    }
    // The device that everybody uses as long as it is well.
    let best = paths.of_kind(kind).iter().min_by_key(|path| path.traverse_ns);
    let only = |station: usize| {
        let using = |path: &&Path| path.hops.iter().any(|hop| usize::from(hop.resource.0) == station);
        paths.of_kind(kind).iter().filter(using).count() < paths.of_kind(kind).len()
    };
    let computes = |station: &usize| matches!(paths.resources[*station].node, Some(NodeRole::Cpu | NodeRole::Acc));
    let hops = best.into_iter().flat_map(|path| &path.hops).map(|hop| usize::from(hop.resource.0));
    let Some(station) = hops.filter(computes).find(|station| only(*station)) else { return };
    // How long a way takes when the device is so many times as slow.
    let slowed = |path: &Path, times: u64| {
        let there = path.hops.iter().filter(|hop| usize::from(hop.resource.0) == station);
        path.traverse_ns + there.map(|hop| hop.delay_ns * (times - 1)).sum::<u64>()
    };
    let others = paths.of_kind(kind).iter().filter(|path| slowed(path, 2) == path.traverse_ns);
    let other = others.map(|path| path.traverse_ns).min().unwrap_or(u64::MAX);
    // Slow enough that another way is the better by far.
    let slow = |times: u32| {
        let best = paths.of_kind(kind).iter().filter(|path| slowed(path, 2) > path.traverse_ns);
        let still = best.map(|path| slowed(path, u64::from(times))).min().unwrap_or(0);
        if still > other.saturating_mul(2) { Trouble::Slow(times) } else { Trouble::Dead }
    };
    let what = match random.below(4) {
        0 => slow(10),
        1 => slow(100),
        2 => Trouble::Stands,
        _ => Trouble::Dead,
    };
    let [_, from, until] = starts.map(Instant);
    plan.spells = vec![(station, Spell { from, until, what })];
    plan.watch = Some(Watch { station, from, until });
}

/// The longest time through empty hosts, nanoseconds.
fn slowest(paths: &Paths) -> u64 {
    paths.paths.iter().map(|path| path.traverse_ns).max().unwrap_or(1)
}
