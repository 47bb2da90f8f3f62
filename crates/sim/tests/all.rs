//! Sweep over seeds of the combined simulation.

use pathcall_sim::Simulation;
use pathcall_sim::all::CombinedSimulation;

#[test]
fn sweep_finds_no_violation() {
    let report = CombinedSimulation::sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // The abilities have interacted, and faults have happened.
    let counts = report.counts;
    let (map, clone, delegate) = (counts.map, counts.clone, counts.delegate);
    assert!(map.calls > 1_000 && clone.answered > 300 && delegate.complete > 10, "{counts:?}");
    assert!(map.lanes_element > 1_000 && clone.cloned > 50 && map.lost > 100 && clone.lost > 100, "{counts:?}");
    assert!(counts.frames > 10_000 && counts.carried > 5_000 && counts.held_back > 10, "{counts:?}");
    assert!(counts.carried - counts.held_back > counts.carried / 2, "{counts:?}");
    assert!(counts.placed > 300 && counts.abandoned > 0 && counts.placed == counts.place.requests, "{counts:?}");
    assert!(counts.failures > 10 && counts.waited > 20 && counts.strange > 100 && map.pauses > 10, "{counts:?}");
}

#[test]
fn passing_plan_is_not_shrunk() {
    assert!(CombinedSimulation::shrink(&CombinedSimulation::generate(1)).is_none());
}

#[test]
fn trace_lines_begin_with_part_name() {
    let (outcome, text) = CombinedSimulation::play_traced(&CombinedSimulation::generate(3));
    assert_eq!(outcome.failure, None);
    for part in ["map", "clone", "delegate", "function"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{part:<8} "))), "{part}");
    }
    let known = |line: &str| {
        ["all", "map", "clone", "delegate", "function", "place"].iter().any(|part| line.split(' ').next() == Some(part))
    };
    assert_eq!(text.lines().find(|line| !known(line)), None);
}
