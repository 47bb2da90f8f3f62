//! Run of an all-reduce, with hosts and ranks as threads of this process, and its results.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::model::Preset;
use pathcall_place::reduce::Config as Group;
use pathcall_place::{DeviceRole, Hardware, SelectionStrategy};
use serde::Serialize;

use crate::member::{HostExchange, Member, MemberConfig};
use crate::ring::{Config, Ring};
use crate::sums::Sums;

/// Time for which ranks wait for their leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(600);

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// Prefix of the group names; unique among concurrent runs in a network namespace.
    pub name: String,
    /// Number of hosts.
    pub hosts: usize,
    /// Hosts in this process: all, or one.
    pub own: Vec<usize>,
    /// Ranks per host.
    pub ranks: usize,
    /// Values per rank.
    pub values: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Device of the leaders.
    pub acc: Option<DeviceChoice>,
    /// Path selection strategy of the leaders.
    pub strategy: SelectionStrategy,
    /// Exchange between hosts.
    pub exchange: ExchangeConfig,
}

/// Exchange between hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeConfig {
    /// Ring over these addresses.
    Ring(Vec<SocketAddr>),
    /// Sums through the server at this URL.
    Map(String),
}

/// Results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct AllReduceResults {
    /// Bytes of a rank's values.
    pub bytes: usize,
    /// Median round time in milliseconds; the time of a round is the time of its slowest rank.
    pub milliseconds: f64,
    /// Hash of the sums, which is equal at all ranks.
    pub digest: String,
    /// Parts within hosts that devices added up.
    pub parts_on_device: u64,
    /// Parts of other hosts that processors and devices added up.
    pub parts: [u64; 2],
    /// Failed attempts on processors and devices.
    pub failed: u64,
    /// Share of the values that an element added up.
    pub element_share: Option<f64>,
}

/// Results of one rank.
#[derive(Debug, Default)]
struct RankResults {
    digests: Vec<String>,
    times: Vec<Duration>,
    parts_on_device: u64,
    parts: [u64; 2],
    failed: u64,
    element_share: Option<f64>,
}

/// Input value: less than 128, of magnitudes so different that the order of additions affects the result.
#[must_use]
pub fn value(host: usize, rank: usize, round: usize, at: usize) -> f32 {
    let mut bits = (host as u64) << 48 ^ (rank as u64) << 40 ^ (round as u64) << 32 ^ at as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let magnitude = 1_u64 << (bits >> 61);
    (bits as i32 as f32) / (1_u64 << 31) as f32 * magnitude as f32
}

/// Runs an all-reduce.
///
/// # Errors
/// Returns an error if a rank fails, or if the sums of ranks differ.
pub fn run(plan: &RunConfig) -> Result<AllReduceResults> {
    let ranks: Result<Vec<RankResults>> = thread::scope(|scope| {
        let all = plan.own.iter().flat_map(|host| (0..plan.ranks).map(move |rank| (*host, rank)));
        let threads: Vec<_> = all.map(|(host, rank)| scope.spawn(move || run_rank(plan, host, rank))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let ends: Vec<Result<RankResults>> = ends.collect();
        // Waits for all ranks; returns the first error, which is a leader's.
        ends.into_iter().collect()
    });
    let ranks = ranks?;
    let first = ranks.first().context("no ranks")?;
    ensure!(ranks.iter().all(|rank| rank.digests == first.digests), "ranks have different sums: {ranks:?}");
    let slowest = (0..plan.rounds).filter_map(|round| ranks.iter().map(|rank| rank.times[round]).max());
    let mut slowest: Vec<_> = slowest.collect();
    slowest.sort_unstable();
    let median = slowest.get(slowest.len() / 2).copied().unwrap_or_default();
    Ok(AllReduceResults {
        bytes: 4 * plan.values,
        milliseconds: median.as_secs_f64() * 1e3,
        digest: first.digests.join("-"),
        parts_on_device: ranks.iter().map(|rank| rank.parts_on_device).sum(),
        parts: [0, 1].map(|role| ranks.iter().map(|rank| rank.parts[role]).sum()),
        failed: ranks.iter().map(|rank| rank.failed).sum(),
        element_share: ranks.iter().find_map(|rank| rank.element_share),
    })
}

fn run_rank(plan: &RunConfig, host: usize, rank: usize) -> Result<RankResults> {
    // Leaders may wait long for other hosts.
    let group = Group::new(format!("{}-{host}", plan.name), rank, plan.ranks).timeout(LEADER_TIMEOUT);
    let (device, others) = (plan.acc.is_some() && plan.ranks > 1, plan.hosts > 1);
    let setup = MemberConfig { group, values: plan.values, device, others };
    let acc = plan.acc.as_ref().filter(|_| device && rank == 0).map(open).transpose()?;
    let exchange = if rank == 0 && others { exchange(plan, host)? } else { HostExchange::NoExchange };
    let mut member = Member::join(setup, acc, exchange)?;
    let mut done = RankResults::default();
    for round in 0..plan.rounds {
        let values = member.values().iter_mut().enumerate();
        values.for_each(|(at, place)| *place = value(host, rank, round, at));
        let began = Instant::now();
        member.all_reduce().with_context(|| format!("host {host}, rank {rank}"))?;
        done.times.push(began.elapsed());
        let bytes: Vec<u8> = member.values().iter().flat_map(|value| value.to_le_bytes()).collect();
        done.digests.push(apps_report::digest([&bytes[..]].into_iter()));
    }
    done.parts_on_device = member.parts_on_device();
    match member.exchange() {
        HostExchange::NoExchange => {}
        HostExchange::Ring(ring) => {
            let telemetry = ring.telemetry();
            for path in telemetry.paths.iter().filter(|path| path.kind == "ADD") {
                done.parts[usize::from(!path.name.ends_with(DeviceRole::Cpu.name()))] += path.state.done;
                done.failed += path.state.failed;
            }
        }
        HostExchange::Map(sums) => done.element_share = sums.element_share(),
    }
    Ok(done)
}

fn exchange(plan: &RunConfig, host: usize) -> Result<HostExchange> {
    match &plan.exchange {
        ExchangeConfig::Ring(hosts) => {
            ensure!(hosts.len() == plan.hosts, "{} addresses of {} hosts", hosts.len(), plan.hosts);
            let hardware = Hardware::preset(Preset::Direct);
            let config = Config::new(host, plan.hosts, hardware, plan.acc.as_ref(), plan.strategy)?;
            let next = hosts[(host + 1) % plan.hosts];
            Ok(HostExchange::Ring(Box::new(Ring::begin(config, hosts[host], next)?)))
        }
        ExchangeConfig::Map(url) => Ok(HostExchange::Map(Sums::connect(url, plan.hosts)?)),
    }
}
