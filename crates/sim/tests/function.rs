//! Every result of function is right.

use pathcall_sim::Ability;
use pathcall_sim::function::Sim;

#[test]
fn every_result_is_right() {
    let report = Sim::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network.
    let tally = report.tally;
    assert!(tally.out > 100_000 && tally.in_element > 20_000 && tally.lost > 1_000, "{tally:?}");
    assert!(tally.placed > 1_000 && tally.replaced > 100 && tally.recalled > 100, "{tally:?}");
    assert!(tally.groups > 100 && tally.deaths > 10 && tally.drains > 10, "{tally:?}");
    assert!(tally.repeated > 100 && tally.refused > 100 && tally.reordered > 1_000, "{tally:?}");
}

#[test]
fn what_was_lost_on_its_way_keeps_no_entry() {
    assert_eq!(Sim::run(21_801).failure, None);
}
