//! Tests of hedges that the element holds: granted with the request, and taken back if they were not sent.

use pathcall_wire::clone::CLONE;

use super::*;

/// Caller whose element holds hedges, with this budget.
fn holding(burst: f64) -> CloneCaller {
    let budgets = vec![HedgeBudgetConfig { share: 0.0, burst, per_second: 0.0 }];
    CloneCaller::new(Instant(0), CloneCallerConfig { budgets, element_holds: true, ..config() })
}

/// Options of a call for the shorter queue that is hedged after 3 ms.
fn hedged() -> CloneOptions {
    let hedge = Hedge { after: HedgeAfter::Delay(ms_of(3)), max_attempts: 2 };
    CloneOptions { hedge: Some(hedge), balance: Balance::Shortest, cancel: true, ..random() }
}

/// Delays in us that the requests of new calls carry.
fn delays(caller: &mut CloneCaller, options: CloneOptions, calls: usize) -> Vec<u32> {
    for _ in 0..calls {
        start_call(caller, ms(0), options);
    }
    sent(caller).iter().map(|sent| sent.base.round).collect()
}

#[test]
fn request_carries_delay_only_if_element_holds_hedges() {
    assert_eq!(delays(&mut holding(9.0), hedged(), 1), [3_000]);
    assert_eq!(delays(&mut caller(), hedged(), 1), [0]);
    let no_hedge = CloneOptions { hedge: None, ..hedged() };
    let no_time = CloneOptions { deadline: ms_of(3), ..hedged() };
    let once = CloneOptions { idempotent: false, ..hedged() };
    for options in [no_hedge, no_time, once, CloneOptions { balance: Balance::Random, ..hedged() }] {
        assert_eq!(delays(&mut holding(9.0), options, 1), [0], "{options:?}");
    }
    let mut caller = holding(9.0);
    caller.set_element_holds(false);
    assert_eq!(delays(&mut caller, hedged(), 1), [0]);
}

#[test]
fn request_of_several_parts_is_hedged_by_its_caller() {
    let mut caller = holding(9.0);
    start_call_for(&mut caller, ms(0), hedged(), &[0; PART + 1]);
    assert!(sent(&mut caller).iter().all(|sent| sent.base.round == 0));
    caller.poll(ms(3));
    assert_eq!((caller.stats().hedged, sent(&mut caller).len()), (1, 2));
}

#[test]
fn caller_sends_no_hedge_that_element_holds() {
    let mut caller = holding(9.0);
    start_call(&mut caller, ms(0), hedged());
    let request = sent(&mut caller).remove(0);
    (1..20).for_each(|at| caller.poll(Instant(at * 1_000_000)));
    assert!(sent(&mut caller).iter().all(|sent| sent.head.attempt > 0 && sent.base.round == 0), "only repeats");
    assert_eq!(caller.stats().hedged, 0);
    caller.receive(ms(20), &answer(&request, 12, CloneRepr { clo: CLONE, ..by_element() }, b"yes"));
    let CloneCallerStats { hedged, hedged_by_element, cloned, cancelled, .. } = caller.stats();
    assert_eq!((hedged, hedged_by_element, cloned), (0, 1, 0));
    assert!(cancelled > 0, "the slower server is told");
}

#[test]
fn hedge_that_was_not_sent_returns_to_budget() {
    let mut caller = holding(2.0);
    for call in 0..10 {
        start_call(&mut caller, ms(call), hedged());
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.base.round, 3_000, "call {call}");
        caller.receive(ms(call + 1), &answer(&request, 11, by_element(), b"yes"));
    }
    let CloneCallerStats { answered, refused, .. } = caller.stats();
    assert_eq!((answered, caller.stats().extra(), refused.total()), (10, 0, 0));
    // Those that were sent do not return.
    for sent_by_element in [true, false] {
        start_call(&mut caller, ms(20), hedged());
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.base.round != 0, sent_by_element);
        let head = CloneRepr { clo: ORIGINAL, ..by_element() };
        caller.receive(ms(21), &answer(&request, 11, if sent_by_element { head } else { by_element() }, b"yes"));
    }
    assert_eq!(caller.stats().hedged_by_element, 1);
}

