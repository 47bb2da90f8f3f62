//! Mutants of delegate, planted one at a time: the simulation catches each.

use crate::planted;
use pathcall_sim::Simulation;
use pathcall_sim::delegate::DelegateSimulation;
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 2_000;

/// Mutant that few seeds catch, with a seed that does.
const RARE: [(Mutant, u64); 1] = [(Mutant::DelegateGcTooSoon, 167)];

#[test]
fn every_mutant_is_caught() {
    planted::expect_each_caught::<DelegateSimulation>(Mutant::DELEGATE.iter().copied(), SEEDS, &RARE);
}

#[test]
fn failing_plan_is_shrunk() {
    mutant::plant(Some(Mutant::DELEGATE[0]));
    let plan = (1..SEEDS)
        .map(DelegateSimulation::generate)
        .find(|plan| DelegateSimulation::play(plan).failure.is_some())
        .expect("a seed that shows the mutant");
    let smallest = DelegateSimulation::shrink(&plan).expect("plan fails");
    assert!(DelegateSimulation::play(&smallest).failure.is_some());
    let (before, after) = (plan.calls.len(), smallest.calls.len());
    assert!(after <= 2 && after < before, "{before} calls, then {after}");
    mutant::plant(None);
}
