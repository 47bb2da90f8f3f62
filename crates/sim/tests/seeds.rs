//! Seeds of the simulations of all abilities: sweeps, and the same result of a seed on every core.

use std::fmt::Debug;

use pathcall_sim::all::CombinedSimulation;
use pathcall_sim::clone::CloneSimulation;
use pathcall_sim::delegate::DelegateSimulation;
use pathcall_sim::function::FunctionSimulation;
use pathcall_sim::map::MapSimulation;
use pathcall_sim::place::PlaceSimulation;
use pathcall_sim::{Progress, Simulation};

fn same_seed_gives_same_trace<A: Simulation<Counts: PartialEq, Violation: PartialEq + Debug>>(seeds: u64) {
    for seed in 1..=seeds {
        let plan = A::generate(seed);
        let (one, other) = (A::play_traced(&plan), A::play_traced(&plan));
        assert!(one == other, "{} {seed}: the texts differ", A::NAME);
        assert_eq!(one.0, A::run(seed), "{} {seed}: reading the trace changes it", A::NAME);
        assert_ne!(one.0.trace_hash, A::run(seed + 1).trace_hash, "{}: seeds {seed} and {}", A::NAME, seed + 1);
    }
}

fn sweep_result_does_not_depend_on_scheduling<A: Simulation<Counts: PartialEq, Violation: PartialEq + Debug>>(
    count: u64,
) {
    let (one, other) = (A::sweep(7, count, drop), A::sweep(7, count, drop));
    assert_eq!((one.seeds, one.trace_hash), (other.seeds, other.trace_hash), "{}", A::NAME);
    assert!(
        one.counts == other.counts && one.findings == other.findings,
        "{}: {:?} {:?}",
        A::NAME,
        one.counts,
        other.counts
    );
}

#[test]
fn map_runs_are_reproducible() {
    same_seed_gives_same_trace::<MapSimulation>(40);
    sweep_result_does_not_depend_on_scheduling::<MapSimulation>(30);
}

#[test]
fn clone_runs_are_reproducible() {
    same_seed_gives_same_trace::<CloneSimulation>(12);
    sweep_result_does_not_depend_on_scheduling::<CloneSimulation>(10);
}

#[test]
fn delegate_runs_are_reproducible() {
    same_seed_gives_same_trace::<DelegateSimulation>(12);
    sweep_result_does_not_depend_on_scheduling::<DelegateSimulation>(10);
}

#[test]
fn function_runs_are_reproducible() {
    same_seed_gives_same_trace::<FunctionSimulation>(12);
    sweep_result_does_not_depend_on_scheduling::<FunctionSimulation>(10);
}

#[test]
fn place_runs_are_reproducible() {
    same_seed_gives_same_trace::<PlaceSimulation>(8);
    sweep_result_does_not_depend_on_scheduling::<PlaceSimulation>(10);
}

#[test]
fn combined_runs_are_reproducible() {
    same_seed_gives_same_trace::<CombinedSimulation>(12);
    sweep_result_does_not_depend_on_scheduling::<CombinedSimulation>(10);
}

#[test]
fn map_sweep_finds_no_violation() {
    let mut last = None;
    let report = MapSimulation::sweep(1000, 150, |progress| last = Some(progress));
    assert_eq!(last, Some(Progress { done: 150, of: 150, findings: 0 }));
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened, and the element has processed lanes.
    let counts = report.counts;
    assert!(counts.calls > 1000 && counts.lanes_element > 0 && counts.lanes_software > 0, "{counts:?}");
    assert!(counts.lost > 0 && counts.repeated > 0 && counts.reordered > 0 && counts.marked > 0, "{counts:?}");
    assert!(counts.retransmits > 0, "{counts:?}");
    assert!(counts.inline > counts.bare && counts.bare > 0, "{counts:?}");
}

/// Calls that wait for the server one after the other over slow links take longer than a minute together, and so do
/// the rounds of a long array in one row.
#[test]
fn many_slow_sequential_map_calls_are_not_stuck() {
    for seed in [7_001_812, 35_105] {
        assert_eq!(MapSimulation::run(seed).failure, None, "seed {seed}");
    }
}

#[test]
fn clone_sweep_finds_no_violation() {
    let report = CloneSimulation::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.answered > 1_000 && counts.failed > 10 && counts.cloned > 100, "{counts:?}");
    assert!(counts.clones_dropped > 0 && counts.filtered > 50 && counts.redundant > 0, "{counts:?}");
    assert!(counts.resent > 100 && counts.refused > 0 && counts.silent > 0, "{counts:?}");
    assert!(counts.lost > 0 && counts.repeated > 0 && counts.forged > 0 && counts.incidents > 10, "{counts:?}");
}

#[test]
fn passing_clone_plan_is_not_shrunk() {
    assert_eq!(CloneSimulation::shrink(&CloneSimulation::generate(1)), None);
}

#[test]
fn delegate_sweep_finds_no_violation() {
    let report = DelegateSimulation::sweep(100_000, 60, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.complete > 50 && counts.failed > 10 && counts.aborted > 3, "{counts:?}");
    assert!(counts.lost > 0 && counts.repeated > 0 && counts.forged > 0 && counts.crashes > 0, "{counts:?}");
    // Replicas have failed, and calls have been made again.
    assert!(counts.service_calls > 100 && counts.repeats > 10 && counts.repaired > 5, "{counts:?}");
    assert!(counts.avoided > 50 && counts.load_reports > 50, "{counts:?}");
}

#[test]
fn function_sweep_finds_no_violation() {
    let report = FunctionSimulation::sweep(100_000, 150, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.out > 100_000 && counts.in_element > 20_000 && counts.lost > 1_000, "{counts:?}");
    assert!(counts.placed > 1_000 && counts.replaced > 100 && counts.recalled > 100, "{counts:?}");
    assert!(counts.groups > 100 && counts.deaths > 10 && counts.drains > 10, "{counts:?}");
    assert!(counts.repeated > 100 && counts.refused > 100 && counts.reordered > 1_000, "{counts:?}");
}

#[test]
fn lost_packet_of_function_keeps_no_entry() {
    assert_eq!(FunctionSimulation::run(21_801).failure, None);
}

#[test]
fn place_sweep_finds_no_violation() {
    let report = PlaceSimulation::sweep(100_000, 300, drop);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    // Faults have happened.
    let counts = report.counts;
    assert!(counts.answered > 100_000 && counts.given_up > 100 && counts.abandoned > 50, "{counts:?}");
    assert!(counts.waited > 500 && counts.full > 1_000 && counts.followed > 300, "{counts:?}");
    assert!(counts.lost > 100 && counts.overdue > 50 && counts.failed > 500, "{counts:?}");
    assert!(counts.left > 50 && counts.probes > 500 && counts.changes > 1_000 && counts.polls > 50, "{counts:?}");
}

#[test]
fn combined_sweep_finds_no_violation() {
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
fn passing_combined_plan_is_not_shrunk() {
    assert!(CombinedSimulation::shrink(&CombinedSimulation::generate(1)).is_none());
}

#[test]
fn combined_trace_lines_begin_with_part_name() {
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