#[test]
fn grants_leave_half_of_budget_to_timers_of_caller() {
    let mut caller = holding(8.0);
    assert_eq!(delays(&mut caller, hedged(), 6), [3_000, 3_000, 3_000, 3_000, 0, 0]);
    caller.poll(ms(3));
    assert_eq!((caller.stats().hedged, caller.stats().refused.budget), (2, 0));
}

#[test]
fn grant_of_clone_pays_for_hedge_too() {
    let mut caller = holding(1.0);
    let options = CloneOptions { clone: true, ..hedged() };
    start_call(&mut caller, ms(0), options);
    let request = sent(&mut caller).remove(0);
    assert_eq!((request.base.round, request.head.flags & CloneFlags::CLONE), (3_000, CloneFlags::CLONE));
    let at_once = CloneRepr { clo: ORIGINAL, flags: CloneFlags::CLONE, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, at_once, b"yes"));
    assert_eq!((caller.stats().cloned, caller.stats().hedged_by_element), (1, 0));
    start_call(&mut caller, ms(1), options);
    let request = sent(&mut caller).pop().expect("a request");
    assert_eq!((request.base.round, request.head.flags & CloneFlags::CLONE), (0, 0), "nothing is left");
}

#[test]
fn caller_hedges_when_server_reports_that_element_does_not_hold() {
    let mut caller = holding(9.0);
    start_call(&mut caller, ms(0), hedged());
    let request = sent(&mut caller).remove(0);
    caller.poll(ms(3));
    assert!(sent(&mut caller).is_empty());
    caller.receive(ms(4), &reply(FrameKind::CloneWorking, &request, 11, by_element(), b""));
    caller.poll(ms(4));
    let hedges = sent(&mut caller);
    assert_eq!((hedges.len(), hedges[0].base.round, hedges[0].head.attempt), (1, 0, 1));
    assert_eq!(caller.stats().hedged, 1);
}

#[test]
fn report_of_held_request_causes_no_hedge() {
    let mut caller = holding(9.0);
    start_call(&mut caller, ms(0), hedged());
    let request = sent(&mut caller).remove(0);
    let head = CloneRepr { clo: ORIGINAL, ..by_element() };
    caller.receive(ms(2), &reply(FrameKind::CloneWorking, &request, 11, head, b""));
    caller.poll(ms(3));
    assert!(sent(&mut caller).is_empty() && caller.stats().hedged == 0);
}

#[test]
fn failed_answer_without_hedge_lets_caller_ask_another_server() {
    let mut caller = holding(9.0);
    start_call(&mut caller, ms(0), hedged());
    let request = sent(&mut caller).remove(0);
    let failed = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, failed, b"no"));
    caller.poll(ms(1));
    assert_eq!((sent(&mut caller).len(), caller.stats().after_failed), (1, 1));
}

#[test]
fn failed_answer_with_hedge_waits_for_it() {
    let mut caller = holding(9.0);
    start_call(&mut caller, ms(0), hedged());
    let request = sent(&mut caller).remove(0);
    let failed = CloneRepr { flags: CloneFlags::FAILED | CloneFlags::CLONE, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, failed, b"no"));
    caller.poll(ms(1));
    assert!(sent(&mut caller).is_empty() && answered(&mut caller).is_none());
    caller.receive(ms(2), &answer(&request, 12, CloneRepr { clo: CLONE, ..by_element() }, b"yes"));
    assert_eq!(answered(&mut caller).expect("an answer").1, b"yes");
}

#[test]
fn learned_delay_grows_although_element_holds_hedges() {
    let share = Hedge { after: HedgeAfter::Share(100), max_attempts: 2 };
    let options = CloneOptions { hedge: Some(share), ..hedged() };
    // No call is repeated.
    let config = CloneCallerConfig { element_holds: true, retry_min: ms_of(1_000), ..config() };
    let mut caller = CloneCaller::new(Instant(0), config);
    for call in 0..16 {
        start_call(&mut caller, ms(10 * call), options);
        let request = sent(&mut caller).remove(0);
        caller.receive(ms(10 * call + 1), &answer(&request, 11, by_element(), b"yes"));
    }
    let before = delays(&mut caller, options, 20)[0];
    assert!((3_900..=4_000).contains(&before), "{before}");
    caller.poll(ms(4));
    let after = *delays(&mut caller, options, 1).last().expect("a request");
    assert!(after > before, "{before}, then {after}: calls in progress take longer");
}
