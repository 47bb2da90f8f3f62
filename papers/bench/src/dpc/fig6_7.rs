//! `dpc-fig6.7`: latency of IS2 and IS7 over load, on twenty machines that are clients and servers, and their maximum
//! throughput (DPC Fig. 6.7).

use anyhow::Result;
use pathcall_models::delegate::cost::Cost;
use pathcall_models::delegate::load::{LoadResults, OpenLoad, called, delegated};
use pathcall_models::delegate::shapes::RequestNode;

use super::{SIMULATED_PEER, read};
use crate::harness::{Bench, Better, Curves, Figure, Kind, Metric, PlotLine};

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-fig6.7",
    about: "latency of IS2 and IS7 over load, simulated with the thesis' times",
    kind: Kind::Modelled,
    run,
};

const MACHINES: usize = 20;
const CALLS: usize = 4_000;
const CALLS_QUICK: usize = 500;
/// Overload in calls per second.
const FLOOD: f64 = 1e6;
/// Loads as shares of the maximum throughput of plain calls.
const LOADS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Loads that are rows.
const ROWS: [f64; 3] = [0.1, 0.5, 0.8];

type SimulatedCall = fn(&[RequestNode], &OpenLoad) -> LoadResults;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    for name in ["IS2", "IS7"] {
        let roots = read(name)?.roots;
        let simulate = |variant: SimulatedCall, rate| {
            let load = OpenLoad { hosts: MACHINES, calls, rate, seed: 1, cost: Cost::THESIS };
            variant(&roots, &load)
        };
        let most = simulate(called, FLOOD).rate;
        let metric = Metric::new(format!("{name}, at most"), SIMULATED_PEER, "calls/s", Better::Higher).expect(1.0);
        bench.compare([metric], || Ok([simulate(delegated, FLOOD).rate]), || Ok([simulate(called, FLOOD).rate]))?;
        for share in ROWS {
            let case = format!("{name}, {:.0} k calls/s", most * share / 1e3);
            let metric = Metric::new(case, SIMULATED_PEER, "us", Better::Lower).expect(1.0);
            let at = |variant| Ok([simulate(variant, most * share).median() as f64 / 1e3]);
            bench.compare([metric], || at(delegated), || at(called))?;
        }
        let line = |variant: &str, simulated_call: SimulatedCall| {
            let point = |share: &f64| {
                let loaded = simulate(simulated_call, most * share);
                (loaded.rate / 1e3, loaded.median() as f64 / 1e3)
            };
            PlotLine { name: variant.to_owned(), points: LOADS.iter().map(point).collect() }
        };
        let lines = vec![line("delegate", delegated), line("RPC", called)];
        let about = format!("{name}: median latency over calls completed a second, {MACHINES} machines, simulated");
        let (curve, x) = (if name == "IS2" { "IS2" } else { "IS7" }, "1000 calls/s");
        bench.show(Curves { name: curve, about, x, y: "us", lines });
    }
    Ok(())
}
