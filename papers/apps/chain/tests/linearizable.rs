//! Faulty networks from seeds: what clients see is linearizable, and mistakes are found.

use chain::replica::Mutant;
use chain::sim::{Ran, run};

const SEEDS: u64 = 2_000;

#[test]
fn histories_are_linearizable_whatever_crashes() {
    let mut all = Ran::default();
    for seed in 0..SEEDS {
        let ran = run(seed, None).unwrap_or_else(|history| panic!("{history}"));
        all = Ran {
            ended: all.ended + ran.ended,
            given_up: all.given_up + ran.given_up,
            crashes: all.crashes + ran.crashes,
            views: all.views + ran.views - 1,
            recalls: all.recalls + ran.recalls,
        };
    }
    println!("{all:?}");
    // The runs are what they are meant to be: most goes on, and what can happen does.
    assert!(all.given_up * 100 < all.ended, "{all:?}");
    assert!(all.crashes > 1_000 && all.views > 1_000 && all.recalls > 1_000, "{all:?}");
}

#[test]
fn a_seed_gives_one_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, None), run(seed, None));
    }
}

#[test]
fn planted_mistakes_are_found() {
    for mutant in [Mutant::Again, Mutant::Gaps, Mutant::AnyView, Mutant::NoLease, Mutant::AnyReads, Mutant::Early] {
        let found = (0..SEEDS).find(|seed| run(*seed, Some(mutant)).is_err());
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}
