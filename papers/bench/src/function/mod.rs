//! What figures of *function* share: strategies of placement, in virtual time; packets, routes, the functions in their
//! parts; what a packet costs these, in memory (`work`) and between namespaces (`ground`); a SNAT written by hand.

#[cfg(feature = "xdp")]
pub(crate) mod by_hand;
#[cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "what is measured in the kernel uses all of it"))]
pub(crate) mod frames;
#[cfg(feature = "xdp")]
pub(crate) mod ground;
#[cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "what is measured in the kernel uses all of it"))]
pub(crate) mod parts;
pub(crate) mod routes;
#[cfg(feature = "xdp")]
pub(crate) mod work;

use std::time::Duration;

use pathcall_function::place::Strategy;
use pathcall_models::function::{Costs, Match, Measured, Run, run};
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Bench, Better, Line, Metric, Panel};

/// Exponents of Zipf's law (CLIP §VII-B).
pub(crate) const ALPHAS: [f64; 4] = [0.5, 0.8, 0.9, 0.99];
const SEEDS: u64 = 3;
/// The paper's generator: three cores, 64 bytes, packets a second.
const SENT: f64 = 37.5e6;
/// Reports of a threshold beside a heap's, at most (§VII-B: 56.7 % to 99.2 % less).
const REPORTS: f64 = 0.433;
/// Hits beside the best choice, at least.
const OPTIMAL: f64 = 0.95;

/// The processor's time that this thread has had: others may want the processor, too.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Flows, at full size.
pub(crate) const FLOWS: usize = 20_000;

/// The share of the flows that the table has room for: the paper's 1 - α.
pub(crate) fn room(alpha: f64, flows: usize) -> usize {
    ((1.0 - alpha) * flows as f64).round() as usize
}

/// What a strategy does, seed by seed.
pub(crate) fn placed(bench: &Bench, kind: Match, strategy: Strategy, alpha: f64, share: Option<f64>) -> Vec<Measured> {
    let flows = bench.size(FLOWS, 2_000);
    let room = share.map_or_else(|| room(alpha, flows), |share| (share * flows as f64) as usize);
    let of = |seed| {
        let base = Run::new(kind, strategy, alpha, room, seed);
        run(&Run { flows, window: bench.size(base.window, 20_000), windows: bench.size(base.windows, 6), ..base })
    };
    bench.says(&format!("{kind:?}, {strategy}, α = {alpha}"));
    (1..=bench.size(SEEDS, 1)).map(of).collect()
}

fn of(measured: &[Measured], what: fn(&Measured) -> f64) -> Vec<f64> {
    measured.iter().map(what).collect()
}

/// Rows of Fig. 7: flows that are chosen, and reports; and how near the hits are to the best choice.
pub(crate) fn selection(bench: &mut Bench, kind: Match, title: &str) -> Panel {
    let strategies = [Strategy::Random, Strategy::Heap, Strategy::Threshold];
    let mut lines: Vec<Line> = strategies.iter().map(|s| Line { name: s.to_string(), points: Vec::new() }).collect();
    for alpha in ALPHAS {
        let all: Vec<_> = strategies.iter().map(|strategy| placed(bench, kind, *strategy, alpha, None)).collect();
        for (line, measured) in lines.iter_mut().zip(&all) {
            line.points.push((alpha, measured[0].selected * 100.0));
        }
        let (heap, threshold) = (&all[1], &all[2]);
        let reports = Metric::new(format!("{title}, α {alpha}: reports in a window"), "heap", "", Better::Lower);
        bench.row(reports.limit_of_peer(REPORTS), &of(threshold, |m| m.reports), &of(heap, |m| m.reports));
        if kind == Match::Exact {
            let hits = Metric::new(
                format!("{title}, α {alpha}: hits in the element"),
                "the largest flows",
                "%",
                Better::Higher,
            );
            let (ours, best) = (of(threshold, |m| m.hits * 100.0), of(threshold, |m| m.optimal * 100.0));
            bench.row(hits.expect(OPTIMAL), &ours, &best);
        }
    }
    Panel { title: title.to_owned(), x: "α", y: "flows in the element, %", logarithmic: false, lines }
}

/// Rows of Fig. 8 and 9: throughput, and what of it the element bears.
pub(crate) fn throughput(bench: &mut Bench, kind: Match, title: &str) -> Panel {
    let strategies = [Strategy::None, Strategy::Random, Strategy::Heap, Strategy::Threshold];
    let mut lines: Vec<Line> = strategies.iter().map(|s| Line { name: s.to_string(), points: Vec::new() }).collect();
    for alpha in ALPHAS {
        let all: Vec<_> = strategies.iter().map(|strategy| placed(bench, kind, *strategy, alpha, None)).collect();
        let rate = |measured: &[Measured]| of(measured, |m| Costs::throughput(m.hits, SENT) / 1e6);
        for (line, measured) in lines.iter_mut().zip(&all) {
            line.points.push((alpha, rate(measured)[0]));
        }
        for (other, name) in [(0, "servers only"), (1, "random"), (2, "heap")] {
            let metric =
                Metric::new(format!("{title}, α {alpha}: throughput by threshold"), name, "Mpps", Better::Higher);
            bench.row(metric, &rate(&all[3]), &rate(&all[other]));
        }
    }
    Panel { title: title.to_owned(), x: "α", y: "packets, millions a second", logarithmic: false, lines }
}
