//! The shorter queue of two with old reports: wires as long as an execution, in virtual time (herding, NetClone §5.3.2).

use std::time::Duration;

use pathcall_models::Histogram;
use pathcall_models::clone::{CloneRun, CloneTestbed, FrameCosts, HEDGED_AFTER, KnownLoads, Scheme, Workload, measure};

/// Executions of 25 µs with jitter.
const WORKLOAD: Workload = Workload::exponential(25, 0.01);
/// Calls of one run.
const CALLS: f64 = 60_000.0;

/// Latency below which 99 % of the calls are, in µs, of four runs.
fn p99(element: bool, known_loads: KnownLoads, scheme: Scheme, wire: Duration, load: f64) -> f64 {
    let costs = FrameCosts { wire, ..FrameCosts::default() };
    let testbed = CloneTestbed { element, known_loads, costs, ..CloneTestbed::default() };
    let duration = Duration::from_secs_f64(CALLS / (testbed.capacity(&WORKLOAD) * load));
    let mut latency = Histogram::default();
    for seed in 1..=4 {
        let run = CloneRun { scheme, workload: WORKLOAD, load, hedged_after: HEDGED_AFTER, seed, duration };
        latency.merge(&measure(&testbed, &run).latency);
    }
    latency.quantile(0.99).as_secs_f64() * 1e6
}

/// Prints the table in docs/clone.md, and checks what it says of calls without an element.
#[test]
fn own_requests_improve_choice_by_old_reports() {
    println!(
        "element, wire, load: random; shorter queue by nothing, by reports, by reports and own requests, p99 in µs"
    );
    for element in [true, false] {
        for wire in [Duration::from_nanos(800), Duration::from_micros(25), Duration::from_micros(100)] {
            for load in [0.8, 0.9] {
                let random = p99(element, KnownLoads::Nothing, Scheme::Random, wire, load);
                let known = [KnownLoads::Nothing, KnownLoads::Reports, KnownLoads::ReportsAndRequests];
                let [nothing, reports, all] = known.map(|known| p99(element, known, Scheme::Shortest, wire, load));
                println!("{element}, {wire:?}, {load}: {random:.0}; {nothing:.0}, {reports:.0}, {all:.0}");
                if !element && load > 0.85 {
                    assert!(all <= 1.05 * reports, "{wire:?}: {all}, {reports}");
                    let pays = wire < Duration::from_micros(100);
                    assert!(!pays || all <= 0.9 * nothing, "{wire:?}: {all}, {nothing}");
                }
            }
        }
    }
}
