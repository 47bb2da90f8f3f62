use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::{ClearPolicy, Modify};
use pathcall_wire::{Instant, OpType};

use super::*;
use crate::caller::call_id;
use crate::scenario::{CallerPlan, Query, Step};

/// One application without an element; one list of steps for each caller.
fn scenario(purpose: Purpose, steps: Vec<Vec<Step>>) -> Scenario {
    let caller = |steps| CallerPlan {
        endpoint: 0,
        incarnation: 1,
        slot_base: 0,
        flows: 1,
        registered: false,
        by_element: false,
        joins: Instant(0),
        dies: None,
        leaves: None,
        succeeds: None,
        outstanding: 1,
        steps,
    };
    let application = ApplicationPlan {
        gaid: 1,
        epoch: 1,
        endpoint: 1,
        incarnation: 1,
        token_key: None,
        memory: None,
        width: 256,
        eviction: None,
        purpose,
        ack: Ack::Element,
        clear: ClearPolicy::Copy,
        doom: None,
        timing: Timing::default(),
        lease: Duration::from_secs(5),
        callers: steps.into_iter().map(caller).collect(),
        queries: vec![Query { at: Instant(0), keys: None }],
    };
    Scenario { applications: vec![application], ..Scenario::default() }
}

fn sum(lanes: &[i64], modify: Modify) -> Step {
    Step::call(Operation::Sum { lanes: lanes.to_vec().into(), modify, threshold: 2 })
}

fn add(value: i64, get: bool) -> Step {
    let pairs = vec![(Key::from("k"), value)];
    Step::call(Operation::Add { pairs, modify: Modify::default(), get, ack: Ack::Element })
}

fn lock() -> Step {
    let work = Work::Lock { keys: vec![Key::from("k")], hold: Duration::ZERO };
    Step { work, ..add(0, false) }
}

const ONE: Node = Node::Caller(0, 0);
const OTHER: Node = Node::Caller(0, 1);
const OWNER: Node = Node::Owner(0);
const FIRST: CallId = CallId(0);

fn started(step: usize) -> Report {
    Report::Started(call_id(step, false))
}

fn finished(step: usize, output: Output) -> Report {
    Report::Finished(call_id(step, false), Ok(output))
}

fn answered(value: i64) -> Report {
    Report::Answered(QueryId(0), Ok(vec![(Key::from("k"), value)]))
}

/// Hears reports in order; what is wrong with the last one, the others being right.
fn heard(scenario: &Scenario, reports: &[(Node, Report)]) -> Result<(), Failure> {
    let mut judge = Judge::new(scenario);
    let (last, rest) = reports.split_last().expect("reports");
    for (node, report) in rest {
        judge.hear(*node, report).expect("right so far");
    }
    judge.hear(last.0, &last.1)
}

#[test]
fn sums_are_those_of_the_modified_inputs_in_64_bits() {
    let double = Modify { op: OpType::ShiftL, para: 1 };
    let scenario = scenario(Purpose::Sum, vec![vec![sum(&[1, 1 << 30], double)], vec![sum(&[2, 1], double)]]);
    let got = |sums: &[i64]| {
        heard(
            &scenario,
            &[(ONE, started(0)), (OTHER, started(0)), (ONE, finished(0, Output::Sums(sums.to_vec().into())))],
        )
    };
    // Operators are 32 bits wide: doubling 2^30 leaves them.
    assert_eq!(got(&[6, -(1 << 31) + 2]), Ok(()));
    assert_eq!(got(&[6, 2]), Err(Failure::Sum { node: ONE, step: 0, lane: 1, expected: -(1 << 31) + 2, got: 2 }));
    assert!(matches!(got(&[6]), Err(Failure::Output { .. })));
    assert!(matches!(
        heard(&scenario, &[(ONE, started(0)), (ONE, finished(0, Output::Done))]),
        Err(Failure::Output { .. })
    ));
}

