//! `netclone-fig15`: without the response filter (NetClone Fig. 15), in virtual time. A host spends time on every
//! received answer, useful or not.

use anyhow::Result;
use pathcall_models::clone::CloneTestbed;
use pathcall_models::clone::Scheme;

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panels};
use crate::netclone::model::{HIGH, exp, paper};
use crate::netclone::{Case, Curve, Curves};

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig15",
    about: "simulated: latency over load without the filter of answers",
    kind: Kind::Simulated,
    run,
};

const SCHEMES: [Scheme; 2] = [Scheme::Random, Scheme::Clone];
/// Maximum share of second answers received by callers.
const REDUNDANT: f64 = 0.001;
const WORDS: &str = "The paper (§5.6.3, Fig. 15): \"At low loads, redundant responses barely harm performance since the client \
    has enough capability to handle redundancy. However, as the system load grows, the latency gets worse. The performance is \
    even worse than the baseline at high loads if NetClone does not use response filtering.\"";

fn run(bench: &mut Bench) -> Result<()> {
    let (name, workload) = exp(HIGH);
    let case = |how: &str, filter| {
        let testbed = CloneTestbed { filter, ..paper() };
        Case { title: format!("{name}, {how}"), testbed, workload, schemes: &SCHEMES }
    };
    let (with, without) = (case("with the filter", true), case("without it", false));
    let (with, without) = (Curves::of(bench, &with), Curves::of(bench, &without));
    with.improvement(bench, Scheme::Clone, Scheme::Random, None);
    without.improvement(bench, Scheme::Clone, Scheme::Random, None);
    let redundant = |curves: &Curves<'_>| -> Vec<f64> {
        let most = |curve: &Curve| curve.points.iter().map(|point| point.redundant).fold(0.0, f64::max);
        curves.scheme(Scheme::Clone).iter().map(|curve| most(curve) * 100.0).collect()
    };
    let case = format!("redundant answers at callers, at the worst load (at most {} %)", REDUNDANT * 100.0);
    bench.row(Metric::new(case, "no filter", "%", Better::Lower), &redundant(&with), &redundant(&without));
    let cloned =
        |curves: &Curves<'_>| curves.panel_of("clones at servers, % of the calls", false, |point| point.extra * 100.0);
    let panels = vec![with.panel(), without.panel(), cloned(&with), cloned(&without)];
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}
