//! Sums in two levels: groups of workers, each below a level, and a root that sums the levels. The network between them
//! loses, repeats and delays frames.

mod net;

use pathcall_endpoint::map::client::MapClient;
use pathcall_endpoint::map::{CallError, Output};
use proptest::prelude::*;

use net::{Faults, INCARNATION, Net, WIDTH};

#[test]
fn sums_of_128_workers_are_exact_under_faults() {
    let mut net = Net::new(16, 8, Faults { lost: 3, repeated: 3, delayed: 10 }, 7);
    for step in 1..4 {
        net.start(step, 1_000);
        net.run(step);
        net.expect_sums(step, 1_000);
    }
}

#[test]
fn level_of_8_workers_sends_as_few_bytes_as_one_worker() {
    let lanes = 4 * usize::from(WIDTH);
    let mut net = Net::new(16, 8, Faults::default(), 1);
    net.start(1, lanes);
    net.run(1);
    net.expect_sums(1, lanes);
    // Each worker at the root: no more than 64 can be there.
    let mut flat = Net::new(64, 1, Faults::default(), 1);
    flat.start(1, lanes);
    flat.run(1);
    flat.expect_sums(1, lanes);
    assert!(net.uplink_bytes * 64 <= flat.uplink_bytes * 16, "{} and {}", net.uplink_bytes, flat.uplink_bytes);
}

/// Groups, workers of a group, faults and seed of a run.
type Run = (usize, usize, Faults, u64);

fn runs() -> impl Strategy<Value = Run> {
    let faults = (0u64..20, 0u64..20, 0u64..30);
    let faults = faults.prop_map(|(lost, repeated, delayed)| Faults { lost, repeated, delayed });
    (2usize..5, 1usize..5, faults, any::<u64>())
}

/// Makes steps of these numbers of lanes.
fn check_steps((groups, workers, faults, seed): Run, lanes: &[usize]) {
    let mut net = Net::new(groups, workers, faults, seed);
    for (step, &lanes) in (1..).zip(lanes) {
        net.start(step, lanes);
        net.run(step);
        net.expect_sums(step, lanes);
    }
}

/// Abandons a step in one group after `frames` frames, and makes the next one.
fn check_abandoned((groups, workers, faults, seed): Run, lanes: usize, frames: u64) {
    let mut net = Net::new(groups, workers, faults, seed);
    net.start(1, lanes);
    while net.sent < frames && net.outcomes.is_empty() {
        net.poll();
        let Some(entry) = net.frames.first_entry() else { break };
        let ((at, _), (node, frame)) = entry.remove_entry();
        net.now = net.now.max(at);
        net.deliver(node, &frame);
    }
    let endpoint = net.groups[0].endpoints[0];
    net.groups[0].server.abandon_sum(net.now, endpoint, INCARNATION);
    net.settle();
    let knows = |worker: &MapClient| worker.failure() == Some(&CallError::SumAbandoned);
    assert!(net.groups.iter().flat_map(|group| &group.workers).all(knows), "all workers know of the failure");
    net.join_again();
    net.start(2, lanes);
    net.run(2);
    net.expect_sums(2, lanes);
}

/// Makes a call with fewer chunks in one group.
fn check_disagreeing((groups, workers, faults, seed): Run, lanes: usize) {
    let mut net = Net::new(groups, workers, faults, seed);
    net.start_in(0..1, 1, lanes);
    net.start_in(1..groups, 1, lanes + 100);
    net.settle();
    let disagrees = |outcome: &Result<Output, CallError>| matches!(outcome, Err(CallError::Disagree { .. }));
    assert!(net.outcomes.len() == groups * workers && net.outcomes.values().all(disagrees), "{:?}", net.outcomes);
}

proptest! {
    #[test]
    fn sums_in_two_levels_are_exact_under_faults(run in runs(), lanes in prop::collection::vec(1usize..60, 1..5)) {
        check_steps(run, &lanes);
    }

    #[test]
    fn sum_abandoned_in_one_group_fails_in_all_and_is_repeated(
        run in runs(),
        lanes in 1usize..200,
        frames in 0u64..400,
    ) {
        check_abandoned(run, lanes, frames);
    }

    #[test]
    fn groups_with_calls_of_other_lengths_fail(run in runs(), lanes in 1usize..60) {
        check_disagreeing(run, lanes);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_levels_is_caught() {
    use pathcall_wire::Mutant;
    use pathcall_wire::mutant::plant;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    for mutant in Mutant::LEVELS {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        plant(Some(*mutant));
        let plans = (runs(), 1usize..60, 0u64..400);
        let outcome = TestRunner::new_with_rng(config, rng).run(&plans, |(run, lanes, frames)| {
            check_steps(run, &[lanes]);
            check_abandoned(run, lanes, frames);
            check_disagreeing(run, lanes);
            Ok(())
        });
        plant(None);
        assert!(outcome.is_err(), "{mutant:?} is not caught");
    }
}
