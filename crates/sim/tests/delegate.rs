//! Sweep over seeds of the delegate simulation.

use pathcall_sim::Simulation;
use pathcall_sim::delegate::DelegateSimulation;

#[test]
fn sweep_finds_no_violation() {
    let report = DelegateSimulation::sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.complete > 50 && counts.failed > 10 && counts.aborted > 3, "{counts:?}");
    assert!(counts.lost > 0 && counts.repeated > 0 && counts.forged > 0 && counts.crashes > 0, "{counts:?}");
}
