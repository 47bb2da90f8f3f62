//! Mistakes planted one at a time. What a simulator could not see would be no proof of anything.

use pathcall_sim::Ability;
use pathcall_wire::Mutant;

/// Each shows within so many seeds, and without it the seed that shows it is right. `rare`: seeds that showed some that
/// show seldom, which are tried first, and all if one does so no more.
pub fn each_is_caught<S: Ability>(mutants: impl IntoIterator<Item = Mutant>, seeds: u64, rare: &[(Mutant, u64)]) {
    let mut missed = Vec::new();
    for mutant in mutants {
        let first = rare.iter().filter(|(rare, _)| *rare == mutant).map(|&(_, seed)| S::hunt(mutant, seed, 1));
        let mut first = first.filter(|report| !report.findings.is_empty());
        match first.next().unwrap_or_else(|| S::hunt(mutant, 1, seeds)).findings.first() {
            Some(finding) => {
                println!("{mutant:?}: seed {}: {}", finding.seed, finding.wrong);
                assert!(S::run(finding.seed).failure.is_none(), "seed {}, with none planted", finding.seed);
            }
            None => {
                println!("{mutant:?}: MISSED");
                missed.push(mutant);
            }
        }
    }
    assert!(missed.is_empty(), "not caught within {seeds} seeds: {missed:?}");
}
