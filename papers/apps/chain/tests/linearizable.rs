//! Linearizability of simulated chains in faulty networks, and detection of planted mistakes.

use chain::replica::Mutant;
use chain::sim::{SimResults, run};

const SEEDS: u64 = 2_000;

#[test]
fn histories_are_linearizable_under_faults() {
    let mut all = SimResults::default();
    for seed in 0..SEEDS {
        let ran = run(seed, None).unwrap_or_else(|history| panic!("{history}"));
        all = SimResults {
            ended: all.ended + ran.ended,
            abandoned: all.abandoned + ran.abandoned,
            crashes: all.crashes + ran.crashes,
            views: all.views + ran.views - 1,
            recalls: all.recalls + ran.recalls,
        };
    }
    println!("{all:?}");
    // The runs cover the faults: most operations complete, and every fault occurs.
    assert!(all.abandoned * 100 < all.ended, "{all:?}");
    assert!(all.crashes > 1_000 && all.views > 1_000 && all.recalls > 1_000, "{all:?}");
}

#[test]
fn seed_determines_chain_simulation() {
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
