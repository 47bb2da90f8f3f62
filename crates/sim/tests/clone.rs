//! What a seed gives is the same each time, and every result is right.

use pathcall_sim::clone::{Report, generate, play_traced, run, shrink, sweep};

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for seed in 1..=12 {
        let plan = generate(seed);
        let (one, other) = (play_traced(&plan), play_traced(&plan));
        assert!(one == other, "seed {seed}: the texts differ");
        assert_eq!(one.0, run(seed), "seed {seed}: reading the trace changes it");
        assert_ne!(one.0.trace_hash, run(seed + 1).trace_hash, "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn every_result_is_right() {
    let report = sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network.
    let tally = report.tally;
    assert!(tally.answered > 1_000 && tally.failed > 10 && tally.cloned > 100, "{tally:?}");
    assert!(tally.clones_dropped > 0 && tally.filtered > 50 && tally.redundant > 0, "{tally:?}");
    assert!(tally.resent > 100 && tally.refused > 0 && tally.silent > 0, "{tally:?}");
    assert!(tally.lost > 0 && tally.repeated > 0 && tally.forged > 0 && tally.incidents > 10, "{tally:?}");
}

#[test]
fn a_sweep_does_not_depend_on_which_core_plays_what() {
    let timeless = |report: Report| Report { wall_time: Default::default(), ..report };
    assert_eq!(timeless(sweep(7, 10, drop)), timeless(sweep(7, 10, drop)));
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    assert_eq!(shrink(&generate(1)), None);
}
