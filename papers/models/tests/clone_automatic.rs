//! Policy that callers choose by themselves, beside random servers, in virtual time.

use std::time::Duration;

use pathcall_endpoint::clone::{ClonePolicy, HedgeBudgetConfig};
use pathcall_models::Histogram;
use pathcall_models::clone::{CloneResults, CloneRun, CloneTestbed, HEDGED_AFTER, Scheme, Workload, measure};

const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
const EXPONENTIAL: Workload = Workload::exponential(25, 0.01);
const BIMODAL: Workload = Workload::bimodal(25, 250, 0.01);
/// Calls of a run; the first tenth is not measured.
const CALLS: f64 = 120_000.0;
/// Budget that allows clones.
const CLONES: HedgeBudgetConfig = HedgeBudgetConfig { share: 1.0, burst: 500.0, per_second: 100.0 };

/// What is compared of a run.
#[derive(Debug, Clone)]
struct Measured {
    p50_us: f64,
    p99_us: f64,
    /// Extra requests of a call.
    extra: f64,
    /// Policies at the end, and the share of the periods with each policy.
    chosen: Vec<ClonePolicy>,
    periods: [f64; 4],
}

fn run(testbed: &CloneTestbed, scheme: Scheme, workload: Workload, load: f64) -> Measured {
    // Behind a bottleneck, calls wait for each other, and the latencies of one run say less.
    let (seeds, calls) = if testbed.shared_slots > 0 { (3, 4.0 * CALLS) } else { (1, CALLS) };
    let duration = Duration::from_secs_f64(calls / (testbed.capacity(&workload) * load));
    let one = |seed| measure(testbed, &CloneRun { scheme, workload, load, hedged_after: HEDGED_AFTER, seed, duration });
    let (mut latency, runs) = (Histogram::default(), (1..=seeds).map(one).collect::<Vec<CloneResults>>());
    runs.iter().for_each(|results| latency.merge(&results.latency));
    let us = |share: f64| latency.quantile(share).as_secs_f64() * 1e6;
    let policies = || runs.iter().flat_map(|results| &results.policies);
    let periods = |at: usize| policies().map(|stats| stats.periods[at]).sum::<u64>() as f64;
    let all: f64 = (0..4).map(periods).sum();
    let sum = |of: fn(&CloneResults) -> u64| runs.iter().map(of).sum::<u64>() as f64;
    let measured = Measured {
        p50_us: us(0.5),
        p99_us: us(0.99),
        extra: sum(|results| results.extra) / sum(|results| results.calls),
        chosen: policies().map(|stats| stats.policy).collect(),
        periods: [0, 1, 2, 3].map(|at| periods(at) / all.max(1.0)),
    };
    println!("{scheme}, {workload:?} at {load}: {measured:.2?}");
    measured
}

/// Runs random servers and automatic callers, and checks that these are as fast. Returns both.
fn compare(testbed: &CloneTestbed, workload: Workload, load: f64) -> (Measured, Measured) {
    let random = run(testbed, Scheme::Random, workload, load);
    let automatic = run(testbed, Scheme::Automatic, workload, load);
    let as_fast = automatic.p50_us <= 1.05 * random.p50_us && automatic.p99_us <= 1.05 * random.p99_us;
    assert!(as_fast, "{workload:?} at {load}: {automatic:?}, random {random:?}");
    (random, automatic)
}

#[test]
fn automatic_is_as_fast_as_random_and_needs_few_extra_requests() {
    for workload in [EXPONENTIAL, BIMODAL] {
        for load in LOADS {
            let (random, automatic) = compare(&CloneTestbed::default(), workload, load);
            assert!(automatic.extra <= 0.1, "{workload:?} at {load}: {automatic:?}");
            let gains = workload == BIMODAL || (0.75..=0.85).contains(&load);
            assert!(gains || automatic.p99_us <= 0.8 * random.p99_us, "{workload:?} at {load}: {automatic:?}");
        }
    }
}

#[test]
fn automatic_clones_where_its_budget_allows_it() {
    let testbed = CloneTestbed { budget: CLONES, ..CloneTestbed::default() };
    for workload in [EXPONENTIAL, BIMODAL] {
        for load in LOADS {
            let (random, automatic) = compare(&testbed, workload, load);
            assert!(automatic.extra <= 1.0, "{automatic:?}");
            if workload == EXPONENTIAL && load <= 0.25 {
                assert!(automatic.p99_us <= 0.65 * random.p99_us, "{workload:?} at {load}: {automatic:?}");
                assert!(automatic.chosen.iter().all(|policy| *policy == ClonePolicy::Cloned), "{automatic:?}");
            }
        }
    }
}

/// Servers that wait for one disk, say: a second request takes time from all calls and is never sooner.
#[test]
fn automatic_returns_to_one_request_behind_a_shared_bottleneck() {
    let testbed = CloneTestbed { shared_slots: 1, budget: CLONES, ..CloneTestbed::default() };
    let workers: usize = testbed.workers.iter().sum();
    for busy in [0.3, 0.6] {
        let (_, automatic) = compare(&testbed, EXPONENTIAL, busy / workers as f64);
        // Hedges never win there, so there are few even where they are chosen.
        assert!(automatic.chosen.iter().all(|policy| *policy != ClonePolicy::Cloned), "{automatic:?}");
        assert!(automatic.periods[ClonePolicy::Cloned as usize] < 0.05 && automatic.extra < 0.03, "{automatic:?}");
    }
}

#[test]
fn automatic_avoids_a_slow_server() {
    let testbed = CloneTestbed { slow_server: 10, ..CloneTestbed::default() };
    for load in [0.1, 0.3] {
        let (random, automatic) = compare(&testbed, EXPONENTIAL, load);
        assert!(automatic.p99_us <= 0.6 * random.p99_us, "{automatic:?}, random {random:?}");
    }
}
