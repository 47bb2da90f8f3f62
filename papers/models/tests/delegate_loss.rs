//! Calls of three hops on lossy links: all complete, and few take much longer.

use std::time::Duration;

use pathcall_models::delegate::lossy::{Chance, LossyResults, LossySetup, play};

/// Loss of each link, in either direction. A message passes two links.
const LOSS: Chance = Chance::percent(1);
/// Maximum ratio of the 99th percentile to the latency without loss.
const P99_RATIO_MAX: u32 = 3;
const CALLS: usize = 20_000;

fn setting(delay_us: u64, pause_us: u64, loss: Chance) -> LossySetup {
    let (delay, pause) = (Duration::from_micros(delay_us), Duration::from_micros(pause_us));
    LossySetup { hops: 3, calls: CALLS, pause, delay, loss, seed: 1 }
}

fn is_within_bound(calls: &LossyResults, lossless: &LossyResults) -> bool {
    calls.failed == 0 && calls.complete == CALLS && calls.quantile(0.99) <= P99_RATIO_MAX * lossless.quantile(0.99)
}

/// Links of a rack, a building and a country in µs, each with the pause between calls: one call at a time, several, and
/// many at once.
const SETTINGS: [(u64, u64); 5] = [(50, 1_000), (50, 150), (50, 40), (500, 200), (5_000, 5_000)];

#[test]
fn calls_on_lossy_links_complete_with_bounded_p99() {
    for (delay_us, pause_us) in SETTINGS {
        let lossless = play(setting(delay_us, pause_us, Chance(0)));
        assert_eq!((lossless.complete, lossless.lost, lossless.retransmitted), (CALLS, 0, 0));
        // Four messages, two links each.
        assert_eq!(lossless.quantile(0.99), Duration::from_micros(delay_us) * 8);
        let calls = play(setting(delay_us, pause_us, LOSS));
        let lost = calls.lost as f64 / calls.frames as f64;
        println!(
            "links of {delay_us} us, a call each {pause_us} us: {lost:.4} lost, p50 {:?}, p99 {:?}, p99.9 {:?}, {:?} without",
            calls.quantile(0.5),
            calls.quantile(0.99),
            calls.quantile(0.999),
            lossless.quantile(0.99),
        );
        assert!((0.018..0.022).contains(&lost), "{lost}");
        assert!(is_within_bound(&calls, &lossless), "{} failed, p99 {:?}", calls.failed, calls.quantile(0.99));
    }
}

#[test]
fn seed_determines_lossy_calls() {
    let few = LossySetup { calls: 500, ..setting(50, 40, LOSS) };
    assert_eq!(play(few), play(few));
    assert_ne!(play(few).latencies, play(LossySetup { seed: 2, ..few }).latencies);
}

/// Without early loss detection the latency exceeds the bound: each mutant is detected.
#[cfg(feature = "mutants")]
#[test]
fn mutants_without_early_recovery_exceed_bound() {
    use pathcall_wire::{Mutant, mutant};
    for &mistake in Mutant::FLOW {
        let missed = SETTINGS.into_iter().any(|(delay_us, pause_us)| {
            mutant::plant(None);
            let lossless = play(setting(delay_us, pause_us, Chance(0)));
            mutant::plant(Some(mistake));
            !is_within_bound(&play(setting(delay_us, pause_us, LOSS)), &lossless)
        });
        mutant::plant(None);
        assert!(missed, "mutant {mistake:?} is not detected");
    }
}
