//! Plan of a place run, drawn from a seed: hosts, application, requests, and faults of nodes and links.

use std::time::Duration;

use pathcall_place::model::Preset;
use pathcall_place::{Config, DeviceRole, KindId, Path, Paths, Resource, SelectionStrategy};
use pathcall_wire::Instant;

use super::host_pair::NetworkModel;
use super::presets::{self, AppModel};
use super::station::{StationFault, StationFaultKind};
use crate::random::{Chance, Random};

/// Plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacePlan {
    /// Seed of the plan.
    pub seed: u64,
    /// Model of both hosts.
    pub hosts: Preset,
    /// Accelerators after the first: the time of a task on each, in percent of that of the first.
    pub further: Vec<u64>,
    /// Application on the hosts.
    pub app: AppModel,
    /// Strategy of the selector.
    pub strategy: SelectionStrategy,
    /// Limits of the selector.
    pub config: Config,
    /// Network between the hosts.
    pub network: NetworkModel,
    /// Limit on the error of time stamps, in nanoseconds.
    pub noise_ns: u64,
    /// Chance that the server's share of a time is not measured.
    pub unmeasured: Chance,
    /// Time after which a message without an answer has failed.
    pub time_out: Duration,
    /// Whether hosts detect the loss of a message at once.
    pub detects_loss: bool,
    /// Requests, by time.
    pub requests: Vec<PlaceRequest>,
    /// Faults of stations, by their index in [`Paths::resources`].
    pub station_faults: Vec<(usize, StationFault)>,
    /// Check that the selector leaves a failed station in time.
    pub reaction_check: Option<ReactionCheck>,
}

/// Planned request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceRequest {
    /// Time of the request.
    pub at: Instant,
    /// Request type.
    pub kind: KindId,
    /// Its address.
    pub address: u64,
    /// Its message.
    pub message: u64,
    /// Time after which the caller abandons it.
    pub abandoned: Option<Duration>,
}

/// Check of the selector's reaction: it has to leave a station that fails, and to use it again afterwards. The load
/// is one that the other path can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReactionCheck {
    /// Index of the station in [`Paths::resources`].
    pub station: usize,
    /// Start of the failure.
    pub from: Instant,
    /// End of the failure.
    pub until: Instant,
}

/// Number of addresses of a run.
const ADDRESSES: u64 = 40;

/// Generates the plan of a seed.
#[must_use]
pub fn generate(seed: u64) -> PlacePlan {
    let random = &mut Random::new(seed ^ 0x706c_6163_6500_0001);
    let hosts = random.pick(&presets::HOSTS);
    let app = random.pick(&AppModel::ALL);
    let paths = presets::paths(hosts, app, &[]);
    let watched = random.percent(35);
    let mut plan = PlacePlan {
        seed,
        hosts,
        further: Vec::new(),
        app,
        strategy: if watched { SelectionStrategy::Leo } else { strategy(random) },
        config: config(random),
        network: NetworkModel {
            network_ns: random.pick(&[(3_000, 9_000), (3_000, 3_000), (500, 40_000)]),
            ordered: true,
            jitter: random.pick(&[0, 50, 300]),
        },
        noise_ns: 0,
        unmeasured: Chance::default(),
        time_out: Duration::from_nanos(slowest(&paths) * random.range(20..=60)) + Duration::from_micros(300),
        detects_loss: random.percent(50),
        requests: Vec::new(),
        station_faults: Vec::new(),
        reaction_check: None,
    };
    // A third of the plans with Leo have late binding; the draws stay the same.
    if plan.strategy == SelectionStrategy::Leo && seed % 3 == 1 {
        plan.strategy = SelectionStrategy::Late;
    }
    if watched {
        watched_plan(random, &paths, &mut plan);
    } else {
        any_plan(random, &paths, &mut plan);
    }
    further_accelerators(&mut plan);
    plan
}

impl PlacePlan {
    /// Paths of the plan.
    #[must_use]
    pub fn paths(&self) -> Paths {
        presets::paths(self.hosts, self.app, &self.further)
    }

