//! Report of a run: a line of JSON for `pathcall demo`, or some lines of text.

use std::time::Duration;

use apps_load::Latencies;
use apps_report::call_path::Lanes;
use pathcall::place::DeviceRole;
use serde::Serialize;

use crate::load::{CompletedCall, KINDS, Kind, RunOutcome};
use crate::server::RunningServer;

/// Interval of the counts over time.
const SLICE: Duration = Duration::from_millis(100);

/// Report of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Always "photos".
    pub app: &'static str,
    /// Path of the calls: "element", "software" or "plain gRPC".
    pub mode: &'static str,
    /// Calls of all kinds and callers.
    pub calls: u64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Unavailable calls that were repeated.
    pub again: u64,
    /// Results by method with calls.
    pub methods: Vec<Method>,
    /// Share of likes that the element added, 0 to 1; absent for plain gRPC.
    pub likes_in_element: Option<f64>,
    /// Share of the pool's calls that the element cloned, 0 to 1; absent for plain gRPC.
    pub cloned: Option<f64>,
    /// Thumbnails by processors and accelerators, as reported in replies.
    pub thumbnails: DeviceCounts,
    /// Photos of searches by device, as reported by the archive, if it is in this process.
    pub fetches: DeviceCounts,
    /// Seconds since the first call, with thumbnails by processors and by accelerators in the interval before.
    pub over_time: Vec<(f64, u64, u64)>,
    /// Hash of all answers to the planned calls.
    pub digest: String,
    /// Trace of one search.
    pub trace: Option<String>,
}

/// Counts by device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Pictures by the processor.
    pub cpu: u64,
    /// Pictures by the accelerator.
    pub acc: u64,
}

/// Results of one method.
#[derive(Debug, Serialize)]
pub struct Method {
    /// Name of the method.
    pub name: &'static str,
    /// Abilities that the method uses.
    pub ability: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// Calls per second while the method was called.
    pub calls_per_s: f64,
    /// Median and 99th percentile in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Latency in milliseconds, and share of slower calls.
    pub tail: Vec<(f64, f64)>,
}

impl Report {
    /// Creates the report of a run, from the callers' channels with Pathcall and the servers in this process.
    #[must_use]
    pub fn new(
        mode: &'static str,
        outcome: &RunOutcome,
        channels: &[pathcall::Channel],
        servers: &[RunningServer],
    ) -> Self {
        let RunOutcome { calls, took, digest } = outcome;
        let mut lanes = Lanes::default();
        channels.iter().for_each(|channel| lanes.count(channel));
        let pools = || channels.iter().map(|channel| channel.stats().pool);
        let (cloned, pooled) =
            (pools().map(|pool| pool.cloned).sum::<u64>(), pools().map(|pool| pool.calls).sum::<u64>());
        let roles = || calls.iter().filter_map(|call| DeviceRole::named(call.role.as_deref()?));
        let made_by = |is_acc: bool| roles().filter(|role| role.is_acc() == is_acc).count() as u64;
        Self {
            app: "photos",
            mode,
            calls: calls.len() as u64,
            calls_per_s: calls.len() as f64 / took.as_secs_f64(),
            again: calls.iter().map(|call| call.again).sum(),
            methods: KINDS.map(|kind| Method::of(kind, calls)).into_iter().filter(|method| method.calls > 0).collect(),
            likes_in_element: lanes.share(),
            cloned: (pooled > 0).then(|| cloned as f64 / pooled as f64),
            thumbnails: DeviceCounts { cpu: made_by(false), acc: made_by(true) },
            fetches: fetched(servers),
            over_time: over_time(calls),
            digest: digest.clone(),
            trace: None,
        }
    }

    /// Prints the report: JSON in one line, or text.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain fields"));
            return;
        }
        println!("photos ({}): {} calls, {:.0} a second, all as expected", self.mode, self.calls, self.calls_per_s);
        for Method { name, ability, calls, p50_us, p99_us, .. } in &self.methods {
            println!("  {name} ({ability}): {calls} calls, p50 {p50_us} us, p99 {p99_us} us");
        }
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        println!(
            "  likes added up in the element {}, reads cloned {}",
            share(self.likes_in_element),
            share(self.cloned)
        );
        let [DeviceCounts { cpu, acc }, fetches] = [self.thumbnails, self.fetches];
        println!("  thumbnails by processors {cpu}, by accelerators {acc}; made again {}", self.again);
        println!("  searches developed by the processor {}, by the accelerator {}", fetches.cpu, fetches.acc);
        if let Some(trace) = &self.trace {
            print!("{trace}");
        }
    }
}

impl Method {
    fn of(kind: Kind, calls: &[CompletedCall]) -> Self {
        let (name, ability) = match kind {
            Kind::Like => ("Like", "map"),
            Kind::Get => ("Get", "clone"),
            Kind::Thumbnail => ("Thumbnail", "clone and place"),
            Kind::Find => ("Find", "delegate and place"),
        };
        let (mut latencies, mut ended) = (Latencies::default(), Duration::ZERO);
        for call in calls.iter().filter(|call| call.kind == kind) {
            latencies.record(call.took);
            ended = ended.max(call.began + call.took);
        }
        let us = |share| latencies.quantile(share).as_micros() as u64;
        let shares = (0..=40).map(|step| 10_f64.powf(-f64::from(step) / 20.0));
        let tail = shares.map(|slower| (latencies.quantile(1.0 - slower).as_secs_f64() * 1e3, slower)).collect();
        let calls = latencies.count();
        let calls_per_s = calls as f64 / ended.as_secs_f64().max(f64::MIN_POSITIVE);
        Self { name, ability, calls, calls_per_s, p50_us: us(0.5), p99_us: us(0.99), tail }
    }
}

/// Photos of searches by device at these servers.
fn fetched(servers: &[RunningServer]) -> DeviceCounts {
    let ways = servers.iter().filter_map(|server| server.pathcall.as_ref()).flat_map(pathcall::Layer::place_stats);
    ways.filter(|way| way.request == "DEVELOP").fold(
        DeviceCounts::default(),
        |DeviceCounts { cpu, acc }, way| match way.role {
            DeviceRole::Cpu => DeviceCounts { cpu: cpu + way.state.done, acc },
            _ => DeviceCounts { cpu, acc: acc + way.state.done },
        },
    )
}

fn over_time(calls: &[CompletedCall]) -> Vec<(f64, u64, u64)> {
    let made = || calls.iter().filter_map(|call| Some((call.began + call.took, call.role.as_deref()?)));
    let slice = |at: Duration| (at.as_nanos() / SLICE.as_nanos()) as usize;
    let slices = made().map(|(at, _)| slice(at) + 1).max().unwrap_or(0);
    let mut counts = vec![(0, 0); slices];
    for (at, role) in made() {
        let (cpu, acc) = &mut counts[slice(at)];
        *if role == DeviceRole::Cpu.name() { cpu } else { acc } += 1;
    }
    let end = |at: usize| (at + 1) as f64 * SLICE.as_secs_f64();
    counts.into_iter().enumerate().map(|(at, (cpu, acc))| (end(at), cpu, acc)).collect()
}
