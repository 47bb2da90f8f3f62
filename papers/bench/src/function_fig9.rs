//! `function-fig9`: throughput by strategy, longest prefix match (CLIP Fig. 9), in virtual time with the real controller.

use anyhow::Result;
use pathcall_models::function::MatchKind;

use crate::function::throughput;
use crate::harness::{Bench, Figure, Kind, Panels};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig9",
    about: "simulated: throughput by strategy and skew, longest prefix match",
    kind: Kind::Modelled,
    run,
};

const WORDS: &str = "The paper (§VII-B, Fig. 9): \"Unlike EM, LPM still leaves some flows to be handled by servers; \
    therefore, it does not achieve as high as the throughput gained at EM.\" Assumed: prefixes as long as public ones (59 % of \
    24 bits), two servers of six million packets a second each, 37.5 million are sent.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels = vec![throughput(bench, MatchKind::Longest, "longest prefix")];
    bench.show_panels(Panels { name: "throughput", words: WORDS, panels });
    Ok(())
}
