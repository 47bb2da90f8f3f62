//! `netclone-fig13`: empty queues as a sign of idle servers (NetClone Fig. 13), in virtual time: share of empty queues,
//! and gain of cloning at a load of 0.9, per run.

use anyhow::Result;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::netclone::model::{self, HIGH as JITTER, exp, paper};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig13",
    about: "simulated: empty queues over load, and ten runs at a load of 0.9",
    kind: Kind::Simulated,
    run,
};

const LOADS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
const HIGH: f64 = 0.9;
/// Number of runs in the paper.
const RUNS: u64 = 10;
const CALLS: usize = 40_000;
const CALLS_QUICK: usize = 2000;
const WORDS: &str = "The paper (§5.6.1, Fig. 13): \"The portion of empty queues decreases as the load grows. […] Even at low \
    loads, the queue may not be empty. […] Queues do not always build up even under very high loads.\" At 0.9, \"NetClone may \
    cause worse latency than the baseline occasionally. However, […] NetClone generally provides better latency than the \
    baseline even at very high loads.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let (testbed, (name, workload), calls) = (paper(), exp(JITTER), bench.size(CALLS, CALLS_QUICK));
    let at = |scheme, load, seed| model::at(&testbed, workload, scheme, load, calls, seed);
    let line = |scheme: Scheme| {
        let points = LOADS.iter().map(|load| (*load, at(scheme, *load, 1).empty * 100.0));
        PlotLine { name: scheme.name().to_owned(), points: points.collect() }
    };
    let empty = [Scheme::Random, Scheme::Clone].map(line);

    let runs = |scheme| (1..=RUNS).map(|seed| at(scheme, HIGH, seed).p99_us).collect::<Vec<f64>>();
    let (ours, random) = (runs(Scheme::Clone), runs(Scheme::Random));
    let case = |what: &str| format!("{name}, load {HIGH}, p99, {what} of {RUNS} runs");
    let metric = |what| Metric::new(case(what), Scheme::Random.name(), "us", Better::Lower);
    bench.row(metric("mean"), &[mean(&ours)], &[mean(&random)]);
    bench.row(metric("standard deviation"), &[deviation(&ours)], &[deviation(&random)]);
    let by_run = |name: &str, p99: &[f64]| {
        let points = p99.iter().enumerate().map(|(i, us)| (i as f64 + 1.0, *us)).collect();
        PlotLine { name: name.to_owned(), points }
    };
    let panels = vec![
        Panel {
            title: "answers that say that nobody waits".to_owned(),
            x: "load",
            y: "%",
            logarithmic: false,
            lines: empty.into(),
        },
        Panel {
            title: format!("p99 at a load of {HIGH}"),
            x: "run",
            y: "us",
            logarithmic: false,
            lines: vec![by_run(Scheme::Random.name(), &random), by_run(Scheme::Clone.name(), &ours)],
        },
    ];
    bench.show_panels(Panels { name: "idle", words: WORDS, panels });
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}
