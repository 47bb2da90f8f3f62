//! Mistakes planted in *place*, one at a time: each is caught.

use crate::planted;
use pathcall_sim::Ability;
use pathcall_sim::place::Sim;
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 1_500;

/// Shows seldom, with a seed that showed it.
const SELDOM: [(Mutant, u64); 1] = [(Mutant::PlaceGivenUpPassed, 170)];
/// Shows in one seed of many thousands: one of those.
const RARE: (Mutant, u64) = (Mutant::PlaceFollowsBroken, 100_014);

/// Not seen: nothing follows onto a path that has failed, whatever its chain says; reads alone would show it, and no
/// application here sends them over the same resources as writes.
const UNSEEN: Mutant = Mutant::PlaceFailedPassed;

#[test]
fn every_planted_mistake_is_caught() {
    let often = Mutant::PLACE.iter().copied().filter(|mutant| ![RARE.0, UNSEEN].contains(mutant));
    planted::each_is_caught::<Sim>(often, SEEDS, &SELDOM);
    assert!(!Sim::hunt(RARE.0, RARE.1, 1).findings.is_empty(), "seed {}: {:?} is not caught", RARE.1, RARE.0);
    assert!(Sim::run(RARE.1).failure.is_none(), "seed {}, with none planted", RARE.1);
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
