//! Figures of NetClone at the paper's scale, in virtual time (NetClone §5.2 to §5.4, §5.6). About eight million calls.

use std::time::Duration;

use pathcall_models::Histogram;
use pathcall_models::clone::Scheme;
use pathcall_models::clone::{CloneResults, CloneRun, CloneTestbed, HEDGED_AFTER, Workload, measure};

/// Loads over which improvements are averaged.
const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Calls of one run.
const CALLS: f64 = 60_000.0;

const EXPONENTIAL: Workload = Workload::exponential(25, 0.01);
const BIMODAL: Workload = Workload::bimodal(25, 250, 0.01);
/// Workload with 10 % more jitter than [`BIMODAL`]. Under [`BIMODAL`], the p99 of random servers lies on a step of the
/// distribution: 256 or 381 µs by chance. With more jitter the p99 lies past the step in every run.
const PAST_THE_STEP: Workload = Workload::bimodal(25, 250, 0.011);

fn run(testbed: &CloneTestbed, scheme: Scheme, workload: Workload, load: f64) -> CloneResults {
    run_seed(testbed, scheme, workload, load, 1)
}

fn run_seed(testbed: &CloneTestbed, scheme: Scheme, workload: Workload, load: f64, seed: u64) -> CloneResults {
    let duration = Duration::from_secs_f64(CALLS / (testbed.capacity(&workload) * load));
    measure(testbed, &CloneRun { scheme, workload, load, hedged_after: HEDGED_AFTER, seed, duration })
}

fn p99(testbed: &CloneTestbed, scheme: Scheme, workload: Workload, load: f64) -> f64 {
    let mut latency = Histogram::default();
    (1..=2).for_each(|seed| latency.merge(&run_seed(testbed, scheme, workload, load, seed).latency));
    latency.quantile(0.99).as_secs_f64() * 1e6
}

/// Ratio of the 99th percentiles of random servers and clones, averaged over the loads.
fn improvement(testbed: &CloneTestbed, workload: Workload) -> f64 {
    let ratios = LOADS.map(|load| {
        let (random, clone) =
            (p99(testbed, Scheme::Random, workload, load), p99(testbed, Scheme::Clone, workload, load));
        println!("{workload:?} at {load}: {random:.0} µs, {clone:.0} µs, {:.2} ×", random / clone);
        random / clone
    });
    ratios.iter().sum::<f64>() / ratios.len() as f64
}

/// Share of the workers' capacity that is answered under overload.
fn ceiling(scheme: Scheme, workload: Workload) -> f64 {
    let testbed = CloneTestbed::default();
    let answered = run(&testbed, scheme, workload, 1.2).throughput / testbed.capacity(&workload);
    println!("{scheme} answers {answered:.3} of the most, {workload:?}");
    answered
}

#[test]
fn cloning_reduces_p99_of_exponential_times_by_third() {
    let improvement = improvement(&CloneTestbed::default(), EXPONENTIAL);
    assert!(improvement >= 1.48, "{improvement}");
}

#[test]
fn cloning_reduces_p99_of_bimodal_times_by_fifth() {
    let past = improvement(&CloneTestbed::default(), PAST_THE_STEP);
    assert!(past >= 1.27, "{past}");
}

#[test]
fn clones_do_not_reduce_throughput_ceiling() {
    for workload in [EXPONENTIAL, BIMODAL] {
        let random = ceiling(Scheme::Random, workload);
        assert!(ceiling(Scheme::Clone, workload) >= 0.98 * random);
        assert!(ceiling(Scheme::CloneShortest, workload) >= 0.98 * random);
        let twice = ceiling(Scheme::ClientClone, workload);
        assert!((0.45 * random..0.56 * random).contains(&twice), "{twice} of {random}");
        // LÆDGE has one thread for the frames of six servers; longer calls leave the thread more time.
        let coordinated = ceiling(Scheme::Coordinator, workload);
        let most = if workload == EXPONENTIAL { twice } else { 0.98 * random };
        assert!((0.1 * random..most).contains(&coordinated), "{coordinated} of {random}");
    }
}

#[test]
fn combined_scheme_matches_best_with_unequal_servers() {
    let testbed = CloneTestbed { workers: vec![15, 15, 15, 8, 8, 8], ..CloneTestbed::default() };
    for workload in [EXPONENTIAL, BIMODAL] {
        for load in [0.3, 0.5, 0.7, 0.9] {
            let of = |scheme| p99(&testbed, scheme, workload, load);
            let (both, clone, shortest) = (of(Scheme::CloneShortest), of(Scheme::Clone), of(Scheme::Shortest));
            println!("{workload:?} at {load}: both {both:.0} µs, clone {clone:.0}, shortest {shortest:.0}");
            // Tolerance for the bucket width of the histogram and for chance.
            assert!(both <= 1.05 * clone.min(shortest), "{load}: {both} of {clone}, {shortest}");
        }
    }
}

#[test]
fn switch_drops_second_answers() {
    let testbed = CloneTestbed::default();
    let unfiltered = CloneTestbed { filter: false, ..CloneTestbed::default() };
    let with = run(&testbed, Scheme::Clone, EXPONENTIAL, 0.5);
    assert!(with.filtered > 10_000 && (with.redundant as f64) < with.calls as f64 / 1_000.0, "{with:?}");
    let without = run(&unfiltered, Scheme::Clone, EXPONENTIAL, 0.5);
    assert!(without.redundant > 10_000, "{}", without.redundant);
}

#[test]
fn load_reduces_empty_queues() {
    let idle = |load| {
        let got = run(&CloneTestbed::default(), Scheme::Clone, EXPONENTIAL, load);
        got.idle as f64 / got.answers as f64
    };
    let (low, high) = (idle(0.1), idle(0.9));
    assert!(low > 0.99 && (0.05..0.9).contains(&high), "{low}, {high}");
}

#[test]
fn throughput_recovers_after_switch_restart() {
    let ms = Duration::from_millis;
    let testbed = CloneTestbed { outage: Some((ms(20), ms(30))), step: ms(1), ..CloneTestbed::default() };
    let run = CloneRun {
        scheme: Scheme::Clone,
        workload: EXPONENTIAL,
        load: 0.3,
        hedged_after: HEDGED_AFTER,
        seed: 1,
        duration: ms(50),
    };
    let timeline = measure(&testbed, &run).timeline;
    let mean = |steps: &[u64]| steps.iter().sum::<u64>() as f64 / steps.len() as f64;
    let (before, out, after) = (mean(&timeline[5..20]), mean(&timeline[21..30]), mean(&timeline[32..50]));
    assert!(out == 0.0 && (0.95..1.05).contains(&(after / before)), "{before}, {out}, {after}");
}

#[test]
fn clone_model_is_deterministic() {
    let run = |seed| run_seed(&CloneTestbed::default(), Scheme::CloneShortest, BIMODAL, 0.05, seed);
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}
