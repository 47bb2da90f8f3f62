//! Mistakes planted in *place*, one at a time: each is caught.

mod planted;

use pathcall_sim::Ability;
use pathcall_sim::place::Sim;
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 1_500;

#[test]
fn every_planted_mistake_is_caught() {
    planted::each_is_caught::<Sim>(Mutant::PLACE.iter().copied(), SEEDS);
}

#[test]
fn what_fails_is_shrunk() {
    mutant::plant(Some(Mutant::PlaceOvertakes));
    let plan =
        (1..SEEDS).map(Sim::generate).find(|plan| Sim::play(plan).failure.is_some()).expect("some seed shows it");
    let smallest = Sim::shrink(&plan).expect("it fails");
    assert!(Sim::play(&smallest).failure.is_some());
    let (before, after) = (plan.asks.len(), smallest.asks.len());
    assert!(after <= 4 && after < before && smallest.spells.len() <= 1, "{before} requests, then {after}");
    mutant::plant(None);
}
