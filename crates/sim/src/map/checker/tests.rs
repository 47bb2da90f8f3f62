use std::time::Duration;

use pathcall_endpoint::map::Modify;
use pathcall_wire::{ForwardTarget, Instant, OpType};

use super::*;
use crate::map::caller::call_id;
use crate::map::scenario::{MapCallerPlan, Query, Step};

/// Scenario of one application without an element; one list of steps for each caller.
fn scenario(purpose: Purpose, steps: Vec<Vec<Step>>) -> Scenario {
    let caller = |steps| MapCallerPlan {
        endpoint: 0,
        incarnation: 1,
        slot_base: 0,
        flows: 1,
        registered: false,
        by_element: false,
        joins: Instant(0),
        crash: None,
        leaves: None,
        succeeds: None,
        outstanding: 1,
        steps,
    };
    let application = ApplicationPlan {
        width: 256,
        purpose,
        callers: steps.into_iter().map(caller).collect(),
        queries: vec![Query { at: Instant(0), keys: None }],
        ..ApplicationPlan::default()
    };
    Scenario { applications: vec![application], ..Scenario::default() }
}

fn sum(lanes: &[i64], modify: Modify) -> Step {
    Step::call(Operation::Sum { lanes: lanes.to_vec().into(), modify, threshold: 2, to: ForwardTarget::All })
}

fn add(value: i64, get: bool) -> Step {
    let pairs = vec![(Key::from("k"), value)];
    Step::call(Operation::Add { pairs, modify: Modify::default(), get, ack: Ack::Element })
}

fn lock() -> Step {
    let work = StepWork::Lock { keys: vec![Key::from("k")], hold: Duration::ZERO };
    Step { work, ..add(0, false) }
}

const ONE: MapNodeId = MapNodeId::Caller(0, 0);
const OTHER: MapNodeId = MapNodeId::Caller(0, 1);
const OWNER: MapNodeId = MapNodeId::Owner(0);
const FIRST: CallId = CallId(0);

fn started(step: usize) -> NodeReport {
    NodeReport::Started(call_id(step, false))
}

fn finished(step: usize, output: Output) -> NodeReport {
    NodeReport::Finished(call_id(step, false), Ok(output))
}

fn answered(value: i64) -> NodeReport {
    NodeReport::Answered(QueryId(0), Ok(vec![(Key::from("k"), value)]))
}

/// Feeds reports to a checker; returns the result of the last one, and expects the others to be right.
fn check_reports(scenario: &Scenario, reports: &[(MapNodeId, NodeReport)]) -> Result<(), MapViolation> {
    let mut checker = MapChecker::new(scenario);
    let (last, rest) = reports.split_last().expect("reports");
    for (node, report) in rest {
        checker.check_report(*node, report).expect("no violation so far");
    }
    checker.check_report(last.0, &last.1)
}

#[test]
fn sums_of_modified_inputs_have_64_bits() {
    let double = Modify { op: OpType::ShiftL, para: 1 };
    let scenario = scenario(Purpose::Sum, vec![vec![sum(&[1, 1 << 30], double)], vec![sum(&[2, 1], double)]]);
    let got = |sums: &[i64]| {
        check_reports(
            &scenario,
            &[(ONE, started(0)), (OTHER, started(0)), (ONE, finished(0, Output::Sums(sums.to_vec().into())))],
        )
    };
    // Operators are 32 bits wide, and twice 2^30 exceeds them.
    assert_eq!(got(&[6, -(1 << 31) + 2]), Ok(()));
    assert_eq!(got(&[6, 2]), Err(MapViolation::Sum { node: ONE, step: 0, lane: 1, expected: -(1 << 31) + 2, got: 2 }));
    assert!(matches!(got(&[6]), Err(MapViolation::Output { .. })));
    assert!(matches!(
        check_reports(&scenario, &[(ONE, started(0)), (ONE, finished(0, Output::Done))]),
        Err(MapViolation::Output { .. })
    ));
}

