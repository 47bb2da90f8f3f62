//! Tests of failures, to which another server's answer is preferred (gRPC A6, `nonFatalStatusCodes`).

use super::*;

const HEDGE: Hedge = Hedge { after: HedgeAfter::Delay(Duration::from_secs(30)), max_attempts: 2 };

fn hedged(options: CloneOptions) -> CloneOptions {
    CloneOptions { hedge: Some(HEDGE), patience: Some(Duration::from_millis(1)), ..options }
}

/// Failure reply of a server.
fn failure(request: &Sent, server: u32, payload: &[u8]) -> Vec<u8> {
    let head = CloneRepr { flags: request.head.flags | CloneFlags::FAILED, ..by_element() };
    answer(request, server, head, payload)
}

#[test]
fn failure_triggers_hedge_at_once() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), hedged(random()));
    let first = sent(&mut caller).remove(0);
    for _ in 0..2 {
        caller.receive(ms(1), &failure(&first, first.base.dst, b"no"));
        caller.poll(ms(1));
    }
    let second = sent(&mut caller).remove(0);
    assert!(second.base.dst != first.base.dst && caller.next_event().is_none());
    caller.receive(ms(2), &answer(&second, second.base.dst, by_element(), b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
    assert_eq!((caller.stats().set_aside, caller.stats().after_failed, caller.is_empty()), (1, 1, true));
}

#[test]
fn last_failure_is_the_answer_when_all_fail() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), hedged(random()));
    for reply in [b"no 1", b"no 2"] {
        let request = sent(&mut caller).remove(0);
        assert_eq!(caller.next_event(), None);
        caller.receive(ms(1), &failure(&request, request.base.dst, reply));
        caller.poll(ms(1));
    }
    assert_eq!(answered(&mut caller), Some((call, b"no 2".to_vec())));
}

#[test]
fn failure_waits_for_other_server_of_cloned_pair() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = start_call(&mut caller, ms(0), CloneOptions { hedge, ..hedged(CloneOptions::default()) });
    let request = sent(&mut caller).remove(0);
    assert_eq!(request.head.flags, CloneFlags::CLONE);
    caller.receive(ms(1), &failure(&request, 11, b"no"));
    assert_eq!(caller.next_event(), None, "the clone may still be answered");
    caller.receive(ms(1), &answer(&request, 12, CloneRepr { clo: ORIGINAL, ..by_element() }, b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
}

#[test]
fn failed_uncloned_call_goes_to_another_server() {
    let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    for replies in [&[b"no 1", b"yes!"], &[b"no 1", b"no 2"]] {
        let mut caller = caller();
        let call = start_call(&mut caller, ms(0), CloneOptions::default());
        let request = sent(&mut caller).remove(0);
        caller.receive(ms(1), &answer(&request, 11, head, replies[0]));
        let again = sent(&mut caller).remove(0);
        assert_eq!((again.head.attempt, again.head.flags, caller.next_event()), (1, CloneFlags::DIRECT, None));
        assert!(again.base.dst != 11, "server 11 has failed");
        let head = CloneRepr { flags: if replies[1] == b"yes!" { 0 } else { CloneFlags::FAILED }, ..by_element() };
        caller.receive(ms(2), &answer(&again, again.base.dst, head, replies[1]));
        assert_eq!(answered(&mut caller), Some((call, replies[1].to_vec())));
        assert!(caller.is_empty() && sent(&mut caller).is_empty());
    }
}

#[test]
fn failure_is_the_answer_without_budget() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 0.0, per_second: 0.0 };
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], ..config() });
    let call = start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, head, b"no"));
    assert_eq!((answered(&mut caller), sent(&mut caller).len()), (Some((call, b"no".to_vec())), 0));
}

#[test]
fn failure_is_the_answer_without_working_server() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = start_call(&mut caller, ms(0), CloneOptions { hedge, ..hedged(CloneOptions::default()) });
    let request = sent(&mut caller).remove(0);
    caller.receive(ms(1), &failure(&request, 11, b"no"));
    caller.receive(ms(2), &reply(FrameKind::CloneWorking, &request, 12, by_element(), b""));
    // The working server is asked; its report may be lost.
    let mut at = 2;
    while caller.stats().reminded == 0 {
        at += 1;
        caller.poll(ms(at));
        assert_eq!(caller.next_event(), None);
    }
    assert_eq!(sent(&mut caller)[0].base.dst, 12);
    (at..at + 100).for_each(|at| caller.poll(ms(at)));
    assert_eq!(answered(&mut caller), Some((call, b"no".to_vec())));
    assert!(caller.is_empty() && sent(&mut caller).is_empty());
}

