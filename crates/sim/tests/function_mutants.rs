//! Mistakes planted in *function*, one at a time: each is caught.

use crate::planted;
use pathcall_sim::Ability;
use pathcall_sim::function::Sim;
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

#[test]
fn every_planted_mistake_is_caught() {
    // Since turns are known for newer and older, the simulator sees no harm in one; the test in `installer.rs` does.
    let seen = Mutant::FUNCTION.iter().copied().filter(|mutant| *mutant != Mutant::FunctionEarlyValues);
    planted::each_is_caught::<Sim>(seen, SEEDS, &[]);
}

#[test]
fn what_fails_is_shrunk() {
    mutant::plant(Some(Mutant::FunctionOvertakes));
    let plan =
        (1..SEEDS).map(Sim::generate).find(|plan| Sim::play(plan).failure.is_some()).expect("some seed shows it");
    let smallest = Sim::shrink(&plan).expect("it fails");
    assert!(Sim::play(&smallest).failure.is_some());
    let (before, after) = (plan.packets.len(), smallest.packets.len());
    assert!(after * 4 < before && smallest.incidents.len() <= 1, "{before} packets, then {after}");
    mutant::plant(None);
}
