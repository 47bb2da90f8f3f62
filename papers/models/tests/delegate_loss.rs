//! Calls of three hops on links that lose: all complete, and few take much longer.

use std::time::Duration;

use pathcall_models::delegate::lossy::{Calls, Chance, Setting, play};

/// One in a hundred frames is lost on each link, in either direction: a message passes two.
const LOSS: Chance = Chance::percent(1);
/// As many times the time without loss as the slowest in a hundred may take.
const SLOWER: u32 = 3;
const CALLS: usize = 20_000;

fn setting(delay_us: u64, pause_us: u64, loss: Chance) -> Setting {
    let (delay, pause) = (Duration::from_micros(delay_us), Duration::from_micros(pause_us));
    Setting { hops: 3, calls: CALLS, pause, delay, loss, seed: 1 }
}

fn is_good(calls: &Calls, lossless: &Calls) -> bool {
    calls.failed == 0 && calls.complete == CALLS && calls.quantile(0.99) <= SLOWER * lossless.quantile(0.99)
}

/// Links of a rack, of a building, of a country, and pauses between calls: one after the other, a few and many at once.
const SETTINGS: [(u64, u64); 5] = [(50, 1_000), (50, 150), (50, 40), (500, 200), (5_000, 5_000)];

#[test]
fn calls_on_links_that_lose_complete_and_few_take_much_longer() {
    for (delay_us, pause_us) in SETTINGS {
        let lossless = play(setting(delay_us, pause_us, Chance(0)));
        assert_eq!((lossless.complete, lossless.lost, lossless.again), (CALLS, 0, 0));
        // Four messages, of two links each.
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
        assert!(is_good(&calls, &lossless), "{} failed, p99 {:?}", calls.failed, calls.quantile(0.99));
    }
}

#[test]
fn a_seed_gives_the_same_calls_each_time() {
    let few = Setting { calls: 500, ..setting(50, 40, LOSS) };
    assert_eq!(play(few), play(few));
    assert_ne!(play(few).took, play(Setting { seed: 2, ..few }).took);
}

/// Without what finds losses early, the bound is missed: each part of it shows.
#[cfg(feature = "mutants")]
#[test]
fn without_early_recovery_calls_take_longer() {
    use pathcall_wire::{Mutant, mutant};
    for &mistake in Mutant::FLOW {
        let missed = SETTINGS.into_iter().any(|(delay_us, pause_us)| {
            mutant::plant(None);
            let lossless = play(setting(delay_us, pause_us, Chance(0)));
            mutant::plant(Some(mistake));
            !is_good(&play(setting(delay_us, pause_us, LOSS)), &lossless)
        });
        mutant::plant(None);
        assert!(missed, "{mistake:?} is not noticed");
    }
}
