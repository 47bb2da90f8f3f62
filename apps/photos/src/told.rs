//! What came of a run: a line of JSON for `pathcall demo`, or a few for a person.

use std::time::Duration;

use apps_load::Latencies;
use apps_report::way::Lanes;
use pathcall::place::Role;
use serde::Serialize;

use crate::load::{Called, KINDS, Kind, Outcome};
use crate::server::Running;

/// What is counted together where placed calls are shown over time.
const SLICE: Duration = Duration::from_millis(100);

/// A run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// "photos".
    pub app: &'static str,
    /// "element", "software" or "plain gRPC".
    pub mode: &'static str,
    /// Of all kinds and callers.
    pub calls: u64,
    /// The same, a second.
    pub calls_per_s: f64,
    /// Calls that found nobody, and were made again.
    pub again: u64,
    /// One for each kind.
    pub methods: Vec<Method>,
    /// Share of the likes that were added up in the element, 0 to 1; absent on the plain path.
    pub likes_in_element: Option<f64>,
    /// Share of the calls of the pool that the element cloned, 0 to 1; absent on the plain path.
    pub cloned: Option<f64>,
    /// Pictures that processors and accelerators made: thumbnails, as their replies say.
    pub thumbnails: Placed,
    /// And photos of searches, as the archive says, where it is in this process.
    pub fetches: Placed,
    /// Seconds since the first call; thumbnails by a processor and by an accelerator in the time before.
    pub over_time: Vec<(f64, u64, u64)>,
    /// Hash of all answers to the calls that each run makes.
    pub digest: String,
    /// Who did what for one of the searches.
    pub trace: Option<String>,
}

/// Who answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The processor.
    pub cpu: u64,
    /// The accelerator.
    pub acc: u64,
}

/// Calls of a kind.
#[derive(Debug, Serialize)]
pub struct Method {
    /// The method.
    pub name: &'static str,
    /// What its path does.
    pub ability: &'static str,
    /// Its calls.
    pub calls: u64,
    /// A second, as long as it was called.
    pub calls_per_s: f64,
    /// Median and 99th percentile, in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Milliseconds, and the share of the calls that took longer.
    pub tail: Vec<(f64, f64)>,
}

impl Report {
    /// Of a run by these callers' channels, if they were Pathcall's, and by these servers, if they are here.
    #[must_use]
    pub fn new(mode: &'static str, outcome: &Outcome, channels: &[pathcall::Channel], servers: &[Running]) -> Self {
        let Outcome { calls, took, digest } = outcome;
        let mut lanes = Lanes::default();
        channels.iter().for_each(|channel| lanes.count(channel));
        let pools = || channels.iter().map(|channel| channel.stats().pool);
        let (cloned, pooled) =
            (pools().map(|pool| pool.cloned).sum::<u64>(), pools().map(|pool| pool.calls).sum::<u64>());
        let made_by = |role: Role| calls.iter().filter(|call| call.role.as_deref() == Some(role.name())).count() as u64;
        Self {
            app: "photos",
            mode,
            calls: calls.len() as u64,
            calls_per_s: calls.len() as f64 / took.as_secs_f64(),
            again: calls.iter().map(|call| call.again).sum(),
            methods: KINDS.map(|kind| Method::of(kind, calls)).into(),
            likes_in_element: lanes.share(),
            cloned: (pooled > 0).then(|| cloned as f64 / pooled as f64),
            thumbnails: Placed { cpu: made_by(Role::Cpu), acc: made_by(Role::Acc) },
            fetches: fetched(servers),
            over_time: over_time(calls),
            digest: digest.clone(),
            trace: None,
        }
    }

    /// Prints it: JSON in one line, or for a person.
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
        let [Placed { cpu, acc }, fetches] = [self.thumbnails, self.fetches];
        println!("  thumbnails by processors {cpu}, by accelerators {acc}; made again {}", self.again);
        println!("  searches developed by the processor {}, by the accelerator {}", fetches.cpu, fetches.acc);
        if let Some(trace) = &self.trace {
            print!("{trace}");
        }
    }
}

impl Method {
    fn of(kind: Kind, calls: &[Called]) -> Self {
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

/// Requests of searches that were developed here.
fn fetched(servers: &[Running]) -> Placed {
    let ways = servers.iter().filter_map(|server| server.pathcall.as_ref()).flat_map(pathcall::Server::place_stats);
    ways.filter(|way| way.request == "DEVELOP").fold(Placed::default(), |Placed { cpu, acc }, way| match way.role {
        Role::Cpu => Placed { cpu: cpu + way.state.done, acc },
        Role::Acc => Placed { cpu, acc: acc + way.state.done },
    })
}

fn over_time(calls: &[Called]) -> Vec<(f64, u64, u64)> {
    let made = || calls.iter().filter_map(|call| Some((call.began + call.took, call.role.as_deref()?)));
    let slice = |at: Duration| (at.as_nanos() / SLICE.as_nanos()) as usize;
    let slices = made().map(|(at, _)| slice(at) + 1).max().unwrap_or(0);
    let mut counts = vec![(0, 0); slices];
    for (at, role) in made() {
        let (cpu, acc) = &mut counts[slice(at)];
        *if role == Role::Acc.name() { acc } else { cpu } += 1;
    }
    let end = |at: usize| (at + 1) as f64 * SLICE.as_secs_f64();
    counts.into_iter().enumerate().map(|(at, (cpu, acc))| (end(at), cpu, acc)).collect()
}
