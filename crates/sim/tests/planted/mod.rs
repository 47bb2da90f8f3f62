//! Search for planted mutants. A sweep without violations proves nothing if the simulator cannot detect mistakes.

use pathcall_sim::Simulation;
use pathcall_wire::Mutant;

/// Expects that each mutant is caught within `seeds` seeds, and that the same seed passes without it. `rare` has
/// seeds that catch rare mutants; they are tried first, then all seeds.
pub fn expect_each_caught<S: Simulation>(
    mutants: impl IntoIterator<Item = Mutant>,
    seeds: u64,
    rare: &[(Mutant, u64)],
) {
    let mut missed = Vec::new();
    for mutant in mutants {
        let first = rare.iter().filter(|(rare, _)| *rare == mutant).map(|&(_, seed)| S::find_mutant(mutant, seed, 1));
        let mut first = first.filter(|report| !report.findings.is_empty());
        match first.next().unwrap_or_else(|| S::find_mutant(mutant, 1, seeds)).findings.first() {
            Some(finding) => {
                println!("{mutant:?}: seed {}: {}", finding.seed, finding.violation);
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
