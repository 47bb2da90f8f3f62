//! `function-fig8`: throughput by strategy, exact match (CLIP Fig. 8), in virtual time with the real controller.

use anyhow::Result;
use pathcall_models::function::MatchKind;

use crate::function::throughput;
use crate::harness::{Bench, Figure, Kind, Panels};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig8",
    about: "simulated: throughput by strategy and skew, exact match",
    kind: Kind::Modelled,
    run,
};

const WORDS: &str = "The paper (§VII-B, Fig. 8): \"Strategy-R helps improve performance under lower skewing conditions \
    […]. Strategies T and H push the switch (PS) to handle more traffic under highly skewed scenarios, thereby reducing the \
    processing burden on servers.\" Assumed: two servers of six million packets a second each, 37.5 million are sent.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels = vec![throughput(bench, MatchKind::Exact, "exact")];
    bench.show_panels(Panels { name: "throughput", words: WORDS, panels });
    Ok(())
}
