//! Every result of all abilities together is right.

use pathcall_sim::Ability;
use pathcall_sim::all::Sim;

#[test]
fn every_result_is_right() {
    let report = Sim::sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That the abilities had to do with each other, and that it was no quiet network.
    let tally = report.tally;
    let (map, clone, delegate) = (tally.map, tally.clone, tally.delegate);
    assert!(map.calls > 1_000 && clone.answered > 300 && delegate.complete > 10, "{tally:?}");
    assert!(map.lanes_element > 1_000 && clone.cloned > 50 && map.lost > 100 && clone.lost > 100, "{tally:?}");
    assert!(tally.frames > 10_000 && tally.carried > 5_000 && tally.held_back > 10, "{tally:?}");
    assert!(tally.carried - tally.held_back > tally.carried / 2, "{tally:?}");
    assert!(tally.placed > 300 && tally.abandoned > 0 && tally.placed == tally.place.requests, "{tally:?}");
    assert!(tally.failures > 10 && tally.waited > 20 && tally.strange > 100 && map.pauses > 10, "{tally:?}");
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    assert!(Sim::shrink(&Sim::generate(1)).is_none());
}

#[test]
fn each_line_names_its_part() {
    let (outcome, text) = Sim::play_traced(&Sim::generate(3));
    assert_eq!(outcome.failure, None);
    for part in ["map", "clone", "delegate", "function"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{part:<8} "))), "{part}");
    }
    let known = |line: &str| {
        ["all", "map", "clone", "delegate", "function", "place"].iter().any(|part| line.split(' ').next() == Some(part))
    };
    assert_eq!(text.lines().find(|line| !known(line)), None);
}
