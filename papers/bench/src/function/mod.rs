//! Common parts of the figures of *function*: placement strategies in virtual time; packets, routes, and functions in
//! their parts; cost of a packet in each part, in memory (`packet_cost`) and between namespaces (`namespace_pair`);
//! round trips through a live SNAT (`live_snat`). Peers: functions in native C (`native`), a hand-written SNAT for XDP
//! (`hand_written`).

#[cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "fully used only with the feature xdp"))]
pub(crate) mod frames;
#[cfg(feature = "xdp")]
pub(crate) mod hand_written;
#[cfg(feature = "xdp")]
pub(crate) mod live_snat;
#[cfg(feature = "xdp")]
pub(crate) mod namespace_pair;
#[cfg(feature = "xdp")]
pub(crate) mod native;
#[cfg(feature = "xdp")]
pub(crate) mod packet_cost;
#[cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "fully used only with the feature xdp"))]
pub(crate) mod parts;
pub(crate) mod routes;

use std::time::Duration;

use pathcall_models::function::{MatchKind, PacketCosts, PlacementResults, PlacementRun, run};
use pathcall_netfn::place::PlacementStrategy;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::{Bench, Better, Metric, Panel, PlotLine};

/// Exponents of Zipf's law (CLIP §VII-B).
pub(crate) const ALPHAS: [f64; 4] = [0.5, 0.8, 0.9, 0.99];
const SEEDS: u64 = 3;
/// Packets per second of the paper's generator: three cores, 64 bytes.
const SENT: f64 = 37.5e6;
/// Maximum ratio of a threshold's reports to a heap's (§VII-B: 56.7 % to 99.2 % less).
const REPORTS: f64 = 0.433;
/// Minimum ratio of hits to the optimal choice.
const OPTIMAL: f64 = 0.95;

/// Processor time of this thread, which excludes other threads.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Number of flows at full size.
pub(crate) const FLOWS: usize = 20_000;

/// Entries that fit into the table: the paper's share 1 - α of the flows.
pub(crate) fn room(alpha: f64, flows: usize) -> usize {
    ((1.0 - alpha) * flows as f64).round() as usize
}

/// Results of a strategy, per seed.
pub(crate) fn placed(
    bench: &Bench,
    kind: MatchKind,
    strategy: PlacementStrategy,
    alpha: f64,
    share: Option<f64>,
) -> Vec<PlacementResults> {
    let flows = bench.size(FLOWS, 2_000);
    let room = share.map_or_else(|| room(alpha, flows), |share| (share * flows as f64) as usize);
    let of = |seed| {
        let base = PlacementRun::new(kind, strategy, alpha, room, seed);
        run(&PlacementRun {
            flows,
            window: bench.size(base.window, 20_000),
            windows: bench.size(base.windows, 6),
            ..base
        })
    };
    bench.print_note(&format!("{kind:?}, {strategy}, α = {alpha}"));
    (1..=bench.size(SEEDS, 1)).map(of).collect()
}

fn values_of(measured: &[PlacementResults], what: fn(&PlacementResults) -> f64) -> Vec<f64> {
    measured.iter().map(what).collect()
}

/// Rows of Fig. 7: selected flows and reports, and hits relative to the optimal choice.
pub(crate) fn selection(bench: &mut Bench, kind: MatchKind, title: &str) -> Panel {
    let strategies = [PlacementStrategy::Random, PlacementStrategy::Heap, PlacementStrategy::Threshold];
    let mut lines: Vec<PlotLine> =
        strategies.iter().map(|s| PlotLine { name: s.to_string(), points: Vec::new() }).collect();
    for alpha in ALPHAS {
        let all: Vec<_> = strategies.iter().map(|strategy| placed(bench, kind, *strategy, alpha, None)).collect();
        for (line, measured) in lines.iter_mut().zip(&all) {
            line.points.push((alpha, measured[0].selected * 100.0));
        }
        let (heap, threshold) = (&all[1], &all[2]);
        let reports = Metric::new(format!("{title}, α {alpha}: reports in a window"), "heap", "", Better::Lower);
        bench.row(
            reports.limit_of_peer(REPORTS),
            &values_of(threshold, |m| m.reports),
            &values_of(heap, |m| m.reports),
        );
        if kind == MatchKind::Exact {
            let hits = Metric::new(
                format!("{title}, α {alpha}: hits in the element"),
                "the largest flows",
                "%",
                Better::Higher,
            );
            let (ours, best) = (values_of(threshold, |m| m.hits * 100.0), values_of(threshold, |m| m.optimal * 100.0));
            bench.row(hits.expect(OPTIMAL), &ours, &best);
        }
    }
    Panel { title: title.to_owned(), x: "α", y: "flows in the element, %", logarithmic: false, lines }
}

/// Rows of Fig. 8 and 9: throughput, and the element's share of it.
pub(crate) fn throughput(bench: &mut Bench, kind: MatchKind, title: &str) -> Panel {
    let strategies =
        [PlacementStrategy::None, PlacementStrategy::Random, PlacementStrategy::Heap, PlacementStrategy::Threshold];
    let mut lines: Vec<PlotLine> =
        strategies.iter().map(|s| PlotLine { name: s.to_string(), points: Vec::new() }).collect();
    for alpha in ALPHAS {
        let all: Vec<_> = strategies.iter().map(|strategy| placed(bench, kind, *strategy, alpha, None)).collect();
        let rate = |measured: &[PlacementResults]| values_of(measured, |m| PacketCosts::throughput(m.hits, SENT) / 1e6);
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
