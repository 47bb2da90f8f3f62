//! `clone-hedging`: hedges after a learned delay, and the policy that callers choose by themselves, beside random servers, the shorter queue of two, and hedges after the
//! best fixed delay that needs as few extra requests; in virtual time, with the paper's servers and workloads.

use std::time::Duration;

use anyhow::Result;
use pathcall_models::clone::{CloneRun, HEDGED_AFTER, Scheme, Workload};

use crate::harness::{Bench, Better, Figure, Kind, Metric, Panel, Panels, PlotLine};
use crate::netclone::model::{HIGH, NamedWorkload, Point, bimodal, exp, of_run, paper};

pub(crate) const FIGURE: Figure = Figure {
    name: "clone-hedging",
    about: "simulated: hedges after a learned delay, beside the best fixed delay, over load",
    kind: Kind::Simulated,
    run,
};

const LOADS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
const LOADS_QUICK: [f64; 1] = [0.5];
/// Fixed delays that are tried, in mean service times.
const DELAYS: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0];
const DELAYS_QUICK: [f64; 1] = [3.0];
const CALLS: usize = 40_000;
const CALLS_QUICK: usize = 4_000;
const SEEDS: u64 = 3;
/// Greatest load for which bars are set.
const BAR_LOAD: f64 = 0.7;
/// Most extra requests for each call.
const EXTRA_MAX: f64 = 0.1;
/// Most that the policy that callers choose may be slower than random servers.
const AUTOMATIC_MAX: f64 = 1.05;
const WORDS: &str = "A call of which the answer takes longer than those of nine in ten calls goes to another server as well; the \
    delay is learned. Random, and the shorter of two queues, send one request. Automatic: each caller chooses between these.";

fn run(bench: &mut Bench) -> Result<()> {
    let panels = [exp(HIGH), bimodal(HIGH)].into_iter().map(|workload| compare(bench, workload)).collect();
    bench.show_panels(Panels { name: "latency", words: WORDS, panels });
    Ok(())
}

/// Rows and plot of a workload.
fn compare(bench: &mut Bench, (name, workload): NamedWorkload) -> Panel {
    let lines = [Scheme::Random, Scheme::Shortest, Scheme::Hedging, Scheme::LearnedHedging, Scheme::Automatic];
    let mut lines = lines.map(|scheme| PlotLine { name: scheme.name().to_owned(), points: Vec::new() });
    for load in bench.size(&LOADS[..], &LOADS_QUICK) {
        bench.print_note(&format!("{name}, load {load}"));
        let seeds = bench.size(SEEDS, 1);
        let of = |scheme, hedged_after: f64| -> Vec<Point> {
            (1..=seeds).map(|seed| point(bench, workload, scheme, *load, hedged_after, seed)).collect()
        };
        let random = of(Scheme::Random, HEDGED_AFTER);
        let shortest = of(Scheme::Shortest, HEDGED_AFTER);
        let learned = of(Scheme::LearnedHedging, HEDGED_AFTER);
        let automatic = of(Scheme::Automatic, HEDGED_AFTER);
        let fixed = bench.size(&DELAYS[..], &DELAYS_QUICK).iter().map(|delay| of(Scheme::Hedging, *delay));
        let p99 = |points: &[Point]| points.iter().map(|point| point.p99_us).sum::<f64>();
        // The best of those with at most as many extra requests as are allowed, or that with the fewest.
        let excess =
            |points: &[Point]| (points.iter().map(|p| p.extra).sum::<f64>() / seeds as f64 - EXTRA_MAX).max(0.0);
        let rank = |points: &[Point]| (excess(points), p99(points));
        let fixed = fixed.min_by(|one, other| {
            let ((a, b), (c, d)) = (rank(one), rank(other));
            a.total_cmp(&c).then(b.total_cmp(&d))
        });
        let fixed = fixed.unwrap_or_default();
        for (line, points) in lines.iter_mut().zip([&random, &shortest, &fixed, &learned, &automatic]) {
            line.points.push((*load, points[0].p99_us));
        }
        rows(bench, &format!("{name}, load {load}"), *load <= BAR_LOAD, [&random, &shortest, &fixed, &learned]);
        automatic_rows(bench, &format!("{name}, load {load}, automatic"), &automatic, &random);
    }
    Panel { title: name.to_owned(), x: "load", y: "p99, us", logarithmic: true, lines: lines.into() }
}

/// Rows of one load. `bars`: the learned delay has to reach bars there.
fn rows(bench: &mut Bench, case: &str, bars: bool, [random, shortest, fixed, learned]: [&[Point]; 4]) {
    let of = |points: &[Point], of: fn(&Point) -> f64| points.iter().map(of).collect::<Vec<_>>();
    let mut row = |what: &str,
                   peer: &'static str,
                   unit: &'static str,
                   bar: Option<f64>,
                   get: fn(&Point) -> f64,
                   theirs: &[Point]| {
        let metric = Metric::new(format!("{case}: {what}"), peer, unit, Better::Lower);
        let metric = bar.filter(|_| bars).map_or(metric.clone(), |ratio| metric.expect(ratio));
        bench.row(metric, &of(learned, get), &of(theirs, get));
    };
    row("p99", "random", "us", Some(0.5), |point| point.p99_us, random);
    row("p50", "random", "us", Some(1.05), |point| point.p50_us, random);
    row("p99", "jsq", "us", None, |point| point.p99_us, shortest);
    row("p99", "hedging", "us", Some(1.0), |point| point.p99_us, fixed);
    row("extra requests of a call", "hedging", "requests", None, |point| point.extra, fixed);
    let most = Metric::new(format!("{case}: extra requests of a call"), "at most", "requests", Better::Lower);
    let most = if bars { most.expect(1.0) } else { most };
    bench.row(most, &of(learned, |point| point.extra), &vec![EXTRA_MAX; learned.len()]);
}

/// Rows of the policy that callers choose, which reach their bars at each load.
fn automatic_rows(bench: &mut Bench, case: &str, automatic: &[Point], random: &[Point]) {
    let of = |points: &[Point], of: fn(&Point) -> f64| points.iter().map(of).collect::<Vec<_>>();
    let mut quantile = |what: &str, get: fn(&Point) -> f64| {
        let metric = Metric::new(format!("{case}: {what}"), "random", "us", Better::Lower).expect(AUTOMATIC_MAX);
        bench.row(metric, &of(automatic, get), &of(random, get));
    };
    quantile("p99", |point| point.p99_us);
    quantile("p50", |point| point.p50_us);
    let most = Metric::new(format!("{case}: extra requests of a call"), "at most", "requests", Better::Lower);
    bench.row(most.expect(1.0), &of(automatic, |point| point.extra), &vec![EXTRA_MAX; automatic.len()]);
}

fn point(bench: &Bench, workload: Workload, scheme: Scheme, load: f64, hedged_after: f64, seed: u64) -> Point {
    let run = CloneRun { scheme, workload, load, hedged_after, seed, duration: Duration::ZERO };
    of_run(&paper(), run, bench.size(CALLS, CALLS_QUICK))
}
