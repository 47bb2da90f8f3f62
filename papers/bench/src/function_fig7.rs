//! `function-fig7`: flows selected by each strategy (CLIP Fig. 7), in virtual time with the real controller.

use anyhow::Result;
use pathcall_models::function::MatchKind;

use crate::function::selection;
use crate::harness::{Bench, Figure, Kind, Panels};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-fig7",
    about: "simulated: flows chosen and reported, by strategy and skew",
    kind: Kind::Simulated,
    run,
};

const WORDS: &str = "The paper (§VII-B, Fig. 7): \"Strategy-T selects fewer flows than strategy-H and strategy-R under all flow size \
    distributions. Therefore, strategy-T reduces the bandwidth consumption of the channel by about 56.7% ~ 99.2% compared to \
    strategy-H.\" Here the table has room for 1 - α of 20,000 flows, the sketch has 2 × 32,768 columns, and flows that the \
    element works on itself are not reported again.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels =
        vec![selection(bench, MatchKind::Exact, "exact"), selection(bench, MatchKind::Longest, "longest prefix")];
    bench.show_panels(Panels { name: "selection", words: WORDS, panels });
    Ok(())
}