    /// Sets the accelerators after the first. Faults of other stations stay.
    pub(crate) fn set_further(&mut self, further: Vec<u64>) {
        let before = self.paths();
        self.further = further;
        let after = self.paths();
        let name = |resource: &Resource| (resource.side, resource.name.clone());
        let find = |station: usize| {
            let lost = name(&before.resources[station]);
            after.resources.iter().position(|resource| name(resource) == lost)
        };
        let faults = self.station_faults.iter();
        self.station_faults = faults.filter_map(|(station, fault)| Some((find(*station)?, *fault))).collect();
        let check = self.reaction_check.take();
        self.reaction_check = check.and_then(|check| Some(ReactionCheck { station: find(check.station)?, ..check }));
    }
}

/// Adds one or two accelerators to a part of the plans, and faults of theirs. Their draws are their own, so that the
/// other plans stay as they are.
fn further_accelerators(plan: &mut PlacePlan) {
    let random = &mut Random::new(plan.seed ^ 0x706c_6163_6500_0003);
    if !random.percent(35) {
        return;
    }
    // A device that is watched is the best one.
    let percents = if plan.reaction_check.is_some() { [150, 200, 250, 300] } else { [50, 100, 100, 300] };
    plan.set_further((0..random.range(1..=2)).map(|_| random.pick(&percents)).collect());
    if plan.reaction_check.is_some() {
        return;
    }
    let paths = plan.paths();
    let is_further = |resource: &Resource| resource.node.is_some_and(|role| role > DeviceRole::Acc);
    let stations: Vec<usize> = (0..paths.resources.len()).filter(|at| is_further(&paths.resources[*at])).collect();
    let slowest = slowest(&paths);
    let span = plan.requests.last().map_or(0, |last| last.at.0) + slowest * 10;
    for _ in 0..if stations.is_empty() { 0 } else { random.below(3) } {
        let station = stations[random.index(stations.len())];
        let from = random.below(span);
        let until = Instant(from + 1 + random.below(slowest * 30));
        let what = random.pick(&[StationFaultKind::Slow(100), StationFaultKind::Stands, StationFaultKind::Dead]);
        plan.station_faults.push((station, StationFault { from: Instant(from), until, what }));
    }
}

