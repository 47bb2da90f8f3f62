//! Mistakes planted in clone, one at a time: each is caught.

use crate::planted;
use pathcall_sim::Ability;
use pathcall_sim::clone::Sim;
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 2_000;

/// Those that show seldom, with seeds that showed them.
const RARE: [(Mutant, u64); 2] = [(Mutant::CloneCancelStale, 179), (Mutant::CloneFailureFiltered, 106)];

/// Those of the element that show here. The others cost repeats and load, which callers make good: the comparison
/// of executions catches them.
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
fn every_planted_mistake_is_caught() {
    planted::each_is_caught::<Sim>(Mutant::CLONE_HOSTS.iter().chain(&OF_ELEMENT).copied(), SEEDS, &RARE);
}

#[test]
fn what_fails_is_shrunk() {
    mutant::plant(Some(Mutant::CloneAnsweredTwice));
    let plan =
        (1..SEEDS).map(Sim::generate).find(|plan| Sim::play(plan).failure.is_some()).expect("some seed shows it");
    let smallest = Sim::shrink(&plan).expect("it fails");
    assert!(smallest.calls.len() <= 2 && smallest.incidents.len() <= 1, "{smallest:#?}");
    mutant::plant(None);
}
