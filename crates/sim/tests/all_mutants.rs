//! Mistakes planted in one ability, or in how several share an element, one at a time: each is caught where all play.

use crate::planted;
use pathcall_sim::all::Sim;
use pathcall_sim::{Ability, clone, hunt};
use pathcall_wire::{Mutant, mutant};

/// Seeds within which every mistake shows.
const SEEDS: u64 = 400;

/// One that shows seldom, with a seed that showed it.
const RARE: [(Mutant, u64); 1] = [(Mutant::TogetherSlotsReset, 214)];

/// Some of each ability, which its own simulation catches, too.
const OF_PARTS: [Mutant; 10] = [
    Mutant::ElementRepeats,
    Mutant::ElementEpoch,
    Mutant::ServerRepeats,
    Mutant::CloneShadowKept,
    Mutant::CloneWhileBusy,
    Mutant::CloneAnsweredTwice,
    Mutant::DelegateRepeats,
    Mutant::DelegateErrorCompletes,
    Mutant::FunctionOvertakes,
    Mutant::PlaceFailedForgotten,
];

#[test]
fn mistakes_of_each_part_are_caught() {
    planted::each_is_caught::<Sim>(OF_PARTS, SEEDS, &[]);
}

#[test]
fn mistakes_that_take_several_abilities_are_caught_here() {
    planted::each_is_caught::<Sim>(Mutant::TOGETHER.iter().copied(), SEEDS, &RARE);
}

#[test]
fn and_nowhere_else() {
    for &mutant in Mutant::TOGETHER {
        let (of_map, of_clone) = (hunt(mutant, 1, 100).findings, clone::Sim::hunt(mutant, 1, 100).findings);
        assert!(of_map.is_empty() && of_clone.is_empty(), "{mutant:?} shows in one ability alone");
    }
}

#[test]
fn what_fails_is_shrunk_to_the_parts_that_it_takes() {
    mutant::plant(Some(Mutant::TogetherPoolsForgotten));
    let plan =
        (1..SEEDS).map(Sim::generate).find(|plan| Sim::play(plan).failure.is_some()).expect("some seed shows it");
    let smallest = Sim::shrink(&plan).expect("it fails");
    assert!(smallest.map.is_some() && smallest.clone.is_some(), "{smallest:#?}");
    assert!(smallest.delegate.is_none() && smallest.function.is_none() && smallest.place.is_none(), "{smallest:#?}");
    assert!(smallest.pauses.is_empty() && smallest.cuts.is_empty(), "{smallest:#?}");
    mutant::plant(None);
}
