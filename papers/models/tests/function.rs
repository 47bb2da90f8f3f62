//! What placement gains is what the paper saw.

use pathcall_function::place::Strategy;
use pathcall_models::function::{Costs, Match, Run, run as place};

/// CLIP §VII-B, and what is asked of us: hits within 5 % of the best choice, and far fewer reports than a heap's.
#[test]
fn a_threshold_finds_the_largest_flows_with_few_reports() {
    for alpha in [0.5, 0.9, 0.99] {
        let small = |strategy| Run {
            flows: 4_000,
            window: 60_000,
            windows: 10,
            sketch_log2: 14,
            ..Run::new(Match::Exact, strategy, alpha, 800, 1)
        };
        let (threshold, heap) = (place(&small(Strategy::Threshold)), place(&small(Strategy::Heap)));
        assert!(threshold.hits >= 0.95 * threshold.optimal, "α = {alpha}: {threshold:?}");
        assert!(threshold.reports <= 0.43 * heap.reports, "α = {alpha}: {threshold:?} {heap:?}");
        let random = place(&small(Strategy::Random));
        assert!(random.hits < threshold.hits, "α = {alpha}: {random:?}");
        assert_eq!(place(&small(Strategy::None)).hits, 0.0);
    }
}

#[test]
fn a_model_of_the_servers_queues_takes_as_long_as_the_papers() {
    let costs = Costs::calibrated(17.92, 5.94);
    let all = costs.latency(0.0, 7);
    assert!((all.mean_us - 17.92).abs() < 2.0 && (all.deviation_us - 5.94).abs() < 2.0, "{costs:?} {all:?}");
    assert!(costs.latency(0.9, 7).mean_us < 0.3 * all.mean_us, "{costs:?}");
}
