//! Comparison of the path selection model with the paper's figures.

use pathcall_models::place::testbeds::{self, Ycsb};
use pathcall_models::place::{
    Arrivals, LatencyLimit, PathPolicy, PlaceRun, StationFault, StationFaultKind, measure, sustained,
};
use pathcall_place::{PathId, SelectionStrategy};
use pathcall_wire::Instant;

const LEO: PathPolicy = PathPolicy::Strategy(SelectionStrategy::Leo);

/// LEO §V-C: at least 1.18 times the throughput of greedy strategies, and 0.97 of the exact optimum, which knows all
/// requests.
#[test]
fn leo_beats_greedy_and_approaches_optimum() {
    let setting = testbeds::kvs(Ycsb::C);
    let limit = LatencyLimit { median_ns: 45_000, bounds: (2e6, 9e6), messages: 6_000, steps: 7 };
    let at = |policy| sustained(&setting, policy, &limit, 1);
    let leo = at(LEO);
    for greedy in [SelectionStrategy::GreedyE2e, SelectionStrategy::GreedyIntra] {
        let theirs = at(PathPolicy::Strategy(greedy));
        assert!(leo >= 1.18 * theirs, "{greedy:?}: {leo} and {theirs}");
    }
    let optimum = at(PathPolicy::Optimum);
    assert!(leo >= 0.97 * optimum, "{leo} and {optimum}");
}

/// A device that becomes ten times slower falls to its new share within 100 requests.
#[test]
fn slow_device_is_left_within_100_requests() {
    let (setting, rate) = (testbeds::kvs(Ycsb::C), 2e6);
    let station = setting.paths.resources.iter().rposition(|resource| resource.name == "acc").expect("there is one");
    let fault = StationFault { from: Instant(2_000_000), until: Instant(u64::MAX), what: StationFaultKind::Slow(10) };
    let run = PlaceRun { faults: vec![(station, fault)], ..PlaceRun::new(LEO, Arrivals::Poisson(rate), 10_000, 1) };
    let settles = measure(&setting, &run).requests_until_settled(2_000_000, PathId(1));
    assert!(settles <= 100, "{settles}");
}
