//! `netclone-fig14`: as [`netclone_fig7`](crate::netclone_fig7), with low variability: jitter p = 0.001 × 15
//! (NetClone Fig. 14).

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind, Panels};
use crate::netclone::model::{LOW, bimodal, exp};
use crate::netclone_fig7::plot;

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig14",
    about: "simulated: latency over load, low variability",
    kind: Kind::Simulated,
    run,
};

const WORDS: &str = "The paper (§5.6.2, Fig. 14): \"NetClone can decrease tail latency even if the service-time variability \
    is low. The trend of experimental results is similar to Figure 7. One difference is that performance improvement \
    slightly decreases.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let panels = [exp(LOW), bimodal(LOW)].map(|workload| plot(bench, workload, None)).into();
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}
