//! Mutants of one ability, or of the sharing of an element, planted one at a time: the combined simulation catches
//! each.

use crate::planted;
use pathcall_sim::all::CombinedSimulation;
use pathcall_sim::{Simulation, clone, find_mutant};
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 400;

/// Mutants that few seeds catch, with a seed that does.
const RARE: [(Mutant, u64); 1] = [(Mutant::TogetherSlotsReset, 214)];

/// Mutants of each ability that its own simulation catches, too.
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
fn part_mutants_are_caught() {
    planted::expect_each_caught::<CombinedSimulation>(OF_PARTS, SEEDS, &[]);
}

#[test]
fn combined_mutants_are_caught_by_combined_simulation() {
    planted::expect_each_caught::<CombinedSimulation>(Mutant::TOGETHER.iter().copied(), SEEDS, &RARE);
}

#[test]
fn combined_mutants_are_not_caught_by_single_simulations() {
    for &mutant in Mutant::TOGETHER {
        let (of_map, of_clone) =
            (find_mutant(mutant, 1, 100).findings, clone::CloneSimulation::find_mutant(mutant, 1, 100).findings);
        assert!(of_map.is_empty() && of_clone.is_empty(), "{mutant:?} is caught in one ability alone");
    }
}

#[test]
fn failing_plan_is_shrunk_to_needed_parts() {
    mutant::plant(Some(Mutant::TogetherPoolsForgotten));
    let plan = (1..SEEDS)
        .map(CombinedSimulation::generate)
        .find(|plan| CombinedSimulation::play(plan).failure.is_some())
        .expect("a seed that shows the mutant");
    let smallest = CombinedSimulation::shrink(&plan).expect("plan fails");
    assert!(smallest.map.is_some() && smallest.clone.is_some(), "{smallest:#?}");
    assert!(smallest.delegate.is_none() && smallest.function.is_none() && smallest.place.is_none(), "{smallest:#?}");
    assert!(smallest.pauses.is_empty() && smallest.cuts.is_empty(), "{smallest:#?}");
    mutant::plant(None);
}
