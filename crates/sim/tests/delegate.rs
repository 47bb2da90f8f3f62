//! Every result of delegate is right.

use pathcall_sim::Ability;
use pathcall_sim::delegate::Sim;

#[test]
fn every_result_is_right() {
    let report = Sim::sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network.
    let tally = report.tally;
    assert!(tally.complete > 50 && tally.failed > 10 && tally.aborted > 3, "{tally:?}");
    assert!(tally.lost > 0 && tally.repeated > 0 && tally.forged > 0 && tally.crashes > 0, "{tally:?}");
}
