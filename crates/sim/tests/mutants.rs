//! Mutants of map, planted one at a time: the simulation catches each. A sweep without violations proves nothing if
//! the simulator cannot detect mistakes.

use pathcall_sim::{MapReport, find_mutant, run};
use pathcall_wire::Mutant;

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 2_000;

/// Mutants that few seeds catch, with a seed that does. This seed is tried first, then all seeds.
const RARE: [(Mutant, u64); 26] = [
    (Mutant::ClaimOfCleared, 1784),
    (Mutant::ClaimTwice, 1384),
    (Mutant::ElementApplication, 1188),
    (Mutant::ShadowGuessed, 974),
    (Mutant::LocksAtOnce, 761),
    (Mutant::VoteRenumbered, 520),
    (Mutant::LeaseWithoutDrift, 456),
    (Mutant::InlineUnmarked, 371),
    (Mutant::BareSummed, 371),
    (Mutant::LeaseNotChecked, 340),
    (Mutant::GrantOfOldSession, 340),
    (Mutant::BackupForAnybody, 284),
    (Mutant::AckTooSoon, 216),
    (Mutant::VotesUnsettled, 216),
    (Mutant::WindowUnbounded, 190),
    (Mutant::ServerEpoch, 186),
    (Mutant::VoteRepeats, 137),
    (Mutant::RecordIgnored, 136),
    (Mutant::CommitsForgotten, 136),
    (Mutant::RepeatCommitted, 136),
    (Mutant::VoteForgotten, 136),
    (Mutant::RepeatTakesLock, 128),
    (Mutant::MappingRestamped, 112),
    (Mutant::CancelledLockKept, 102),
    (Mutant::RowsNotMoved, 96),
    (Mutant::BegunUnannounced, 76),
];

fn caught(mutant: Mutant) -> MapReport {
    let rare = RARE.iter().find(|(rare, _)| *rare == mutant).map(|&(_, seed)| find_mutant(mutant, seed, 1));
    rare.filter(|report| !report.findings.is_empty()).unwrap_or_else(|| find_mutant(mutant, 1, SEEDS))
}

#[test]
fn every_mutant_is_caught() {
    let mut missed = Vec::new();
    for &mutant in Mutant::MAP {
        let started = std::time::Instant::now();
        let report = caught(mutant);
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
