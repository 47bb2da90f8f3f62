//! `netrpc-fig12`: share of additions in the element by cache policy (NetRPC Fig. 12): ours in virtual time with the
//! real endpoints and program, other policies as models.

use anyhow::{Result, bail};
use pathcall_endpoint::map::server::EvictionPolicy;
use pathcall_models::caching::{PARTS, RegisterRule, Stream, hits};

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};

pub(crate) const FIGURE: Figure = Figure {
    name: "netrpc-fig12",
    about: "simulated: additions in the element, by which keys get registers",
    kind: Kind::Simulated,
    run,
};

const WORDS: &str = "The paper (§6.4, Fig. 12): \"NetRPC's periodic cache update outperforms other cache policies by \
    18% ~ 57% on cache hit ratio (CHR) and 22% ~ 44% on goodput.\" Here 2,000 words, of which 128 have registers; each \
    addition counts by itself, where the paper's switch needs all keys of a packet. N is the best of eleven.";

/// Exponents of Zipf's law.
const SKEWS: [f64; 4] = [0.6, 0.8, 1.0, 1.2];
/// Candidates for N, the number of uses after which a key gets a register.
const OFTEN: [u32; 11] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128];
/// Minimum ratio of hits to the other policies (§6.4: 18 % to 57 % more).
const MIN_HIT_RATIO: f64 = 1.18;

fn run(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(500, 50);
    let panels = [("the same words", 0), ("other words each 5 s", PARTS - 1)];
    let panels = panels.map(|(title, drifts)| panel(bench, title, |skew| Stream { skew, drifts, calls }));
    bench.show_panels(Panels { name: "hits", words: WORDS, panels: panels.into_iter().collect::<Result<_>>()? });
    Ok(())
}

/// Rows over skew, for one kind of stream.
fn panel(bench: &mut Bench, title: &'static str, stream: impl Fn(f64) -> Stream) -> Result<Panel> {
    let mut lines = ["periodic", "first come", "hash", "power of N"]
        .map(|name| PlotLine { name: name.to_owned(), points: Vec::new() });
    for skew in SKEWS {
        bench.print_note(&format!("{title}, skew {skew}"));
        let stream = stream(skew);
        let outcome = stream.play(Some(EvictionPolicy::default()));
        if let Some((at, failure)) = outcome.failure {
            bail!("{title}, skew {skew}: {failure}, at {} ns", at.0);
        }
        let often = OFTEN.map(|often| stream.hit_ratio_by_rule(RegisterRule::MoreThan(often)));
        let others = [
            stream.hit_ratio_by_rule(RegisterRule::MoreThan(0)),
            stream.hit_ratio_by_rule(RegisterRule::Hash),
            often.into_iter().fold(0.0, f64::max),
        ];
        let periodic = hits(&outcome) * 100.0;
        lines[0].points.push((skew, periodic));
        for (line, other) in lines[1..].iter_mut().zip(others) {
            line.points.push((skew, other * 100.0));
            let case = format!("{title}, skew {skew}: additions in the element");
            let metric = Metric::new(case, line.name.clone(), "%", Better::Higher).expect(MIN_HIT_RATIO);
            bench.row(metric, &[periodic], &[other * 100.0]);
        }
    }
    let y = "additions in the element, %";
    Ok(Panel { title: title.to_owned(), x: "skew", y, logarithmic: false, lines: lines.into() })
}
