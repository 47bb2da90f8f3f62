//! Hosts and ranks as threads of this process, and what they came to.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::model::Preset;
use pathcall_place::reduce::Config as Group;
use pathcall_place::{Hardware, Role, Strategy};
use serde::Serialize;

use crate::member::{Across, Member, Setup};
use crate::ring::{Config, Ring};
use crate::sums::Sums;

/// How long ranks wait for their leader.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Begins the names of groups: no two runs of a network namespace at a time have the same.
    pub name: String,
    /// Hosts.
    pub hosts: usize,
    /// Those of them that this process has: all, or one.
    pub own: Vec<usize>,
    /// Ranks of each.
    pub ranks: usize,
    /// Values of each rank.
    pub values: usize,
    /// How often they are added up.
    pub rounds: usize,
    /// The leaders' device.
    pub acc: Option<Choice>,
    /// How leaders choose between it and the processor.
    pub strategy: Strategy,
    /// How hosts add up.
    pub way: Way,
}

/// How hosts add up with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Where each of them listens.
    Ring(Vec<SocketAddr>),
    /// Through the server there.
    Map(String),
}

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Bytes of a rank's values.
    pub bytes: usize,
    /// The median of rounds, for the slowest rank of each, in milliseconds.
    pub milliseconds: f64,
    /// Hash of the sums: the same at all ranks, or the run has failed.
    pub digest: String,
    /// Parts of hosts' own values that devices have added up.
    pub parts_on_device: u64,
    /// Parts that came from other hosts and were added up by processors, and by devices.
    pub parts: [u64; 2],
    /// Attempts that failed on either.
    pub failed: u64,
    /// Share of the values that an element has added up.
    pub element_share: Option<f64>,
}

/// What one rank came to.
#[derive(Debug, Default)]
struct Rank {
    digests: Vec<String>,
    times: Vec<Duration>,
    parts_on_device: u64,
    parts: [u64; 2],
    failed: u64,
    element_share: Option<f64>,
}

/// What a rank has in a place: less than 128, of magnitudes so different that the order of additions shows.
#[must_use]
pub fn value(host: usize, rank: usize, round: usize, at: usize) -> f32 {
    let mut bits = (host as u64) << 48 ^ (rank as u64) << 40 ^ (round as u64) << 32 ^ at as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let magnitude = 1_u64 << (bits >> 61);
    (bits as i32 as f32) / (1_u64 << 31) as f32 * magnitude as f32
}

/// Runs it.
///
/// # Errors
/// A rank fails, or ranks differ.
pub fn run(plan: &Plan) -> Result<Outcome> {
    let ranks: Result<Vec<Rank>> = thread::scope(|scope| {
        let all = plan.own.iter().flat_map(|host| (0..plan.ranks).map(move |rank| (*host, rank)));
        let threads: Vec<_> = all.map(|(host, rank)| scope.spawn(move || one(plan, host, rank))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let ends: Vec<Result<Rank>> = ends.collect();
        // All ends are awaited; of those that failed the first is told, which is a leader.
        ends.into_iter().collect()
    });
    let ranks = ranks?;
    let first = ranks.first().context("no ranks")?;
    ensure!(ranks.iter().all(|rank| rank.digests == first.digests), "ranks have different sums: {ranks:?}");
    let slowest = (0..plan.rounds).filter_map(|round| ranks.iter().map(|rank| rank.times[round]).max());
    let mut slowest: Vec<_> = slowest.collect();
    slowest.sort_unstable();
    let median = slowest.get(slowest.len() / 2).copied().unwrap_or_default();
    Ok(Outcome {
        bytes: 4 * plan.values,
        milliseconds: median.as_secs_f64() * 1e3,
        digest: first.digests.join("-"),
        parts_on_device: ranks.iter().map(|rank| rank.parts_on_device).sum(),
        parts: [0, 1].map(|role| ranks.iter().map(|rank| rank.parts[role]).sum()),
        failed: ranks.iter().map(|rank| rank.failed).sum(),
        element_share: ranks.iter().find_map(|rank| rank.element_share),
    })
}

fn one(plan: &Plan, host: usize, rank: usize) -> Result<Rank> {
    // Leaders may take long with others.
    let group = Group::new(format!("{}-{host}", plan.name), rank, plan.ranks).timeout(PATIENCE);
    let (device, others) = (plan.acc.is_some() && plan.ranks > 1, plan.hosts > 1);
    let setup = Setup { group, values: plan.values, device, others };
    let acc = plan.acc.as_ref().filter(|_| device && rank == 0).map(open).transpose()?;
    let across = if rank == 0 && others { across(plan, host)? } else { Across::Nobody };
    let mut member = Member::join(setup, acc, across)?;
    let mut done = Rank::default();
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
    match member.across() {
        Across::Nobody => {}
        Across::Ring(ring) => {
            let telemetry = ring.telemetry();
            for path in telemetry.paths.iter().filter(|path| path.kind == "ADD") {
                done.parts[usize::from(path.name.ends_with(Role::Acc.name()))] += path.state.done;
                done.failed += path.state.failed;
            }
        }
        Across::Map(sums) => done.element_share = sums.element_share(),
    }
    Ok(done)
}

fn across(plan: &Plan, host: usize) -> Result<Across> {
    match &plan.way {
        Way::Ring(hosts) => {
            ensure!(hosts.len() == plan.hosts, "{} addresses of {} hosts", hosts.len(), plan.hosts);
            let hardware = Hardware::preset(Preset::Direct);
            let config = Config::new(host, plan.hosts, hardware, plan.acc.as_ref(), plan.strategy)?;
            let next = hosts[(host + 1) % plan.hosts];
            Ok(Across::Ring(Box::new(Ring::begin(config, hosts[host], next)?)))
        }
        Way::Map(url) => Ok(Across::Map(Sums::connect(url, plan.hosts)?)),
    }
}
