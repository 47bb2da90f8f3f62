//! Mutants of function, planted one at a time: the simulation catches each.

use crate::planted;
use pathcall_sim::Simulation;
use pathcall_sim::function::FunctionSimulation;
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 2_000;

#[test]
fn every_mutant_is_caught() {
    // Turns are ordered by age, so this mutant has no effect in the simulator; the test in `installer.rs` catches it.
    let seen = Mutant::FUNCTION.iter().copied().filter(|mutant| *mutant != Mutant::FunctionEarlyValues);
    planted::expect_each_caught::<FunctionSimulation>(seen, SEEDS, &[]);
}

#[test]
fn failing_plan_is_shrunk() {
    mutant::plant(Some(Mutant::FunctionOvertakes));
    let plan = (1..SEEDS)
        .map(FunctionSimulation::generate)
        .find(|plan| FunctionSimulation::play(plan).failure.is_some())
        .expect("a seed that shows the mutant");
    let smallest = FunctionSimulation::shrink(&plan).expect("plan fails");
    assert!(FunctionSimulation::play(&smallest).failure.is_some());
    let (before, after) = (plan.packets.len(), smallest.packets.len());
    assert!(after * 4 < before && smallest.incidents.len() <= 1, "{before} packets, then {after}");
    mutant::plant(None);
}
