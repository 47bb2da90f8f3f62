//! Mutants planted in the code under test, one at a time: the simulations catch each. A sweep without violations proves
//! nothing if the simulator cannot detect mistakes.

use pathcall_sim::Simulation;
use pathcall_sim::all::CombinedSimulation;
use pathcall_sim::clone::CloneSimulation;
use pathcall_sim::delegate::DelegateSimulation;
use pathcall_sim::function::FunctionSimulation;
use pathcall_sim::map::MapSimulation;
use pathcall_sim::place::PlaceSimulation;
use pathcall_wire::{Mutant, mutant};

/// Number of seeds within which a simulation catches every mutant of its ability.
const SEEDS: u64 = 2_000;
/// The same for place, and for the combined simulation.
const SEEDS_OF_PLACE: u64 = 1_500;
const SEEDS_COMBINED: u64 = 400;

/// Mutants that few seeds catch, with a seed that does. This seed is tried first, then all seeds.
const RARE: [(Mutant, u64); 38] = [
    (Mutant::NoticeHeardEarly, 74_517),
    (Mutant::ClearedDecisionLost, 10_886),
    (Mutant::ClaimOfCleared, 3336),
    (Mutant::SlotlessEndpointResets, 986),
    (Mutant::ClaimTwice, 1499),
    (Mutant::VotesUnsettled, 1384),
    (Mutant::ElementApplication, 1188),
    (Mutant::ShadowGuessed, 974),
    (Mutant::LocksAtOnce, 761),
    (Mutant::RowsOfOwnEpoch, 575),
    (Mutant::VoteRenumbered, 520),
    (Mutant::LeaseWithoutDrift, 456),
    (Mutant::InlineUnmarked, 371),
    (Mutant::BareSummed, 371),
    (Mutant::LeaseNotChecked, 340),
    (Mutant::GrantOfOldSession, 340),
    (Mutant::BackupForAnybody, 284),
    (Mutant::AckTooSoon, 216),
    (Mutant::RowsOfLaterEpoch, 205),
    (Mutant::DecisionSaidOnce, 215),
    (Mutant::WindowUnbounded, 190),
    (Mutant::ServerEpoch, 186),
    (Mutant::VoteRepeats, 137),
    (Mutant::RecordIgnored, 136),
    (Mutant::CommitsForgotten, 136),
    (Mutant::RepeatCommitted, 136),
    (Mutant::VoteForgotten, 136),
    (Mutant::RepeatTakesLock, 128),
    (Mutant::MappingRestamped, 112),
    (Mutant::CancelledLockKept, 102),
    (Mutant::RowsNotMoved, 96),
    (Mutant::BegunUnannounced, 76),
    (Mutant::CloneCancelStale, 179),
    (Mutant::CloneFailureFiltered, 106),
    (Mutant::DelegateGcTooSoon, 167),
    (Mutant::PlaceGivenUpPassed, 170),
    (Mutant::PlaceFollowsBroken, 143),
    (Mutant::PlaceStallUnpolled, 2317),
];

/// Mutants of the element that this simulation catches. The others only cause repeats and load, which callers
/// compensate; the comparison of executions catches them.
const CLONE_OF_ELEMENT: [Mutant; 11] = [
    Mutant::CloneShadowKept,
    Mutant::CloneOldReportTaken,
    Mutant::CloneUnfiltered,
    Mutant::CloneWhileBusy,
    Mutant::CloneUnasked,
    Mutant::CloneStaleDropped,
    Mutant::CloneCancelStale,
    Mutant::CloneBelieved,
    Mutant::CloneSwitchIgnored,
    Mutant::CloneLongest,
    Mutant::CloneDirectSteered,
];

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

/// Mutant without effect here: a later vote or the report of the caller whose vote decided replaces the record. The
/// comparison of executions catches it.
const UNSEEN_BY_MAP: Mutant = Mutant::DecidedForgotten;

/// Mutant without effect here: no request follows another one onto a failed path. Only reads alone would show it, and
/// no application here sends reads over the same resources as writes.
const UNSEEN_BY_PLACE: Mutant = Mutant::PlaceFailedPassed;

/// Expects that each mutant is caught within `seeds` seeds, and that the same seed passes without it.
fn expect_each_caught<S: Simulation>(mutants: impl IntoIterator<Item = Mutant>, seeds: u64) {
    let mut missed = Vec::new();
    for mutant in mutants {
        let started = std::time::Instant::now();
        let first = RARE.iter().filter(|(rare, _)| *rare == mutant).map(|&(_, seed)| S::find_mutant(mutant, seed, 1));
        let mut first = first.filter(|report| !report.findings.is_empty());
        match first.next().unwrap_or_else(|| S::find_mutant(mutant, 1, seeds)).findings.first() {
            Some(finding) => {
                let seconds = started.elapsed().as_secs_f64();
                println!("{mutant:?} ({seconds:.1} s): seed {}: {}", finding.seed, finding.violation);
                assert!(S::run(finding.seed).failure.is_none(), "seed {}, with none planted", finding.seed);
            }
            None => {
                println!("{mutant:?}: MISSED");
                missed.push(mutant);
            }
        }
    }
    assert!(missed.is_empty(), "not caught within {seeds} seeds: {missed:?}");
}