#[test]
fn second_end_of_call_is_violation() {
    let scenario = scenario(Purpose::Add, vec![vec![add(1, false)]]);
    let twice = MapViolation::OutOfTurn { node: ONE, step: 0, report: "finished", state: "finished" };
    let done = (ONE, finished(0, Output::Done));
    assert_eq!(check_reports(&scenario, &[(ONE, started(0)), done.clone(), done.clone()]), Err(twice));
    let cancelled = MapViolation::OutOfTurn { node: ONE, step: 0, report: "finished", state: "cancelled" };
    assert_eq!(
        check_reports(&scenario, &[(ONE, started(0)), (ONE, NodeReport::Cancelled(FIRST)), done.clone()]),
        Err(cancelled)
    );
    let never = MapViolation::OutOfTurn { node: ONE, step: 0, report: "finished", state: "never started" };
    assert_eq!(check_reports(&scenario, &[done]), Err(never));
}

#[test]
fn unexpected_error_is_violation() {
    let scenario = scenario(Purpose::Add, vec![vec![add(1, false)]]);
    let failed = NodeReport::Finished(FIRST, Err(CallError::KeysFull));
    let expected = MapViolation::CallFailed { node: ONE, step: 0, error: CallError::KeysFull };
    assert_eq!(check_reports(&scenario, &[(ONE, started(0)), (ONE, failed)]), Err(expected));
}

#[test]
fn value_is_exact_between_calls_and_in_range_during_calls() {
    let scenario = scenario(Purpose::Add, vec![vec![add(5, false)], vec![add(-3, false)]]);
    let asked = (OWNER, NodeReport::Asked(QueryId(0)));
    let value = |got, during: bool| {
        let mut reports = vec![(ONE, started(0)), (ONE, finished(0, Output::Done)), asked.clone()];
        if during {
            reports.push((OTHER, started(0)));
        }
        reports.push((OWNER, answered(got)));
        check_reports(&scenario, &reports)
    };
    assert_eq!(value(5, false), Ok(()));
    assert!(matches!(value(2, false), Err(MapViolation::Value { low: 5, high: 5, got: 2, .. })));
    assert_eq!(value(2, true), Ok(()));
    assert_eq!(value(5, true), Ok(()));
    assert!(matches!(value(1, true), Err(MapViolation::Value { low: 2, high: 5, .. })));
}

#[test]
fn returned_value_includes_own_addition() {
    let scenario = scenario(Purpose::AddGet, vec![vec![add(5, true)], vec![add(2, true)]]);
    let got = |value| {
        check_reports(
            &scenario,
            &[(ONE, started(0)), (OTHER, started(0)), (ONE, finished(0, Output::Values(vec![value])))],
        )
    };
    assert_eq!((got(5), got(7)), (Ok(()), Ok(())));
    assert!(matches!(got(2), Err(MapViolation::Value { low: 5, high: 7, .. })));
    let none = check_reports(&scenario, &[(ONE, started(0)), (ONE, finished(0, Output::Values(vec![])))]);
    assert!(matches!(none, Err(MapViolation::Output { .. })));
}

#[test]
fn cancelled_call_took_effect_wholly_or_not_at_all() {
    let marker = Key::from((7 << 56) + 1);
    let pairs = vec![(Key::from("k"), 5), (marker.clone(), 1)];
    let step = Step::call(Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element });
    let scenario = scenario(Purpose::Add, vec![vec![step], vec![add(2, false)]]);
    let ended = |k: i64, mark: i64| {
        let mut checker = MapChecker::new(&scenario);
        let reports = [started(0), NodeReport::Cancelled(FIRST)].map(|report| (ONE, report));
        let other = [started(0), finished(0, Output::Done)].map(|report| (OTHER, report));
        for (node, report) in reports.iter().chain(&other) {
            checker.check_report(*node, report).expect("no violation so far");
        }
        assert!(checker.all_ended());
        checker.final_values(0, &[(Key::from("k"), k), (marker.clone(), mark)])
    };
    assert_eq!((ended(7, 1), ended(2, 0)), (Ok(()), Ok(())));
    assert!(matches!(ended(7, 0), Err(MapViolation::Value { low: 2, high: 2, got: 7, .. })));
    assert!(matches!(ended(2, 1), Err(MapViolation::Value { low: 7, high: 7, got: 2, .. })));
    assert!(matches!(ended(9, 2), Err(MapViolation::Value { low: 0, high: 1, got: 2, .. })));
}

