//! Mistakes planted in *function*, one at a time: each is caught.

use pathcall_sim::function::{hunt, sweep};
use pathcall_wire::Mutant;

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

#[test]
fn every_planted_mistake_is_caught() {
    let mut missed = Vec::new();
    for &mutant in Mutant::FUNCTION {
        let report = hunt(mutant, 1, SEEDS);
        match report.findings.first() {
            Some(finding) => println!("{mutant:?}: seed {}: {}", finding.seed, finding.wrong),
            None => {
                println!("{mutant:?}: MISSED");
                missed.push(mutant);
            }
        }
    }
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds: {missed:?}");
}

#[test]
fn with_none_planted_the_same_seeds_are_right() {
    let report = sweep(1, SEEDS, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}
