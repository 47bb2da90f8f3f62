//! `leo-fig9`: median latency over load and sustained load of a key-value store (LEO Fig. 9), in virtual time with the
//! real selector, on off-path hosts.

use anyhow::Result;
use pathcall_models::place::testbeds::{self, Ycsb};

use crate::harness::{Bench, Figure, Kind, Panel, Panels};
use crate::leo::{ALL_ACC, ALL_CPU, LEO, latencies, row, within};

pub(crate) const FIGURE: Figure = Figure {
    name: "leo-fig9",
    about: "simulated: a key-value store's latency over load: each path chosen, or one of both",
    kind: Kind::Modelled,
    run,
};

/// Workloads, with the paper's gains over accelerator and CPU.
const WORKLOADS: [(&str, Ycsb, f64, f64); 2] = [("YCSB-C", Ycsb::C, 1.2, 2.0), ("YCSB-B", Ycsb::B, 1.2, 2.0)];
/// Limit of the median latency: four times the network delay, plus 1.5 times the time of two trips in the hosts.
pub(crate) const LIMIT_US: f64 = 45.0;
/// Combined capacity of CPU and accelerator.
pub(crate) const MOST: f64 = 8.5e6;
const WORDS: &str = "The paper (§V-B, Fig. 9): \"LEO delivers 1.2–2× higher sustainable throughput over its counterparts, […] \
    LEO exhibits stably low median latency with the increasing of the offered load.\" With PUTs, \"both LEO and its variant \
    deliver as much as 3× higher throughput than DrTM-KV, while LEO achieves the highest throughput.\" Assumed: look-ups of \
    0.2 us on the accelerator, of 2.3 us on each of eight cores.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels: Vec<Panel> = WORKLOADS.iter().map(|workload| plot(bench, workload)).collect();
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

fn plot(bench: &mut Bench, &(title, workload, over_acc, over_cpu): &(&str, Ycsb, f64, f64)) -> Panel {
    let setting = testbeds::kvs(workload);
    let [leo, acc, cpu] = [LEO, ALL_ACC, ALL_CPU].map(|policy| within(bench, &setting, policy, LIMIT_US, MOST));
    let case = format!("{title}: median within {LIMIT_US} us");
    row(bench, &*case, (&leo, &acc), ALL_ACC.0, "requests/s", Some(over_acc));
    row(bench, &*case, (&leo, &cpu), ALL_CPU.0, "requests/s", Some(over_cpu));
    latencies(bench, &setting, title, &[LEO, ALL_ACC, ALL_CPU], MOST)
}
