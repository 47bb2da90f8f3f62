//! Common parts of the figures of *place* in virtual time: policies with the paper's names, latency over load, and
//! sustained throughput.
//!
//! ```text
//! PlaceSetup (hosts, application, traffic) ─► simulator with the real selector, per load and seed ─► rows, a Panel
//! ```

use pathcall_models::place::{
    Arrivals, LatencyLimit, PathPolicy, PlaceResults, PlaceRun, PlaceSetup, measure, sustained,
};
use pathcall_place::SelectionStrategy;

use crate::harness::{Bench, Better, Metric, Panel, PlotLine};

/// Runs per value.
const SEEDS: u64 = 3;
/// Messages per run.
pub(crate) const MESSAGES: usize = 30_000;
pub(crate) const MESSAGES_QUICK: usize = 2_000;
/// Loads of the latency curves, as shares of the capacity.
const LOADS: [f64; 12] = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97, 1.0];
const LOADS_QUICK: [f64; 2] = [0.2, 0.7];
/// Bisection steps of the sustained load.
const STEPS: u32 = 9;
const STEPS_QUICK: u32 = 4;

/// Policy with its name in the tables.
pub(crate) type NamedPolicy = (&'static str, PathPolicy);

pub(crate) const LEO: NamedPolicy = ("leo", PathPolicy::Strategy(SelectionStrategy::Leo));
pub(crate) const AS_PRINTED: NamedPolicy = ("leo as printed", PathPolicy::Strategy(SelectionStrategy::LeoAsPrinted));
pub(crate) const ALL_CPU: NamedPolicy = ("all on the CPU", PathPolicy::Strategy(SelectionStrategy::AllCpu));
pub(crate) const ALL_ACC: NamedPolicy = ("all on the accelerator", PathPolicy::Strategy(SelectionStrategy::AllAcc));
pub(crate) const GREEDY_E2E: NamedPolicy = ("Greedy-E2E", PathPolicy::Strategy(SelectionStrategy::GreedyE2e));
pub(crate) const GREEDY_INTRA: NamedPolicy = ("Greedy-Intra", PathPolicy::Strategy(SelectionStrategy::GreedyIntra));
pub(crate) const SHORTEST: NamedPolicy = ("shortest queue", PathPolicy::Strategy(SelectionStrategy::ShortestQueue));
pub(crate) const IN_TURN: NamedPolicy = ("in turn", PathPolicy::Strategy(SelectionStrategy::RoundRobin));
pub(crate) const MIGRATION: NamedPolicy = ("migration (iPipe)", PathPolicy::Strategy(SelectionStrategy::Migration));
/// Policy with knowledge of the whole sequence of requests.
pub(crate) const OPTIMUM: NamedPolicy = ("exact optimum", PathPolicy::Optimum);

/// Seeds of a figure.
pub(crate) fn seeds(bench: &Bench) -> std::ops::RangeInclusive<u64> {
    1..=bench.size(SEEDS, 1)
}

/// Single run.
pub(crate) fn run(
    bench: &Bench,
    setting: &PlaceSetup,
    policy: PathPolicy,
    arrivals: Arrivals,
    seed: u64,
) -> PlaceResults {
    measure(setting, &PlaceRun::new(policy, arrivals, bench.size(MESSAGES, MESSAGES_QUICK), seed))
}

/// Messages per second with a constant number of messages in progress, per seed.
pub(crate) fn throughput(bench: &Bench, setting: &PlaceSetup, (name, policy): NamedPolicy, window: usize) -> Vec<f64> {
    bench.print_note(name);
    seeds(bench).map(|seed| run(bench, setting, policy, Arrivals::Window(window), seed).throughput).collect()
}

/// Messages per second with a median latency within the limit, per seed.
pub(crate) fn within(
    bench: &Bench,
    setting: &PlaceSetup,
    (name, policy): NamedPolicy,
    median_us: f64,
    most: f64,
) -> Vec<f64> {
    bench.print_note(&format!("{name}: what is sustained"));
    let limit = LatencyLimit {
        median_ns: (median_us * 1e3) as u64,
        bounds: (most * 0.05, most * 1.1),
        messages: bench.size(MESSAGES, MESSAGES_QUICK),
        steps: bench.size(STEPS, STEPS_QUICK),
    };
    seeds(bench).map(|seed| sustained(setting, policy, &limit, seed)).collect()
}

/// Median latency over load, for the first seed.
pub(crate) fn latencies(
    bench: &Bench,
    setting: &PlaceSetup,
    title: &str,
    policies: &[NamedPolicy],
    most: f64,
) -> Panel {
    let loads = bench.size(&LOADS[..], &LOADS_QUICK);
    let line = |(name, policy): &NamedPolicy| {
        bench.print_note(&format!("{title}: {name}"));
        let point = |load: &f64| {
            let measured = run(bench, setting, *policy, Arrivals::Poisson(load * most), 1);
            (load * most / 1e6, measured.latency.quantile(0.5).as_secs_f64() * 1e6)
        };
        PlotLine { name: (*name).to_owned(), points: loads.iter().map(point).collect() }
    };
    let lines = policies.iter().map(line).collect();
    Panel { title: title.to_owned(), x: "made, millions a second", y: "median, us", logarithmic: true, lines }
}

/// Row of ours compared with a peer, with the expected ratio.
pub(crate) fn row(
    bench: &mut Bench,
    case: impl Into<String>,
    (ours, peer): (&[f64], &[f64]),
    peer_name: &str,
    unit: &'static str,
    expected: Option<f64>,
) {
    let metric = Metric::new(case, peer_name, unit, Better::Higher);
    bench.row(expected.map_or(metric.clone(), |ratio| metric.expect(ratio)), ours, peer);
}
