//! `function-table1`: mean latency by strategy (CLIP Table I), in virtual time: the real controller's choice, and queues
//! of servers that take as long as the paper's when all packets go there.

use anyhow::Result;
use pathcall_function::place::Strategy;
use pathcall_models::function::{Costs, Match};

use crate::function::placed;
use crate::harness::{Bench, Better, Figure, Metric};

pub(crate) const FIGURE: Figure =
    Figure { name: "function-table1", about: "simulated: latency of exact and longest-prefix match, by strategy", run };

pub(crate) const ALPHA: f64 = 0.9;
/// The table's room: at α = 0.9 the paper's threshold leaves a tenth of the packets to servers (Fig. 10).
pub(crate) const ROOM: f64 = 0.65;

/// The paper's rows: all by servers, its spread, and by threshold as a share of that.
pub(crate) const ROWS: [(&str, Match, f64, f64, f64); 2] =
    [("exact", Match::Exact, 17.92, 5.94, 1.0 - 0.847), ("longest prefix", Match::Longest, 18.92, 5.77, 1.0 - 0.483)];

fn run(bench: &mut Bench) -> Result<()> {
    for (title, kind, mean, deviation, floor) in ROWS {
        let costs = Costs::calibrated(mean, deviation);
        let all = latency(bench, &costs, kind, Strategy::None);
        for strategy in [Strategy::Random, Strategy::Threshold, Strategy::Heap] {
            let ours = latency(bench, &costs, kind, strategy);
            let metric = Metric::new(format!("{title}, {strategy}: mean latency"), "servers only", "us", Better::Lower);
            let metric = if strategy == Strategy::Threshold { metric.expect(floor) } else { metric };
            bench.row(metric, &ours, &all);
        }
    }
    Ok(())
}

/// Mean latencies, seed by seed, microseconds.
fn latency(bench: &Bench, costs: &Costs, kind: Match, strategy: Strategy) -> Vec<f64> {
    let measured = placed(bench, kind, strategy, ALPHA, Some(ROOM));
    (1..).zip(&measured).map(|(seed, one)| costs.latency(one.hits, seed).mean_us).collect()
}
