//! What the element has to do with a stream of words whose hot ones change.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::Eviction;
use pathcall_endpoint::map::{Ack, Key, Modify, Operation};
use pathcall_program::Size;
use pathcall_sim::random::Random;
use pathcall_sim::scenario::{ApplicationPlan, CallerPlan, Memory, Purpose, Scenario, Step};
use pathcall_sim::{Outcome, play};
use pathcall_wire::Instant;

/// Words of the stream, and those of them that fit into the element.
const WORDS: u64 = 2_000;
const ROWS: u32 = 4;
/// Times that other words become the hot ones, and calls in between: one every 10 ms.
const DRIFTS: u64 = 6;
const CALLS: u64 = 500;

/// Words of a call. `weights`: sums of what the words of the first ranks weigh; `shift`: says which words
/// have which rank.
fn words(random: &mut Random, weights: &[u64], shift: u64) -> Vec<(Key, i64)> {
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..60 {
        let point = random.below(*weights.last().expect("some words"));
        let rank = weights.partition_point(|sum| *sum <= point) as u64;
        *counts.entry((rank * 7 + shift * 331) % WORDS).or_default() += 1;
    }
    counts.into_iter().map(|(word, count)| (Key::from(format!("word-{word}").as_str()), count)).collect()
}

/// Two callers that count words, `drifts` times with other ranks than before. `zipf`: the word of rank r
/// weighs 1 / r; otherwise all weigh the same.
fn counting(eviction: Option<Eviction>, drifts: u64, zipf: bool) -> Outcome {
    let mut random = Random::new(7);
    let weight = |rank: u64| if zipf { 1_000_000 / (rank + 1) } else { 1 };
    let weights: Vec<u64> = (1..=WORDS).map(|ranks| (0..ranks).map(weight).sum()).collect();
    let mut steps = || -> Vec<Step> {
        let shifts = (0..DRIFTS).map(|n| n * drifts / DRIFTS);
        let operations =
            shifts.flat_map(|shift| std::iter::repeat_n(shift, CALLS as usize)).map(|shift| Operation::Add {
                pairs: words(&mut random, &weights, shift),
                modify: Modify::default(),
                get: false,
                ack: Ack::Element,
            });
        operations.map(|operation| Step { pause: Duration::from_millis(10), ..Step::call(operation) }).collect()
    };
    let caller = |number: u32, steps: Vec<Step>| CallerPlan {
        endpoint: 10 + number,
        incarnation: 1,
        slot_base: number,
        flows: 1,
        registered: true,
        by_element: true,
        joins: Instant(0),
        dies: None,
        succeeds: None,
        outstanding: 1,
        steps,
    };
    let outcome = play(&Scenario {
        seed: 1,
        faults_until: Instant(0) + Duration::from_millis(10 * DRIFTS * CALLS),
        elements: vec![Size { rows: ROWS as usize, lanes: ROWS as usize * 64, slots: 2 }],
        applications: vec![ApplicationPlan {
            gaid: 1,
            epoch: 1,
            endpoint: 1,
            token_key: None,
            lease: LEASE,
            incarnation: 1,
            memory: Some(Memory { element: 0, row_base: 0, rows: ROWS, lane_base: 0, width: 64 }),
            width: 64,
            eviction,
            purpose: Purpose::Add,
            ack: Ack::Element,
            doom: None,
            timing: Timing::default(),
            callers: vec![caller(0, steps()), caller(1, steps())],
            queries: Vec::new(),
        }],
        ..Scenario::default()
    });
    assert_eq!(outcome.failure, None);
    outcome
}

/// Percent of additions that the element made.
fn share(outcome: &Outcome) -> u64 {
    let tally = outcome.tally;
    tally.lanes_element * 100 / (tally.lanes_element + tally.lanes_software)
}

#[test]
fn hot_words_get_the_registers_of_words_that_were_hot() {
    let (first_come, replaced) = (counting(None, DRIFTS, true), counting(Some(Eviction::default()), DRIFTS, true));
    assert_eq!(first_come.tally.keys_evicted, 0);
    assert!(share(&replaced) >= 3 * share(&first_come), "{} %, {} %", share(&replaced), share(&first_come));
}

#[test]
fn words_that_stay_hot_get_the_registers_of_those_that_came_first() {
    let (first_come, replaced) = (counting(None, 0, true), counting(Some(Eviction::default()), 0, true));
    assert!(share(&replaced) >= share(&first_come) + 8, "{} %, {} %", share(&replaced), share(&first_come));
    // And then they stay.
    let evicted = replaced.tally.keys_evicted;
    assert!(evicted < u64::from(ROWS) * 32, "{evicted}");
}

#[test]
fn words_that_are_used_alike_keep_their_registers() {
    let outcome = counting(Some(Eviction::default()), 0, false);
    let (evicted, windows) = (outcome.tally.keys_evicted, DRIFTS * CALLS / 100);
    assert!(evicted <= windows, "{evicted} of {} registers in {windows} windows", ROWS * 32);
}
