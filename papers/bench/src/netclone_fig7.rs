//! `netclone-fig7`: latency over load of four workloads (NetClone Fig. 7), in virtual time with the real switch program
//! and the real endpoints: six servers of 15 workers, jitter p = 0.01 × 15.

use anyhow::Result;
use pathcall_models::clone::Scheme;
use pathcall_models::clone::Workload;

use crate::harness::{Bench, Figure, Kind, Panel, Panels};
use crate::netclone::model::{HIGH, NamedWorkload, bimodal, exp, paper};
use crate::netclone::{CEILING, Case, Curves};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig7",
    about: "simulated: latency over load, four workloads, high variability",
    kind: Kind::Simulated,
    run,
};

const SCHEMES: [Scheme; 3] = [Scheme::Random, Scheme::ClientClone, Scheme::Clone];
const WORDS: &str = "The paper (§5.2, Fig. 7): \"C-Clone shows limited throughput in all figures due to its static request \
    cloning.\" NetClone \"achieves better latency than the baseline across almost all loads. The average improvement is \
    1.48× and 1.27× for Exp(25) and Bimodal(90%-25,10%-250).\" \"At low loads, NetClone experiences worse latency than \
    C-Clone.\" With 50 us, \"the performance improvement at high loads is negligible\".";

/// Jitter probability at which random's p99 is a call with jitter.
const PAST_THE_STEP: f64 = 0.011;
/// The paper's mean improvements of p99 over random, where given.
const WORKLOADS: [(NamedWorkload, Option<f64>); 4] = [
    (exp(HIGH), Some(1.48)),
    // Random's p99 lies on a step from 250 to 375 µs, because as many calls have jitter as the quantile leaves out. See
    // below.
    (bimodal(HIGH), None),
    (("Exp(50)", Workload::exponential(50, HIGH)), None),
    (("Bimodal(50, 500)", Workload::bimodal(50, 500, HIGH)), None),
];

fn run(bench: &mut Bench) -> Result<()> {
    let mut panels = Vec::new();
    for (workload, improvement) in WORKLOADS {
        panels.push(plot(bench, workload, improvement));
    }
    // With 10 % more jitter the p99 lies past the step in every run.
    let past = ("Bimodal(25, 250), jitter 0.011", Workload::bimodal(25, 250, PAST_THE_STEP));
    plot(bench, past, Some(1.27));
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

/// Plot of a workload, with its rows.
pub(crate) fn plot(bench: &mut Bench, (name, workload): NamedWorkload, improvement: Option<f64>) -> Panel {
    let case = Case { title: name.to_owned(), testbed: paper(), workload, schemes: &SCHEMES };
    let curves = Curves::of(bench, &case);
    curves.improvement(bench, Scheme::Clone, Scheme::Random, improvement);
    curves.ceiling(bench, Scheme::Clone, Scheme::Random, Some(CEILING));
    curves.ceiling(bench, Scheme::Clone, Scheme::ClientClone, None);
    curves.panel()
}
