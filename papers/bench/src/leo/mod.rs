//! What figures of *place* share that are made in virtual time: policies with the paper's names, latency over load, and
//! what is sustained.
//!
//! ```text
//! Setting (hosts, application, traffic) ─► simulator with the real selector, load by load, seed by seed ─► rows, a Panel
//! ```

use pathcall_models::place::{Arrivals, Limit, Measured, Policy, Run, Setting, measure, sustained};
use pathcall_place::Strategy;

use crate::harness::{Bench, Better, Line, Metric, Panel};

/// Runs of each value.
const SEEDS: u64 = 3;
/// Messages of a run.
pub(crate) const MESSAGES: usize = 30_000;
pub(crate) const MESSAGES_QUICK: usize = 2_000;
/// Loads at which latency is taken, of what the hosts bear.
const LOADS: [f64; 12] = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97, 1.0];
const LOADS_QUICK: [f64; 2] = [0.2, 0.7];
/// Halvings of the interval in which the sustained load is.
const STEPS: u32 = 9;
const STEPS_QUICK: u32 = 4;

/// Who chooses, with a name in the tables.
pub(crate) type Named = (&'static str, Policy);

pub(crate) const LEO: Named = ("leo", Policy::Strategy(Strategy::Leo));
pub(crate) const AS_PRINTED: Named = ("leo as printed", Policy::Strategy(Strategy::LeoAsPrinted));
pub(crate) const ALL_CPU: Named = ("all on the CPU", Policy::Strategy(Strategy::AllCpu));
pub(crate) const ALL_ACC: Named = ("all on the accelerator", Policy::Strategy(Strategy::AllAcc));
pub(crate) const GREEDY_E2E: Named = ("Greedy-E2E", Policy::Strategy(Strategy::GreedyE2e));
pub(crate) const GREEDY_INTRA: Named = ("Greedy-Intra", Policy::Strategy(Strategy::GreedyIntra));
pub(crate) const SHORTEST: Named = ("shortest queue", Policy::Strategy(Strategy::ShortestQueue));
pub(crate) const IN_TURN: Named = ("in turn", Policy::Strategy(Strategy::RoundRobin));
pub(crate) const MIGRATION: Named = ("migration (iPipe)", Policy::Strategy(Strategy::Migration));
/// Knows the whole sequence of requests in advance.
pub(crate) const OPTIMUM: Named = ("exact optimum", Policy::Known);

/// Seeds of a figure.
pub(crate) fn seeds(bench: &Bench) -> std::ops::RangeInclusive<u64> {
    1..=bench.size(SEEDS, 1)
}

/// One run.
pub(crate) fn run(bench: &Bench, setting: &Setting, policy: Policy, arrivals: Arrivals, seed: u64) -> Measured {
    measure(setting, &Run::new(policy, arrivals, bench.size(MESSAGES, MESSAGES_QUICK), seed))
}

/// Messages a second while so many are always under way, seed by seed.
pub(crate) fn throughput(bench: &Bench, setting: &Setting, (name, policy): Named, window: usize) -> Vec<f64> {
    bench.says(name);
    seeds(bench).map(|seed| run(bench, setting, policy, Arrivals::Window(window), seed).throughput).collect()
}

/// Messages a second that are answered in the limit, half of them, seed by seed.
pub(crate) fn within(bench: &Bench, setting: &Setting, (name, policy): Named, median_us: f64, most: f64) -> Vec<f64> {
    bench.says(&format!("{name}: what is sustained"));
    let limit = Limit {
        median_ns: (median_us * 1e3) as u64,
        between: (most * 0.05, most * 1.1),
        messages: bench.size(MESSAGES, MESSAGES_QUICK),
        steps: bench.size(STEPS, STEPS_QUICK),
    };
    seeds(bench).map(|seed| sustained(setting, policy, &limit, seed)).collect()
}

/// Median latency over load, of the first seed.
pub(crate) fn latencies(bench: &Bench, setting: &Setting, title: &str, policies: &[Named], most: f64) -> Panel {
    let loads = bench.size(&LOADS[..], &LOADS_QUICK);
    let line = |(name, policy): &Named| {
        bench.says(&format!("{title}: {name}"));
        let point = |load: &f64| {
            let measured = run(bench, setting, *policy, Arrivals::Poisson(load * most), 1);
            (load * most / 1e6, measured.latency.quantile(0.5).as_secs_f64() * 1e6)
        };
        Line { name: (*name).to_owned(), points: loads.iter().map(point).collect() }
    };
    let lines = policies.iter().map(line).collect();
    Panel { title: title.to_owned(), x: "made, millions a second", y: "median, us", logarithmic: true, lines }
}

/// A row: ours beside a peer's, and the ratio meant.
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
