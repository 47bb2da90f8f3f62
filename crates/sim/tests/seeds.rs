//! Seeds: they replay to the same trace, and every result is right.

use pathcall_sim::{Progress, Report, generate, play_traced, run, sweep};

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for seed in 1..=40 {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let one = play_traced(&generate(seed), &mut first).expect("memory takes all");
        let other = play_traced(&generate(seed), &mut second).expect("memory takes all");
        assert_eq!(one, other, "seed {seed}");
        assert!(first == second, "seed {seed}: the texts differ");
        assert_eq!(one.trace_hash, run(seed).trace_hash, "seed {seed}: reading the trace changes it");
        assert_ne!(one.trace_hash, run(seed + 1).trace_hash, "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn every_result_is_right() {
    let mut last = None;
    let report = sweep(1000, 150, |progress| last = Some(progress));
    assert_eq!(last, Some(Progress { done: 150, of: 150, findings: 0 }));
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network, and that the element had its part.
    let tally = report.tally;
    assert!(tally.calls > 1000 && tally.lanes_element > 0 && tally.lanes_software > 0, "{tally:?}");
    assert!(tally.lost > 0 && tally.repeated > 0 && tally.reordered > 0 && tally.marked > 0, "{tally:?}");
    assert!(tally.retransmits > 0, "{tally:?}");
    assert!(tally.inline > tally.bare && tally.bare > 0, "{tally:?}");
}

/// Calls that each wait for the server to have what they add, one after the other over slow links, take longer than a
/// minute together; so do the rounds of a long array in one row.
#[test]
fn many_slow_calls_are_no_stall() {
    for seed in [7_001_812, 35_105] {
        assert_eq!(run(seed).failure, None, "seed {seed}");
    }
}

#[test]
fn a_sweep_does_not_depend_on_which_core_plays_what() {
    let timeless = |report: Report| Report { wall_time: Default::default(), ..report };
    assert_eq!(timeless(sweep(7, 30, drop)), timeless(sweep(7, 30, drop)));
}