#[test]
fn working_servers_are_asked_before_failure_is_the_answer() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = start_call(&mut caller, ms(0), CloneOptions { hedge, ..hedged(CloneOptions::default()) });
    let request = sent(&mut caller).remove(0);
    for server in [12, 11] {
        caller.receive(ms(1), &reply(FrameKind::CloneWorking, &request, server, by_element(), b""));
    }
    caller.receive(ms(2), &failure(&request, 11, b"no"));
    let mut at = 2;
    let again = loop {
        at += 1;
        caller.poll(ms(at));
        assert_eq!(caller.next_event(), None, "after {at} ms");
        if let Some(again) = sent(&mut caller).pop() {
            break again;
        }
    };
    assert_eq!(again.base.dst, 12);
    caller.receive(ms(at), &answer(&again, 12, by_element(), b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
}

#[test]
fn failed_uncloned_request_is_refunded_once() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], ..config() });
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    for _ in 0..5 {
        start_call(&mut caller, ms(0), CloneOptions { hedge, ..hedged(CloneOptions::default()) });
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.head.flags, CloneFlags::CLONE, "the previous clone was refunded");
        let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
        for _ in 0..2 {
            caller.receive(ms(0), &answer(&request, 11, head, b"no"));
        }
        assert!(answered(&mut caller).is_some());
    }
}

#[test]
fn late_answers_delay_the_next_repeat() {
    let first_repeat = |caller: &mut CloneCaller| {
        start_call(caller, ms(0), CloneOptions::default());
        (0..10_000).find(|at| {
            caller.poll(Instant(at * 100_000));
            caller.stats().repeated > 0
        })
    };
    let pause = |late: bool| {
        let mut caller = caller();
        for took in [4, 4, 4, 4, 4, 40, 40, 4, 4, 4] {
            start_call(&mut caller, ms(0), CloneOptions::default());
            let request = sent(&mut caller).remove(0);
            caller.poll(ms(took));
            // The repeat is answered; the first attempt is late, or lost.
            let again = sent(&mut caller);
            let before = (late || again.is_empty()).then_some(&request);
            for request in again.iter().chain(before) {
                caller.receive(ms(took), &answer(request, 11, by_element(), b""));
            }
        }
        assert_eq!((caller.stats().repeated, caller.stats().redundant), (2, if late { 2 } else { 0 }));
        caller.stats = CloneCallerStats::default();
        first_repeat(&mut caller).expect("a repeat")
    };
    let (late, lost) = (pause(true), pause(false));
    assert!(late > lost + lost / 2, "{late} after late answers, {lost} after lost ones");
}

#[test]
fn call_is_repeated_before_its_deadline() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), CloneOptions { deadline: Duration::from_millis(40), ..CloneOptions::default() });
    (0..=40).for_each(|at| caller.poll(ms(at)));
    let stats = caller.stats();
    assert_eq!((stats.repeated, stats.failed), (3, 1), "no latency was record");
}

/// A server reports to work on the call, and all its answers are lost: each report restarts the pauses.
#[test]
fn attempts_last_until_the_deadline() {
    let budgets = vec![HedgeBudgetConfig { share: 0.0, burst: 1e6, per_second: 0.0 }];
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets, ..config() });
    start_call(&mut caller, ms(0), CloneOptions::default());
    let quick = sent(&mut caller).remove(0);
    caller.receive(ms(1), &answer(&quick, 11, by_element(), b"this"));
    assert!(answered(&mut caller).is_some());
    start_call(&mut caller, ms(1), CloneOptions { deadline: Duration::from_secs(4), ..CloneOptions::default() });
    let mut sent_at = Vec::new();
    for at in 1..=4_001 {
        caller.poll(ms(at));
        for request in sent(&mut caller) {
            caller.receive(ms(at), &reply(FrameKind::CloneWorking, &request, 11, by_element(), b""));
            sent_at.push(at);
        }
    }
    assert!(matches!(caller.next_event(), Some(Event::Failed(..))) && sent_at.len() <= 256);
    let late = sent_at.iter().filter(|at| **at > 3_000).count();
    assert!(late >= 16, "{late} of {} in the last second", sent_at.len());
}

