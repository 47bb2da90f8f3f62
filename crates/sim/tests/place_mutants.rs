//! Mutants of place, planted one at a time: the simulation catches each.

use crate::planted;
use pathcall_sim::Simulation;
use pathcall_sim::place::PlaceSimulation;
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which every mutant is caught.
const SEEDS: u64 = 1_500;

/// Mutant that few seeds catch, with a seed that does.
const SELDOM: [(Mutant, u64); 1] = [(Mutant::PlaceGivenUpPassed, 170)];
/// Mutant that one seed of many thousands catches, with such a seed.
const RARE: (Mutant, u64) = (Mutant::PlaceFollowsBroken, 100_014);

/// Mutant without effect here: no request follows another one onto a failed path. Only reads alone would show it, and
/// no application here sends reads over the same resources as writes.
const UNSEEN: Mutant = Mutant::PlaceFailedPassed;

#[test]
fn every_mutant_is_caught() {
    let often = Mutant::PLACE.iter().copied().filter(|mutant| ![RARE.0, UNSEEN].contains(mutant));
    planted::expect_each_caught::<PlaceSimulation>(often, SEEDS, &SELDOM);
    assert!(
        !PlaceSimulation::find_mutant(RARE.0, RARE.1, 1).findings.is_empty(),
        "seed {}: {:?} is not caught",
        RARE.1,
        RARE.0
    );
    assert!(PlaceSimulation::run(RARE.1).failure.is_none(), "seed {}, with none planted", RARE.1);
}

#[test]
fn failing_plan_is_shrunk() {
    mutant::plant(Some(Mutant::PlaceOvertakes));
    let plan = (1..SEEDS)
        .map(PlaceSimulation::generate)
        .find(|plan| PlaceSimulation::play(plan).failure.is_some())
        .expect("a seed that shows the mutant");
    let smallest = PlaceSimulation::shrink(&plan).expect("plan fails");
    assert!(PlaceSimulation::play(&smallest).failure.is_some());
    let (before, after) = (plan.requests.len(), smallest.requests.len());
    assert!(after <= 4 && after < before && smallest.station_faults.len() <= 1, "{before} requests, then {after}");
    mutant::plant(None);
}
