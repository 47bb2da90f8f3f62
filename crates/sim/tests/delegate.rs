//! What a seed gives is the same each time, and every result is right.

use pathcall_sim::delegate::{Report, generate, play_traced, run, sweep};

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
    let report = sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // That it was no quiet network.
    let tally = report.tally;
    assert!(tally.complete > 50 && tally.failed > 10 && tally.aborted > 3, "{tally:?}");
    assert!(tally.lost > 0 && tally.repeated > 0 && tally.forged > 0 && tally.crashes > 0, "{tally:?}");
}

#[test]
fn a_sweep_does_not_depend_on_which_core_plays_what() {
    let timeless = |report: Report| Report { wall_time: Default::default(), ..report };
    assert_eq!(timeless(sweep(7, 10, drop)), timeless(sweep(7, 10, drop)));
}
