//! Mistakes planted in the code under test, one at a time: each is caught. What the simulator
//! could not see would be no proof of anything.

use pathcall_sim::{hunt, run};
use pathcall_wire::Mutant;

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

#[test]
fn every_planted_mistake_is_caught() {
    let mut missed = Vec::new();
    for &mutant in Mutant::MAP {
        let started = std::time::Instant::now();
        let report = hunt(mutant, 1, SEEDS);
        let seconds = started.elapsed().as_secs_f64();
        match report.findings.first() {
            Some(finding) => {
                println!("{mutant:?} ({seconds:.1} s): seed {}: {}", finding.seed, finding.failure);
                assert!(run(finding.seed).failure.is_none(), "seed {}, with none planted", finding.seed);
            }
            None => {
                println!("{mutant:?} ({seconds:.1} s): MISSED");
                missed.push(mutant);
            }
        }
    }
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds: {missed:?}");
}
