//! Mistakes planted in delegate, one at a time: each is caught.

use crate::planted;
use pathcall_sim::Ability;
use pathcall_sim::delegate::Sim;
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

/// One that shows seldom, with a seed that showed it.
const RARE: [(Mutant, u64); 1] = [(Mutant::DelegateGcTooSoon, 167)];

#[test]
fn every_planted_mistake_is_caught() {
    planted::each_is_caught::<Sim>(Mutant::DELEGATE.iter().copied(), SEEDS, &RARE);
}

#[test]
fn what_fails_is_shrunk() {
    mutant::plant(Some(Mutant::DELEGATE[0]));
    let plan =
        (1..SEEDS).map(Sim::generate).find(|plan| Sim::play(plan).failure.is_some()).expect("some seed shows it");
    let smallest = Sim::shrink(&plan).expect("it fails");
    assert!(Sim::play(&smallest).failure.is_some());
    let (before, after) = (plan.calls.len(), smallest.calls.len());
    assert!(after <= 2 && after < before, "{before} calls, then {after}");
    mutant::plant(None);
}
