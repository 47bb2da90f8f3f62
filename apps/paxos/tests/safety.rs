//! Safety and progress over many seeds, and planted mistakes that the same checks find.

use paxos::consensus::Mutant;

use crate::simulator::Simulation;

/// Seeds of a test run; `PAXOS_SEEDS` asks for more.
const SEEDS: u64 = 200;
/// Seeds within which a planted mistake is found.
const SEEDS_OF_MUTANT: u64 = 1_000;

#[test]
fn chosen_values_stay_and_operations_are_linearizable_under_faults() {
    let seeds = std::env::var("PAXOS_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    let (mut counted, mut chosen, mut elections) = (0, 0, 0);
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed, None);
        if let Err(broken) = simulation.run() {
            panic!("seed {seed}: {broken}");
        }
        counted += simulation.counted;
        elections += simulation.elections;
        chosen += simulation.history.chosen.len();
    }
    println!("{seeds} seeds: {chosen} slots, {counted} votes answered by the network, {elections} elections");
    assert!(counted > 20 * seeds && elections > seeds, "too few counted votes or elections");
}

#[test]
fn seed_gives_same_run() {
    for seed in [1, 2, 3] {
        let [one, other] = [(); 2].map(|()| {
            let mut simulation = Simulation::new(seed, None);
            simulation.run().expect("a correct run");
            (simulation.trace, simulation.history.chosen)
        });
        assert!(one == other, "seed {seed}");
    }
}

/// Runs seeds until one breaks a rule.
fn assert_found(mutant: Mutant) {
    let found = (0..SEEDS_OF_MUTANT).find_map(|seed| {
        let broken = Simulation::new(seed, Some(mutant)).run().err()?;
        Some((seed, broken))
    });
    let (seed, broken) = found.unwrap_or_else(|| panic!("{mutant:?} was not found"));
    println!("{mutant:?}: seed {seed}: {broken}");
    assert_ne!(broken, "not finished in time", "a safety rule has to break");
}

#[test]
fn leader_without_accepted_values_is_found() {
    assert_found(Mutant::AcceptedIgnored);
}

#[test]
fn leader_with_lowest_accepted_ballot_is_found() {
    assert_found(Mutant::LowestBallotWins);
}

#[test]
fn learner_that_adds_ballots_is_found() {
    assert_found(Mutant::BallotsAdded);
}

#[test]
fn counter_reused_before_settlement_is_found() {
    assert_found(Mutant::CounterReusedEarly);
}

#[test]
fn proposal_in_truncated_slot_is_found() {
    assert_found(Mutant::TruncatedProposed);
}

#[test]
fn acceptance_below_promise_is_found() {
    assert_found(Mutant::OldBallotAccepted);
}