fn strategy(random: &mut Random) -> SelectionStrategy {
    match random.below(10) {
        0..=3 => SelectionStrategy::Leo,
        4 => SelectionStrategy::ShortestQueue,
        5 => random.pick(&[SelectionStrategy::GreedyE2e, SelectionStrategy::GreedyIntra]),
        6 => SelectionStrategy::RoundRobin,
        7 => random.pick(&[SelectionStrategy::AllCpu, SelectionStrategy::AllAcc]),
        8 => SelectionStrategy::Migration,
        _ => SelectionStrategy::Horizon { depth: random.range(1..=4) as u8 },
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

/// Draws a plan with any faults; it checks that every request has its one right answer.
fn any_plan(random: &mut Random, paths: &Paths, plan: &mut PlacePlan) {
    let slowest = slowest(paths);
    // Up to several times the load that the hosts can carry.
    let mean = random.pick(&[slowest / 20, slowest / 4, slowest, slowest * 5]).max(50);
    plan.noise_ns = random.pick(&[0, slowest / 50, slowest * 3]);
    plan.unmeasured = random.pick(&[Chance(0), Chance(0), Chance::percent(10), Chance::percent(100)]);
    let (count, addresses) = (random.range(10..=400), random.pick(&[1, 4, ADDRESSES]));
    let abandoned = random.pick(&[Chance(0), Chance(0), Chance::percent(5)]);
    let mut at = 0.0;
    let mut message = 0;
    while plan.requests.len() < count as usize {
        at += random.exponential(mean as f64);
        let kind = KindId(random.below(paths.kinds.len() as u64) as u16);
        message += 1;
        for _ in 0..random.pick(&[1, 1, 4]) {
            let given_up = random.happens(abandoned).then(|| random.up_to(Duration::from_nanos(slowest * 4)));
            let address = random.below(addresses);
            plan.requests.push(PlaceRequest { at: Instant(at as u64), kind, address, message, abandoned: given_up });
        }
    }
    let span = at as u64 + slowest * 10;
    for _ in 0..random.below(4) {
        let from = random.below(span);
        let long = random.pick(&[slowest * 3, slowest * 30, plan.time_out.as_nanos() as u64 * 2]);
        let until = Instant(from + 1 + random.below(long));
        let what = match random.below(3) {
            0 => StationFaultKind::Slow(random.pick(&[10, 100])),
            1 => StationFaultKind::Stands,
            _ => StationFaultKind::Dead,
        };
        plan.station_faults
            .push((random.index(paths.resources.len()), StationFault { from: Instant(from), until, what }));
    }
}

/// Number of requests before a failure, during it and after it.
const PHASES: [u64; 3] = [300, 1_200, 1_500];

/// Draws a plan in which one device fails for a while, at a load that the other path can carry.
fn watched_plan(random: &mut Random, paths: &Paths, plan: &mut PlacePlan) {
    // The selector must know the machine, and have no small limits.
    let stall_ns_min = 200_000;
    plan.config = Config::default().stall_ns_min(stall_ns_min).probe_ns(200_000).probe_ns_max(5_000_000);
    plan.network.jitter = plan.network.jitter.min(50);
    let slowest = slowest(paths);
    let mean = slowest.max(2 * plan.network.network_ns.1);
    let kind = (0..paths.kinds.len() as u16).map(KindId).find(|kind| paths.of_kind(*kind).len() > 1);
    let kind = kind.unwrap_or(KindId(0));
    let mut at = 0.0;
    let mut starts = [0; 3];
    for (phase, count) in PHASES.into_iter().enumerate() {
        starts[phase] = at as u64;
        for _ in 0..count {
            at += random.exponential(mean as f64);
            let (message, address) = (plan.requests.len() as u64, random.bits());
            plan.requests.push(PlaceRequest { at: Instant(at as u64), kind, address, message, abandoned: None });
        }
    }
    // The device that the best path uses.
    let best = paths.of_kind(kind).iter().min_by_key(|path| path.traverse_ns);
    let only = |station: usize| {
        let using = |path: &&Path| path.hops.iter().any(|hop| usize::from(hop.resource.0) == station);
        paths.of_kind(kind).iter().filter(using).count() < paths.of_kind(kind).len()
    };
    let computes = |station: &usize| paths.resources[*station].node.is_some();
    let hops = best.into_iter().flat_map(|path| &path.hops).map(|hop| usize::from(hop.resource.0));
    let Some(station) = hops.filter(computes).find(|station| only(*station)) else { return };
    // Time of a path when the device is this many times slower.
    let slowed = |path: &Path, times: u64| {
        let there = path.hops.iter().filter(|hop| usize::from(hop.resource.0) == station);
        path.traverse_ns + there.map(|hop| hop.delay_ns * (times - 1)).sum::<u64>()
    };
    let others = paths.of_kind(kind).iter().filter(|path| slowed(path, 2) == path.traverse_ns);
    let other = others.map(|path| path.traverse_ns).min().unwrap_or(u64::MAX);
    // Slow enough that another path is clearly better.
    let slow = |times: u32| {
        let best = paths.of_kind(kind).iter().filter(|path| slowed(path, 2) > path.traverse_ns);
        let still = best.map(|path| slowed(path, u64::from(times))).min().unwrap_or(0);
        if still > other.saturating_mul(2) { StationFaultKind::Slow(times) } else { StationFaultKind::Dead }
    };
    let what = match random.below(4) {
        0 => slow(10),
        1 => slow(100),
        2 => StationFaultKind::Stands,
        _ => StationFaultKind::Dead,
    };
    let [_, from, until] = starts.map(Instant);
    plan.station_faults = vec![(station, StationFault { from, until, what })];
    plan.reaction_check = Some(ReactionCheck { station, from, until });
}

/// Longest time through idle hosts, in nanoseconds.
fn slowest(paths: &Paths) -> u64 {
    paths.paths.iter().map(|path| path.traverse_ns).max().unwrap_or(1)
}
