//! `function-table1`: mean latency by strategy (CLIP Table I), in virtual time: the real controller's placement, and
//! queues of servers with the paper's latency if all packets go there.

use anyhow::Result;
use pathcall_models::function::{MatchKind, PacketCosts};
use pathcall_netfn::place::PlacementStrategy;

use crate::function::placed;
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-table1",
    about: "simulated: latency of exact and longest-prefix match, by strategy",
    kind: Kind::Modelled,
    run,
};

pub(crate) const ALPHA: f64 = 0.9;
/// Room of the table: at α = 0.9 the paper's threshold leaves a tenth of the packets to servers (Fig. 10).
pub(crate) const ROOM: f64 = 0.65;

/// The paper's rows: latency through servers, its deviation, and latency by threshold as a share of the first.
pub(crate) const ROWS: [(&str, MatchKind, f64, f64, f64); 2] = [
    ("exact", MatchKind::Exact, 17.92, 5.94, 1.0 - 0.847),
    ("longest prefix", MatchKind::Longest, 18.92, 5.77, 1.0 - 0.483),
];

fn run(bench: &mut Bench) -> Result<()> {
    for (title, kind, mean, deviation, floor) in ROWS {
        let costs = PacketCosts::calibrated(mean, deviation);
        let all = latency(bench, &costs, kind, PlacementStrategy::None);
        for strategy in [PlacementStrategy::Random, PlacementStrategy::Threshold, PlacementStrategy::Heap] {
            let ours = latency(bench, &costs, kind, strategy);
            let metric = Metric::new(format!("{title}, {strategy}: mean latency"), "servers only", "us", Better::Lower);
            let metric = if strategy == PlacementStrategy::Threshold { metric.expect(floor) } else { metric };
            bench.row(metric, &ours, &all);
        }
    }
    Ok(())
}

/// Mean latencies per seed, microseconds.
fn latency(bench: &Bench, costs: &PacketCosts, kind: MatchKind, strategy: PlacementStrategy) -> Vec<f64> {
    let measured = placed(bench, kind, strategy, ALPHA, Some(ROOM));
    (1..).zip(&measured).map(|(seed, one)| costs.latency(one.hits, seed).mean_us).collect()
}
