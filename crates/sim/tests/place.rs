//! Sweep over seeds of the place simulation.

use pathcall_sim::Simulation;
use pathcall_sim::place::PlaceSimulation;

#[test]
fn sweep_finds_no_violation() {
    let report = PlaceSimulation::sweep(100_000, 300, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.answered > 100_000 && counts.given_up > 100 && counts.abandoned > 50, "{counts:?}");
    assert!(counts.waited > 500 && counts.full > 1_000 && counts.followed > 300, "{counts:?}");
    assert!(counts.lost > 100 && counts.overdue > 50 && counts.failed > 500, "{counts:?}");
    assert!(counts.left > 50 && counts.probes > 500 && counts.changes > 1_000, "{counts:?}");
}

#[test]
fn place_runs_are_reproducible() {
    let (one, other) = (PlaceSimulation::run(7), PlaceSimulation::run(7));
    assert_eq!((one.trace_hash, one.counts), (other.trace_hash, other.counts));
    assert_ne!(one.trace_hash, PlaceSimulation::run(8).trace_hash);
}