#[test]
fn a_call_ends_once() {
    let scenario = scenario(Purpose::Add, vec![vec![add(1, false)]]);
    let twice = Failure::OutOfTurn { node: ONE, step: 0, report: "finished", state: "finished" };
    let done = (ONE, finished(0, Output::Done));
    assert_eq!(heard(&scenario, &[(ONE, started(0)), done.clone(), done.clone()]), Err(twice));
    let cancelled = Failure::OutOfTurn { node: ONE, step: 0, report: "finished", state: "cancelled" };
    assert_eq!(heard(&scenario, &[(ONE, started(0)), (ONE, Report::Cancelled(FIRST)), done.clone()]), Err(cancelled));
    let never = Failure::OutOfTurn { node: ONE, step: 0, report: "finished", state: "never started" };
    assert_eq!(heard(&scenario, &[done]), Err(never));
}

#[test]
fn an_error_is_wrong_where_an_answer_is_due() {
    let scenario = scenario(Purpose::Add, vec![vec![add(1, false)]]);
    let failed = Report::Finished(FIRST, Err(CallError::KeysFull));
    let expected = Failure::CallFailed { node: ONE, step: 0, error: CallError::KeysFull };
    assert_eq!(heard(&scenario, &[(ONE, started(0)), (ONE, failed)]), Err(expected));
}

#[test]
fn a_value_is_exact_between_calls_and_in_a_range_during_them() {
    let scenario = scenario(Purpose::Add, vec![vec![add(5, false)], vec![add(-3, false)]]);
    let asked = (OWNER, Report::Asked(QueryId(0)));
    let value = |got, during: bool| {
        let mut reports = vec![(ONE, started(0)), (ONE, finished(0, Output::Done)), asked.clone()];
        if during {
            reports.push((OTHER, started(0)));
        }
        reports.push((OWNER, answered(got)));
        heard(&scenario, &reports)
    };
    assert_eq!(value(5, false), Ok(()));
    assert!(matches!(value(2, false), Err(Failure::Value { low: 5, high: 5, got: 2, .. })));
    assert_eq!(value(2, true), Ok(()));
    assert_eq!(value(5, true), Ok(()));
    assert!(matches!(value(1, true), Err(Failure::Value { low: 2, high: 5, .. })));
}

#[test]
fn a_value_that_is_got_counts_its_own_addition() {
    let scenario = scenario(Purpose::AddGet, vec![vec![add(5, true)], vec![add(2, true)]]);
    let got = |value| {
        heard(&scenario, &[(ONE, started(0)), (OTHER, started(0)), (ONE, finished(0, Output::Values(vec![value])))])
    };
    assert_eq!((got(5), got(7)), (Ok(()), Ok(())));
    assert!(matches!(got(2), Err(Failure::Value { low: 5, high: 7, .. })));
    let none = heard(&scenario, &[(ONE, started(0)), (ONE, finished(0, Output::Values(vec![])))]);
    assert!(matches!(none, Err(Failure::Output { .. })));
}

#[test]
fn at_the_end_values_are_exact_and_a_cancelled_call_took_effect_wholly_or_not() {
    let marker = Key::from((7 << 56) + 1);
    let pairs = vec![(Key::from("k"), 5), (marker.clone(), 1)];
    let step = Step::call(Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element });
    let scenario = scenario(Purpose::Add, vec![vec![step], vec![add(2, false)]]);
    let ended = |k: i64, mark: i64| {
        let mut judge = Judge::new(&scenario);
        let reports = [started(0), Report::Cancelled(FIRST)].map(|report| (ONE, report));
        let other = [started(0), finished(0, Output::Done)].map(|report| (OTHER, report));
        for (node, report) in reports.iter().chain(&other) {
            judge.hear(*node, report).expect("right so far");
        }
        assert!(judge.all_ended());
        judge.final_values(0, &[(Key::from("k"), k), (marker.clone(), mark)])
    };
    assert_eq!((ended(7, 1), ended(2, 0)), (Ok(()), Ok(())));
    assert!(matches!(ended(7, 0), Err(Failure::Value { low: 2, high: 2, got: 7, .. })));
    assert!(matches!(ended(2, 1), Err(Failure::Value { low: 7, high: 7, got: 2, .. })));
    assert!(matches!(ended(9, 2), Err(Failure::Value { low: 0, high: 1, got: 2, .. })));
}