/// Shrinks the plan of the first seed that shows a mutant; returns the plan before and after.
fn shrunk<S: Simulation>(mutant: Mutant, seeds: u64) -> (S::Plan, S::Plan) {
    mutant::plant(Some(mutant));
    let plan = (1..seeds).map(S::generate).find(|plan| S::play(plan).failure.is_some());
    let plan = plan.expect("a seed that shows the mutant");
    let smallest = S::shrink(&plan).expect("plan fails");
    assert!(S::play(&smallest).failure.is_some());
    mutant::plant(None);
    (plan, smallest)
}

#[test]
fn every_map_mutant_is_caught() {
    let seen = Mutant::MAP.iter().copied().filter(|mutant| *mutant != UNSEEN_BY_MAP);
    expect_each_caught::<MapSimulation>(seen, SEEDS);
}

#[test]
fn every_clone_mutant_is_caught() {
    expect_each_caught::<CloneSimulation>(Mutant::CLONE_HOSTS.iter().chain(&CLONE_OF_ELEMENT).copied(), SEEDS);
}

#[test]
fn every_delegate_mutant_is_caught() {
    expect_each_caught::<DelegateSimulation>(Mutant::DELEGATE.iter().copied(), SEEDS);
}

#[test]
fn every_function_mutant_is_caught() {
    // Turns are ordered by age, so this mutant has no effect in the simulator; the test in `installer.rs` catches it.
    let seen = Mutant::FUNCTION.iter().copied().filter(|mutant| *mutant != Mutant::FunctionEarlyValues);
    expect_each_caught::<FunctionSimulation>(seen, SEEDS);
}

#[test]
fn every_place_mutant_is_caught() {
    let seen = Mutant::PLACE.iter().copied().filter(|mutant| *mutant != UNSEEN_BY_PLACE);
    expect_each_caught::<PlaceSimulation>(seen, SEEDS_OF_PLACE);
}

#[test]
fn every_combined_mutant_is_caught() {
    expect_each_caught::<CombinedSimulation>(Mutant::TOGETHER.iter().chain(&OF_PARTS).copied(), SEEDS_COMBINED);
}

#[test]
fn combined_mutants_are_not_caught_by_single_simulations() {
    for &mutant in Mutant::TOGETHER {
        let of_map = MapSimulation::find_mutant(mutant, 1, 100).findings;
        let of_clone = CloneSimulation::find_mutant(mutant, 1, 100).findings;
        assert!(of_map.is_empty() && of_clone.is_empty(), "{mutant:?} is caught in one ability alone");
    }
}

#[test]
fn failing_clone_plan_is_shrunk() {
    let (_, smallest) = shrunk::<CloneSimulation>(Mutant::CloneAnsweredTwice, SEEDS);
    assert!(smallest.calls.len() <= 2 && smallest.incidents.len() <= 1, "{smallest:#?}");
}

#[test]
fn failing_delegate_plan_is_shrunk() {
    let (plan, smallest) = shrunk::<DelegateSimulation>(Mutant::DELEGATE[0], SEEDS);
    let (before, after) = (plan.calls.len(), smallest.calls.len());
    assert!(after <= 2 && after < before, "{before} calls, then {after}");
}

#[test]
fn failing_function_plan_is_shrunk() {
    let (plan, smallest) = shrunk::<FunctionSimulation>(Mutant::FunctionOvertakes, SEEDS);
    let (before, after) = (plan.packets.len(), smallest.packets.len());
    assert!(after * 4 < before && smallest.incidents.len() <= 1, "{before} packets, then {after}");
}

#[test]
fn failing_place_plan_is_shrunk() {
    let (plan, smallest) = shrunk::<PlaceSimulation>(Mutant::PlaceOvertakes, SEEDS_OF_PLACE);
    let (before, after) = (plan.requests.len(), smallest.requests.len());
    assert!(after <= 4 && after < before && smallest.station_faults.len() <= 1, "{before} requests, then {after}");
}

#[test]
fn failing_combined_plan_is_shrunk_to_needed_parts() {
    let (_, smallest) = shrunk::<CombinedSimulation>(Mutant::TogetherPoolsForgotten, SEEDS_COMBINED);
    assert!(smallest.map.is_some() && smallest.clone.is_some(), "{smallest:#?}");
    assert!(smallest.delegate.is_none() && smallest.function.is_none() && smallest.place.is_none(), "{smallest:#?}");
    assert!(smallest.pauses.is_empty() && smallest.cuts.is_empty(), "{smallest:#?}");
}
