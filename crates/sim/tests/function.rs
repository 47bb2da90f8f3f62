//! Sweep over seeds of the function simulation.

use pathcall_sim::Simulation;
use pathcall_sim::function::FunctionSimulation;

#[test]
fn sweep_finds_no_violation() {
    let report = FunctionSimulation::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.out > 100_000 && counts.in_element > 20_000 && counts.lost > 1_000, "{counts:?}");
    assert!(counts.placed > 1_000 && counts.replaced > 100 && counts.recalled > 100, "{counts:?}");
    assert!(counts.groups > 100 && counts.deaths > 10 && counts.drains > 10, "{counts:?}");
    assert!(counts.repeated > 100 && counts.refused > 100 && counts.reordered > 1_000, "{counts:?}");
}

#[test]
fn lost_packet_keeps_no_entry() {
    assert_eq!(FunctionSimulation::run(21_801).failure, None);
}
