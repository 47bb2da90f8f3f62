//! `function-table3`: mean latency of SNAT and of the gateway (CLIP Table III), in virtual time: the real controller's
//! placement, and queues of servers with the latency of the paper's software if all packets go there.

use anyhow::Result;
use pathcall_models::function::{MatchKind, PacketCosts};
use pathcall_netfn::place::PlacementStrategy;

use crate::function::placed;
use crate::function_table1::{ALPHA, ROOM};
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-table3",
    about: "simulated: latency of SNAT and routes, split and on servers alone",
    kind: Kind::Modelled,
    run,
};

/// Latency of the paper's software, its deviation, and the paper's own mean relative to the first.
const ROWS: [(&str, MatchKind, f64, f64, f64); 2] =
    [("SNAT", MatchKind::Exact, 22.71, 11.0, 1.0 - 0.675), ("FIB", MatchKind::Longest, 25.06, 15.06, 1.0 - 0.715)];

fn run(bench: &mut Bench) -> Result<()> {
    for (name, kind, mean, deviation, floor) in ROWS {
        let costs = PacketCosts::calibrated(mean, deviation);
        let of = |strategy| {
            let runs = placed(bench, kind, strategy, ALPHA, Some(ROOM));
            let latencies = (1..).zip(&runs).map(|(seed, run)| costs.latency(run.hits, seed));
            latencies.map(|latency| (latency.mean_us, latency.deviation_us)).unzip::<_, _, Vec<f64>, Vec<f64>>()
        };
        let ((ours, spread), (all, all_spread)) = (of(PlacementStrategy::Threshold), of(PlacementStrategy::None));
        let metric = |what| Metric::new(format!("{name}, threshold: {what}"), "on servers alone", "us", Better::Lower);
        bench.row(metric("mean latency").expect(floor), &ours, &all);
        bench.row(metric("its standard deviation"), &spread, &all_spread);
    }
    Ok(())
}
