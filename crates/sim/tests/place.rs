//! Every result of place is right.

use pathcall_sim::Ability;
use pathcall_sim::place::Sim;

#[test]
fn every_result_is_right() {
    let report = Sim::sweep(100_000, 300, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet machine.
    let tally = report.tally;
    assert!(tally.answered > 100_000 && tally.given_up > 100 && tally.abandoned > 50, "{tally:?}");
    assert!(tally.waited > 500 && tally.full > 1_000 && tally.followed > 300, "{tally:?}");
    assert!(tally.lost > 100 && tally.overdue > 50 && tally.failed > 500, "{tally:?}");
    assert!(tally.left > 50 && tally.probes > 500 && tally.changes > 1_000, "{tally:?}");
}

#[test]
fn a_seed_is_one_run() {
    let (one, other) = (Sim::run(7), Sim::run(7));
    assert_eq!((one.trace_hash, one.tally), (other.trace_hash, other.tally));
    assert_ne!(one.trace_hash, Sim::run(8).trace_hash);
}
