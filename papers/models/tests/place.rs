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

/// Late binding beside Leo on the paper's testbeds: throughput in a closed loop, and the median latency at 60 % of
/// Leo's throughput.
#[test]
fn late_binding_reaches_better_single_path_on_testbeds() {
    const LATE: PathPolicy = PathPolicy::Strategy(SelectionStrategy::Late);
    let single = [SelectionStrategy::AllCpu, SelectionStrategy::AllAcc].map(PathPolicy::Strategy);
    let mut slow = Vec::new();
    println!("{:<22} {:>9} {:>9} {:>9} {:>9}   median us: leo late", "messages/s", "all-cpu", "all-acc", "leo", "late");
    for (name, setting, window, fault) in [
        ("store, YCSB C", testbeds::kvs(Ycsb::C), 256, false),
        ("store, YCSB B", testbeds::kvs(Ycsb::B), 256, false),
        ("store, slower device", testbeds::kvs(Ycsb::C), 256, true),
        ("files", testbeds::dfs(8), 32, false),
        ("disk, 4 KiB", testbeds::ebs(8, false), 256, false),
        ("disk, 64 KiB", testbeds::ebs(8, true), 256, false),
        ("disk, slower device", testbeds::ebs(8, true), 256, true),
    ] {
        let station =
            setting.paths.resources.iter().rposition(|resource| resource.name == "acc").expect("there is one");
        let from = Instant(2_000_000);
        let fault = fault
            .then_some((station, StationFault { from, until: Instant(u64::MAX), what: StationFaultKind::Slow(10) }));
        let run = |policy, arrivals, messages| {
            let run = PlaceRun::new(policy, arrivals, messages, 1);
            measure(&setting, &PlaceRun { faults: fault.into_iter().collect(), ..run })
        };
        let rate = |policy| run(policy, Arrivals::Window(window), 20_000).throughput;
        let ([cpu, acc], leo, late) = (single.map(rate), rate(LEO), rate(LATE));
        let median =
            |policy| run(policy, Arrivals::Poisson(0.6 * leo), 10_000).latency.quantile(0.5).as_nanos() as f64 / 1e3;
        let (leo_us, late_us) = (median(LEO), median(LATE));
        let line = format!(
            "{name:<22} {cpu:>9.0} {acc:>9.0} {leo:>9.0} {late:>9.0}   {:.2} of leo, {:.2} of one; {leo_us:.1} {late_us:.1}",
            late / leo,
            late / cpu.max(acc)
        );
        println!("{line}");
        slow.extend((late < 0.97 * cpu.max(acc)).then_some(line));
    }
    assert!(slow.is_empty(), "slower than 0.97 of the better single path:\n{}", slow.join("\n"));
}
