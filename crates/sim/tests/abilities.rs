//! Of each ability that is simulated: what a seed gives is the same each time, on whichever core.

use std::fmt::Debug;

use pathcall_sim::{Ability, all, clone, delegate, function};

fn the_same_seed_twice_gives_the_same_trace<A: Ability<Tally: PartialEq, Wrong: PartialEq + Debug>>() {
    for seed in 1..=12 {
        let plan = A::generate(seed);
        let (one, other) = (A::play_traced(&plan), A::play_traced(&plan));
        assert!(one == other, "{} {seed}: the texts differ", A::NAME);
        assert_eq!(one.0, A::run(seed), "{} {seed}: reading the trace changes it", A::NAME);
        assert_ne!(one.0.trace_hash, A::run(seed + 1).trace_hash, "{}: seeds {seed} and {}", A::NAME, seed + 1);
    }
}

fn a_sweep_does_not_depend_on_which_core_plays_what<A: Ability<Tally: PartialEq, Wrong: PartialEq + Debug>>() {
    let (one, other) = (A::sweep(7, 10, drop), A::sweep(7, 10, drop));
    assert_eq!((one.seeds, one.trace_hash), (other.seeds, other.trace_hash), "{}", A::NAME);
    assert!(
        one.tally == other.tally && one.findings == other.findings,
        "{}: {:?} {:?}",
        A::NAME,
        one.tally,
        other.tally
    );
}

#[test]
fn of_clone_the_same_seed_twice_gives_the_same_trace() {
    the_same_seed_twice_gives_the_same_trace::<clone::Sim>();
    a_sweep_does_not_depend_on_which_core_plays_what::<clone::Sim>();
}

#[test]
fn of_delegate_the_same_seed_twice_gives_the_same_trace() {
    the_same_seed_twice_gives_the_same_trace::<delegate::Sim>();
    a_sweep_does_not_depend_on_which_core_plays_what::<delegate::Sim>();
}

#[test]
fn of_function_the_same_seed_twice_gives_the_same_trace() {
    the_same_seed_twice_gives_the_same_trace::<function::Sim>();
    a_sweep_does_not_depend_on_which_core_plays_what::<function::Sim>();
}

#[test]
fn of_all_the_same_seed_twice_gives_the_same_trace() {
    the_same_seed_twice_gives_the_same_trace::<all::Sim>();
    a_sweep_does_not_depend_on_which_core_plays_what::<all::Sim>();
}