#[test]
fn failure_of_last_possible_attempt_is_the_answer() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), hedged(random()));
    let mut last = sent(&mut caller).remove(0);
    last.head.attempt = u8::MAX;
    caller.calls.get_mut(&call.0).expect("in progress").attempt = u8::MAX;
    caller.receive(ms(1), &failure(&last, last.base.dst, b"no"));
    assert_eq!(answered(&mut caller), Some((call, b"no".to_vec())));
}

/// Caller with a call that was sent five times, and its requests.
fn sent_five_times() -> (CloneCaller, CloneCallId, Vec<Sent>) {
    let hedge = Hedge { after: HedgeAfter::Delay(Duration::from_millis(1)), max_attempts: 5 };
    let budgets = vec![HedgeBudgetConfig { share: 0.0, burst: 1e6, per_second: 0.0 }];
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets, ..config() });
    let call = start_call(&mut caller, ms(0), CloneOptions { hedge: Some(hedge), ..hedged(random()) });
    let mut requests = Vec::new();
    for at in 0..100 {
        caller.poll(ms(at));
        requests.extend(sent(&mut caller));
    }
    requests.truncate(5);
    assert_eq!(requests.len(), 5);
    (caller, call, requests)
}

/// The parts of five long answers arrive interleaved; one answer is no failure.
#[test]
fn partial_failures_do_not_evict_the_answer() {
    let (mut caller, call, requests) = sent_five_times();
    for (part, payload) in [(0, &[7; PART][..]), (1, b"end")] {
        for (i, request) in requests.iter().enumerate() {
            let flags = if i == 0 { 0 } else { CloneFlags::FAILED };
            let head = CloneRepr { flags, part, parts: 2, ..by_element() };
            caller.receive(ms(100), &answer(request, request.base.dst, head, payload));
        }
    }
    let (of, reply) = answered(&mut caller).expect("a complete answer");
    assert_eq!((of, reply.len(), caller.stats().set_aside), (call, PART + 3, 0));
}

/// The answer to the first attempt arrives last; the other answers have each lost a part.
#[test]
fn late_answer_to_early_attempt_is_accepted() {
    let (mut caller, call, requests) = sent_five_times();
    let part = |part| CloneRepr { part, parts: 2, ..by_element() };
    for request in &requests[1..] {
        caller.receive(ms(100), &answer(request, request.base.dst, part(0), &[7; PART]));
    }
    let first = &requests[0];
    caller.receive(ms(101), &answer(first, first.base.dst, part(0), &[7; PART]));
    caller.receive(ms(101), &answer(first, first.base.dst, part(1), b"end"));
    assert_eq!(answered(&mut caller).map(|(of, _)| of), Some(call));
}

/// A slow server is reminded of each call, and answers the reminder.
#[test]
fn answers_to_reminders_lengthen_the_pause() {
    let mut caller = caller();
    let mut reminders = Vec::new();
    for nth in 0..20 {
        let before = caller.stats().reminded;
        start_call(&mut caller, ms(1_000 * nth), CloneOptions::default());
        let mut last = sent(&mut caller).remove(0);
        for at in 1..100 {
            let now = ms(1_000 * nth + at);
            caller.poll(now);
            let reminder = sent(&mut caller).pop();
            if at == 2 || reminder.is_some() {
                last = reminder.unwrap_or(last);
                caller.receive(now, &reply(FrameKind::CloneWorking, &last, 12, by_element(), b""));
            }
        }
        caller.receive(ms(1_000 * nth + 100), &answer(&last, 12, by_element(), b"yes"));
        assert!(answered(&mut caller).is_some());
        reminders.push(caller.stats().reminded - before);
    }
    assert!(reminders[0] > 0 && reminders[10..].iter().all(|again| *again == 0), "{reminders:?}");
}
