//! Mutants of clone, planted one at a time: the simulation catches each.

use crate::planted;
use pathcall_sim::Simulation;
use pathcall_sim::clone::CloneSimulation;
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 2_000;

/// Mutants that few seeds catch, with seeds that do.
const RARE: [(Mutant, u64); 2] = [(Mutant::CloneCancelStale, 179), (Mutant::CloneFailureFiltered, 106)];

/// Mutants of the element that this simulation catches. The others only cause repeats and load, which callers
/// compensate; the comparison of executions catches them.
const OF_ELEMENT: [Mutant; 9] = [
    Mutant::CloneShadowKept,
    Mutant::CloneUnfiltered,
    Mutant::CloneWhileBusy,
    Mutant::CloneUnasked,
    Mutant::CloneStaleDropped,
    Mutant::CloneCancelStale,
    Mutant::CloneBelieved,
    Mutant::CloneLongest,
    Mutant::CloneDirectSteered,
];

#[test]
fn every_mutant_is_caught() {
    planted::expect_each_caught::<CloneSimulation>(
        Mutant::CLONE_HOSTS.iter().chain(&OF_ELEMENT).copied(),
        SEEDS,
        &RARE,
    );
}

#[test]
fn failing_plan_is_shrunk() {
    mutant::plant(Some(Mutant::CloneAnsweredTwice));
    let plan = (1..SEEDS)
        .map(CloneSimulation::generate)
        .find(|plan| CloneSimulation::play(plan).failure.is_some())
        .expect("a seed that shows the mutant");
    let smallest = CloneSimulation::shrink(&plan).expect("plan fails");
    assert!(smallest.calls.len() <= 2 && smallest.incidents.len() <= 1, "{smallest:#?}");
    mutant::plant(None);
}
