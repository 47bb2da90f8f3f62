//! `function-fig10`: latency of packets by strategy (CLIP Fig. 10), in virtual time: the real controller's placement,
//! and queues of servers as for [`table1`](crate::function_table1).

use anyhow::Result;
use pathcall_models::function::PacketCosts;
use pathcall_netfn::place::PlacementStrategy;

use crate::function::placed;
use crate::function_table1::{ALPHA, ROOM, ROWS};
use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig10",
    about: "simulated: latency's distribution by strategy",
    kind: Kind::Modelled,
    run,
};

const WORDS: &str = "The paper (§VII-B, Fig. 10): \"the latency for 90% of flows (for EM) and 37% of flows (for LPM) is below 8 μs \
    for strategy-T and strategy-H, which is a significant contribution to latency improvement. Furthermore, there is an \
    improvement in tail latency.\"";
/// Latency limit of the paper's shares of packets, in microseconds.
const BELOW_US: f64 = 8.0;
const SHARES: [f64; 2] = [90.0, 37.0];
const PACKETS: usize = 200_000;
const PACKETS_QUICK: usize = 20_000;
/// Points per line.
const POINTS: usize = 100;

fn run(bench: &mut Bench) -> Result<()> {
    let mut panels = Vec::new();
    for ((title, kind, mean, deviation, _), paper) in ROWS.into_iter().zip(SHARES) {
        let costs = PacketCosts::calibrated(mean, deviation);
        let mut lines = Vec::new();
        for strategy in PlacementStrategy::ALL {
            let runs = placed(bench, kind, strategy, ALPHA, Some(ROOM));
            let packets = bench.size(PACKETS, PACKETS_QUICK);
            let times = |(seed, hits): (u64, f64)| sorted(&costs, hits, seed, packets);
            let all: Vec<Vec<f64>> = (1..).zip(runs.iter().map(|run| run.hits)).map(times).collect();
            lines.push(PlotLine { name: strategy.to_string(), points: points(&all[0]) });
            if matches!(strategy, PlacementStrategy::Threshold | PlacementStrategy::Heap) {
                let below = |times: &Vec<f64>| {
                    times.partition_point(|time| *time < BELOW_US) as f64 / times.len() as f64 * 100.0
                };
                let shares: Vec<f64> = all.iter().map(below).collect();
                let name = format!("{title}, {strategy}: packets below {BELOW_US} us");
                bench.row(Metric::new(name, "the paper's", "%", Better::Higher).expect(1.0), &shares, &[paper]);
            }
        }
        let (x, y) = ("us", "packets, %");
        panels.push(Panel { title: title.to_owned(), x, y, logarithmic: false, lines });
    }
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

fn sorted(costs: &PacketCosts, hits: f64, seed: u64, packets: usize) -> Vec<f64> {
    let mut times: Vec<f64> = costs.times(hits, seed).take(packets).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Cumulative distribution of the times.
fn points(times: &[f64]) -> Vec<(f64, f64)> {
    let point = |i: usize| (times[i * (times.len() - 1) / POINTS], i as f64 * 100.0 / POINTS as f64);
    (0..=POINTS).map(point).collect()
}