#[test]
fn addition_is_refused_only_if_sum_may_exceed_64_bits() {
    let most = 3 << 61;
    let scenario = scenario(Purpose::Add, vec![vec![add(most, false)], vec![add(most, false)]]);
    let refused = || NodeReport::Finished(FIRST, Err(CallError::Overflow { position: 0 }));
    let begin = [(ONE, started(0)), (OTHER, started(0)), (OTHER, refused())];
    assert_eq!(check_reports(&scenario, &begin), Ok(()));
    assert!(matches!(
        check_reports(&scenario, &[&begin[..], &[(ONE, refused())]].concat()),
        Err(MapViolation::CallFailed { .. })
    ));
    let asked = (OWNER, NodeReport::Asked(QueryId(0)));
    let value = |got| {
        let end = [(ONE, finished(0, Output::Done)), asked.clone(), (OWNER, answered(got))];
        check_reports(&scenario, &[&begin[..], &end].concat())
    };
    assert_eq!(value(most), Ok(()));
    assert!(matches!(value(0), Err(MapViolation::Value { .. })));
}

#[test]
fn lock_has_one_holder() {
    let scenario = scenario(Purpose::Lock, vec![vec![lock()], vec![lock()]]);
    let granted = |node, token| (node, finished(0, Output::Locked { tokens: vec![token], lease: Duration::ZERO }));
    let begin = [(ONE, started(0)), (OTHER, started(0)), granted(ONE, 7)];
    let key = || Key::from("k");
    let twice = MapViolation::HeldTwice { node: OTHER, key: key(), holder: ONE };
    assert_eq!(check_reports(&scenario, &[&begin[..], &[granted(OTHER, 8)]].concat()), Err(twice));
    let release = |node| (node, NodeReport::Started(call_id(0, true)));
    assert_eq!(check_reports(&scenario, &[&begin[..], &[release(ONE), granted(OTHER, 8)]].concat()), Ok(()));
    let order = MapViolation::TokenOrder { node: OTHER, key: key(), token: 7, last: 7 };
    assert_eq!(check_reports(&scenario, &[&begin[..], &[release(ONE), granted(OTHER, 7)]].concat()), Err(order));
    let mut checker = MapChecker::new(&scenario);
    for (node, report) in &begin {
        checker.check_report(*node, report).expect("no violation so far");
    }
    let (node, late) = granted(OTHER, 8);
    checker.check_lock_rivals(node, &late, |holder, step| (holder, step) != (ONE, 0));
    assert_eq!(checker.check_report(node, &late), Ok(()), "first holder has lost the lock and detects it");
    checker.check_report(ONE, &release(ONE).1).expect("a late release");
    assert_eq!(checker.applications[0].locks.holder(&key()).map(|holding| holding.node), Some(OTHER));
}

#[test]
fn one_message_is_forwarded_at_threshold() {
    let purpose = Purpose::Count { threshold: 2, to: ForwardTarget::Server };
    let to = ForwardTarget::Server;
    let count = || Step::call(Operation::Count { keys: vec![Key::from("k")], threshold: 2, to, ack: Ack::Element });
    let scenario = scenario(purpose, vec![vec![count()], vec![count()]]);
    let told = |node, forwarded| (node, finished(0, Output::Counted { forwarded: vec![forwarded] }));
    let early = MapViolation::CountedEarly { node: ONE, key: Key::from("k"), counted: 1, threshold: 2 };
    assert_eq!(check_reports(&scenario, &[(ONE, started(0)), told(ONE, true)]), Err(early));
    for (first, second) in [(true, false), (false, true), (true, true), (false, false)] {
        let mut checker = MapChecker::new(&scenario);
        for (node, report) in [(ONE, started(0)), (OTHER, started(0)), told(ONE, first), told(OTHER, second)] {
            checker.check_report(node, &report).expect("no violation so far");
        }
        assert_eq!(checker.check_end().is_ok(), first != second, "{first} {second}");
    }
}
