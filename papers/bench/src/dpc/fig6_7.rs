//! `dpc-fig6.7`: latency of IS2 and IS7 over load, on twenty machines that are clients and servers, and how much
//! they get done at most (DPC Fig. 6.7).

use anyhow::Result;
use pathcall_models::delegate::cost::Cost;
use pathcall_models::delegate::load::{Load, Loaded, called, delegated};
use pathcall_models::delegate::shapes::Node;

use super::{TWIN, read};
use crate::harness::{Bench, Better, Curves, Figure, Line, Metric};

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-fig6.7", about: "latency of IS2 and IS7 over load, simulated with the thesis' times", run };

const MACHINES: usize = 20;
const CALLS: usize = 4_000;
const CALLS_QUICK: usize = 500;
/// More calls a second than there can be.
const FLOOD: f64 = 1e6;
/// Shares of what plain calls can do at most.
const LOADS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Those of them that are rows.
const ROWS: [f64; 3] = [0.1, 0.5, 0.8];

type Play = fn(&[Node], &Load) -> Loaded;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    for name in ["IS2", "IS7"] {
        let roots = read(name)?.roots;
        let play = |way: Play, rate| {
            let load = Load { hosts: MACHINES, calls, rate, seed: 1, cost: Cost::THESIS };
            way(&roots, &load)
        };
        let most = play(called, FLOOD).rate;
        let metric = Metric::new(format!("{name}, at most"), TWIN, "calls/s", Better::Higher).expect(1.0);
        bench.compare([metric], || Ok([play(delegated, FLOOD).rate]), || Ok([play(called, FLOOD).rate]))?;
        for share in ROWS {
            let case = format!("{name}, {:.0} k calls/s", most * share / 1e3);
            let metric = Metric::new(case, TWIN, "us", Better::Lower).expect(1.0);
            let at = |way| Ok([play(way, most * share).median() as f64 / 1e3]);
            bench.compare([metric], || at(delegated), || at(called))?;
        }
        let line = |way: &str, play_way: Play| {
            let point = |share: &f64| {
                let loaded = play(play_way, most * share);
                (loaded.rate / 1e3, loaded.median() as f64 / 1e3)
            };
            Line { name: way.to_owned(), points: LOADS.iter().map(point).collect() }
        };
        let lines = vec![line("delegate", delegated), line("RPC", called)];
        let about = format!("{name}: median latency over calls completed a second, {MACHINES} machines, simulated");
        let (curve, x) = (if name == "IS2" { "IS2" } else { "IS7" }, "1000 calls/s");
        bench.show(Curves { name: curve, about, x, y: "us", lines });
    }
    Ok(())
}
