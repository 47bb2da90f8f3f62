//! Every result of clone is right.

use pathcall_sim::Ability;
use pathcall_sim::clone::Sim;

#[test]
fn every_result_is_right() {
    let report = Sim::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network.
    let tally = report.tally;
    assert!(tally.answered > 1_000 && tally.failed > 10 && tally.cloned > 100, "{tally:?}");
    assert!(tally.clones_dropped > 0 && tally.filtered > 50 && tally.redundant > 0, "{tally:?}");
    assert!(tally.resent > 100 && tally.refused > 0 && tally.silent > 0, "{tally:?}");
    assert!(tally.lost > 0 && tally.repeated > 0 && tally.forged > 0 && tally.incidents > 10, "{tally:?}");
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    assert_eq!(Sim::shrink(&Sim::generate(1)), None);
}
