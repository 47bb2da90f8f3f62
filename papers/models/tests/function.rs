//! Comparison of the placement model with the paper's figures.

use pathcall_models::function::{MatchKind, PacketCosts, PlacementRun, run as place};
use pathcall_netfn::place::PlacementStrategy;

/// Targets from CLIP §VII-B: hits within 5 % of the optimal choice, and far fewer reports than a heap needs.
#[test]
fn threshold_selects_largest_flows_with_few_reports() {
    for alpha in [0.5, 0.9, 0.99] {
        let small = |strategy| PlacementRun {
            flows: 4_000,
            window: 60_000,
            windows: 10,
            sketch_log2: 14,
            ..PlacementRun::new(MatchKind::Exact, strategy, alpha, 800, 1)
        };
        let (threshold, heap) = (place(&small(PlacementStrategy::Threshold)), place(&small(PlacementStrategy::Heap)));
        assert!(threshold.hits >= 0.95 * threshold.optimal, "α = {alpha}: {threshold:?}");
        assert!(threshold.reports <= 0.43 * heap.reports, "α = {alpha}: {threshold:?} {heap:?}");
        let random = place(&small(PlacementStrategy::Random));
        assert!(random.hits < threshold.hits, "α = {alpha}: {random:?}");
        assert_eq!(place(&small(PlacementStrategy::None)).hits, 0.0);
    }
}

/// The calibration finds costs with the paper's mean and deviation (Table I).
#[test]
fn queue_model_is_calibrated_to_paper() {
    let costs = PacketCosts::calibrated(17.92, 5.94);
    let all = costs.latency(0.0, 7);
    assert!((all.mean_us - 17.92).abs() < 2.0 && (all.deviation_us - 5.94).abs() < 2.0, "{costs:?} {all:?}");
    assert!(costs.latency(0.9, 7).mean_us < 0.3 * all.mean_us, "{costs:?}");
}
