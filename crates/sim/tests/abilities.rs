//! Reproducibility of the simulations of all abilities: a seed gives the same result on every core.

use std::fmt::Debug;

use pathcall_sim::{Simulation, all, clone, delegate, function};

fn same_seed_gives_same_trace<A: Simulation<Counts: PartialEq, Violation: PartialEq + Debug>>() {
    for seed in 1..=12 {
        let plan = A::generate(seed);
        let (one, other) = (A::play_traced(&plan), A::play_traced(&plan));
        assert!(one == other, "{} {seed}: the texts differ", A::NAME);
        assert_eq!(one.0, A::run(seed), "{} {seed}: reading the trace changes it", A::NAME);
        assert_ne!(one.0.trace_hash, A::run(seed + 1).trace_hash, "{}: seeds {seed} and {}", A::NAME, seed + 1);
    }
}

fn sweep_result_does_not_depend_on_scheduling<A: Simulation<Counts: PartialEq, Violation: PartialEq + Debug>>() {
    let (one, other) = (A::sweep(7, 10, drop), A::sweep(7, 10, drop));
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
fn clone_runs_are_reproducible() {
    same_seed_gives_same_trace::<clone::CloneSimulation>();
    sweep_result_does_not_depend_on_scheduling::<clone::CloneSimulation>();
}

#[test]
fn delegate_runs_are_reproducible() {
    same_seed_gives_same_trace::<delegate::DelegateSimulation>();
    sweep_result_does_not_depend_on_scheduling::<delegate::DelegateSimulation>();
}

#[test]
fn function_runs_are_reproducible() {
    same_seed_gives_same_trace::<function::FunctionSimulation>();
    sweep_result_does_not_depend_on_scheduling::<function::FunctionSimulation>();
}

#[test]
fn combined_runs_are_reproducible() {
    same_seed_gives_same_trace::<all::CombinedSimulation>();
    sweep_result_does_not_depend_on_scheduling::<all::CombinedSimulation>();
}
