//! Lane bytes that reach the server, counted exactly on a network without faults.

use std::time::Duration;

use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::{Modify, Operation};
use pathcall_program::Size;
use pathcall_sim::Simulation;
use pathcall_sim::map::scenario::{ApplicationPlan, MapCallerPlan, Purpose, RegisterRange, Scenario, Step};
use pathcall_sim::map::{MapOutcome, MapSimulation};
use pathcall_wire::{ForwardTarget, Instant};

const LENGTHS: [usize; 4] = [1, 256, 1000, 5000];

/// Scenario of `workers` callers that sum arrays of all [`LENGTHS`], with or without an element.
fn sums(workers: u32, element: bool) -> Scenario {
    let memory = RegisterRange { element: 0, row_base: 0, rows: 8, lane_base: 0, width: 256 };
    let long = Duration::from_secs(10);
    let operation = |worker: u32, len: usize| Operation::Sum {
        lanes: (0..len as i64).map(|lane| lane * 31 + i64::from(worker)).collect(),
        modify: Modify::default(),
        threshold: workers,
        to: ForwardTarget::All,
    };
    let caller = |worker: u32| MapCallerPlan {
        endpoint: 10 + worker,
        incarnation: 1,
        slot_base: worker * 2,
        flows: 2,
        registered: element,
        by_element: element,
        joins: Instant(0),
        crash: None,
        leaves: None,
        succeeds: None,
        outstanding: 2,
        steps: LENGTHS.iter().map(|len| Step::call(operation(worker, *len))).collect(),
    };
    Scenario {
        seed: 1,
        elements: Vec::from_iter(element.then_some(Size { rows: 8, lanes: 8 * 256, slots: 2 * workers as usize })),
        applications: vec![ApplicationPlan {
            memory: element.then_some(memory),
            width: 256,
            purpose: Purpose::Sum,
            timing: FlowTiming {
                rto_min: long,
                rto_initial: long,
                rto_max: long,
                probe: (long, long),
                silent: long * 5,
                give_up: long * 9,
                early: None,
                congestion_control: true,
            },
            callers: (0..workers).map(caller).collect(),
            ..ApplicationPlan::default()
        }],
        ..Scenario::default()
    }
}

fn played(scenario: &Scenario) -> MapOutcome {
    let outcome = MapSimulation::play(scenario);
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.counts.retransmits, 0);
    outcome
}

#[test]
fn server_receives_lane_bytes_of_one_worker_with_element() {
    let bytes: usize = LENGTHS.iter().map(|len| len * 4).sum();
    for workers in 1..=8u32 {
        let outcome = played(&sums(workers, true));
        assert_eq!(outcome.counts.lane_bytes_sent, bytes as u64 * u64::from(workers), "{workers} workers");
        assert_eq!(outcome.counts.lane_bytes_received, bytes as u64, "{workers} workers");
        assert_eq!(outcome.counts.rounds_software, 0, "{workers} workers");
        assert_eq!(outcome.counts.lanes_software, 0, "{workers} workers");
    }
}

#[test]
fn server_receives_all_lane_bytes_without_element() {
    for workers in 1..=8 {
        let outcome = played(&sums(workers, false));
        assert_eq!(outcome.counts.lane_bytes_received, outcome.counts.lane_bytes_sent, "{workers} workers");
        assert_eq!(outcome.counts.rounds_element, 0, "{workers} workers");
        assert_eq!(outcome.counts.lanes_element, 0, "{workers} workers");
    }
}
