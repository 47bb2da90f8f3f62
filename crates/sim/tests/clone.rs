//! Sweep over seeds of the clone simulation.

use pathcall_sim::Simulation;
use pathcall_sim::clone::CloneSimulation;

#[test]
fn sweep_finds_no_violation() {
    let report = CloneSimulation::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.answered > 1_000 && counts.failed > 10 && counts.cloned > 100, "{counts:?}");
    assert!(counts.clones_dropped > 0 && counts.filtered > 50 && counts.redundant > 0, "{counts:?}");
    assert!(counts.resent > 100 && counts.refused > 0 && counts.silent > 0, "{counts:?}");
    assert!(counts.lost > 0 && counts.repeated > 0 && counts.forged > 0 && counts.incidents > 10, "{counts:?}");
}

#[test]
fn passing_plan_is_not_shrunk() {
    assert_eq!(CloneSimulation::shrink(&CloneSimulation::generate(1)), None);
}