#[test]
fn an_addition_is_refused_only_where_the_sum_could_leave_64_bits() {
    let most = 3 << 61;
    let scenario = scenario(Purpose::Add, vec![vec![add(most, false)], vec![add(most, false)]]);
    let refused = || Report::Finished(FIRST, Err(CallError::Overflow { position: 0 }));
    let begin = [(ONE, started(0)), (OTHER, started(0)), (OTHER, refused())];
    assert_eq!(heard(&scenario, &begin), Ok(()));
    assert!(matches!(heard(&scenario, &[&begin[..], &[(ONE, refused())]].concat()), Err(Failure::CallFailed { .. })));
    let asked = (OWNER, Report::Asked(QueryId(0)));
    let value = |got| {
        let end = [(ONE, finished(0, Output::Done)), asked.clone(), (OWNER, answered(got))];
        heard(&scenario, &[&begin[..], &end].concat())
    };
    assert_eq!(value(most), Ok(()));
    assert!(matches!(value(0), Err(Failure::Value { .. })));
}

#[test]
fn a_lock_has_one_holder() {
    let scenario = scenario(Purpose::Lock, vec![vec![lock()], vec![lock()]]);
    let granted = |node, token| (node, finished(0, Output::Locked { tokens: vec![token], lease: Duration::ZERO }));
    let begin = [(ONE, started(0)), (OTHER, started(0)), granted(ONE, 7)];
    let key = || Key::from("k");
    let twice = Failure::HeldTwice { node: OTHER, key: key(), holder: ONE };
    assert_eq!(heard(&scenario, &[&begin[..], &[granted(OTHER, 8)]].concat()), Err(twice));
    let release = |node| (node, Report::Started(call_id(0, true)));
    assert_eq!(heard(&scenario, &[&begin[..], &[release(ONE), granted(OTHER, 8)]].concat()), Ok(()));
    let order = Failure::TokenOrder { node: OTHER, key: key(), token: 7, last: 7 };
    assert_eq!(heard(&scenario, &[&begin[..], &[release(ONE), granted(OTHER, 7)]].concat()), Err(order));
    let mut judge = Judge::new(&scenario);
    for (node, report) in &begin {
        judge.hear(*node, report).expect("right so far");
    }
    let (node, late) = granted(OTHER, 8);
    judge.look_at_rivals(node, &late, |holder, step| (holder, step) != (ONE, 0));
    assert_eq!(judge.hear(node, &late), Ok(()), "the first one has lost it, and knows it");
    judge.hear(ONE, &release(ONE).1).expect("a late release");
    assert_eq!(judge.applications[0].locks.holder(&key()).map(|holding| holding.node), Some(OTHER));
}

#[test]
fn one_message_is_forwarded_once_enough_have_counted() {
    let purpose = Purpose::Count { threshold: 2, to: Target::Server };
    let count = || Step::call(Operation::Count { keys: vec![Key::from("k")], threshold: 2, to: Target::Server });
    let scenario = scenario(purpose, vec![vec![count()], vec![count()]]);
    let told = |node, forwarded| (node, finished(0, Output::Counted { forwarded }));
    let early = Failure::CountedEarly { node: ONE, key: Key::from("k"), counted: 1, threshold: 2 };
    assert_eq!(heard(&scenario, &[(ONE, started(0)), told(ONE, true)]), Err(early));
    for (first, second) in [(true, false), (false, true), (true, true), (false, false)] {
        let mut judge = Judge::new(&scenario);
        for (node, report) in [(ONE, started(0)), (OTHER, started(0)), told(ONE, first), told(OTHER, second)] {
            judge.hear(node, &report).expect("right so far");
        }
        assert_eq!(judge.at_end().is_ok(), first != second, "{first} {second}");
    }
}
