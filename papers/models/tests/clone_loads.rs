//! The shorter queue of two with old reports: wires as long as an execution, in virtual time (RackSched §4.1: herding).

use std::time::Duration;

use pathcall_models::clone::{CloneRun, CloneTestbed, FrameCosts, HEDGED_AFTER, KnownLoads, Scheme, Workload, measure};

/// Executions of 25 µs with jitter.
const WORKLOAD: Workload = Workload::exponential(25, 0.01);
/// Calls of one run.
const CALLS: f64 = 60_000.0;

/// Latency below which 99 % of the calls are, in µs.
fn p99(element: bool, known_loads: KnownLoads, scheme: Scheme, wire: Duration, load: f64) -> f64 {
    let costs = FrameCosts { wire, ..FrameCosts::default() };
    let testbed = CloneTestbed { element, known_loads, costs, ..CloneTestbed::default() };
    let duration = Duration::from_secs_f64(CALLS / (testbed.capacity(&WORKLOAD) * load));
    let run = CloneRun { scheme, workload: WORKLOAD, load, hedged_after: HEDGED_AFTER, seed: 1, duration };
    measure(&testbed, &run).latency.quantile(0.99).as_secs_f64() * 1e6
}

/// Print of the table in docs/clone.md, and its claims.
#[test]
fn own_requests_make_shorter_queue_useful_with_old_reports() {
    println!(
        "element, wire, load: random; shorter queue by nothing, by reports, by reports and own requests, p99 in µs"
    );
    for element in [true, false] {
        for wire in [Duration::from_nanos(800), Duration::from_micros(25), Duration::from_micros(100)] {
            for load in [0.7, 0.8, 0.9] {
                let random = p99(element, KnownLoads::Nothing, Scheme::Random, wire, load);
                let known = [KnownLoads::Nothing, KnownLoads::Reports, KnownLoads::ReportsAndRequests];
                let [nothing, reports, all] = known.map(|known| p99(element, known, Scheme::Shortest, wire, load));
                println!("{element}, {wire:?}, {load}: {random:.0}; {nothing:.0}, {reports:.0}, {all:.0}");
            }
        }
    }
}
