//! Answers that another server's may be better than (gRPC A6, `nonFatalStatusCodes`).

use super::*;

const HEDGE: Hedge = Hedge { delay: Duration::from_secs(30), max_attempts: 2 };

fn hedged(options: Options) -> Options {
    Options { hedge: Some(HEDGE), patience: Some(Duration::from_millis(1)), ..options }
}

/// A server's word that it could not do it.
fn failure(request: &Sent, server: u32, payload: &[u8]) -> Vec<u8> {
    let head = CloneRepr { flags: request.head.flags | CloneFlags::FAILED, ..by_element() };
    answer(request, server, head, payload)
}

#[test]
fn a_failure_has_the_next_server_asked_at_once() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), hedged(random()));
    let first = sent(&mut caller).remove(0);
    for _ in 0..2 {
        caller.receive(ms(1), &failure(&first, first.base.dst, b"no"));
        caller.poll(ms(1));
    }
    let second = sent(&mut caller).remove(0);
    assert!(second.base.dst != first.base.dst && caller.event().is_none());
    caller.receive(ms(2), &answer(&second, second.base.dst, by_element(), b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
    assert_eq!((caller.stats().set_aside, caller.stats().hedged, caller.is_empty()), (1, 1, true));
}

#[test]
fn when_all_have_failed_the_last_failure_is_the_answer() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), hedged(random()));
    for said in [b"no 1", b"no 2"] {
        let request = sent(&mut caller).remove(0);
        assert_eq!(caller.event(), None);
        caller.receive(ms(1), &failure(&request, request.base.dst, said));
        caller.poll(ms(1));
    }
    assert_eq!(answered(&mut caller), Some((call, b"no 2".to_vec())));
}

#[test]
fn the_other_of_a_cloned_pair_is_waited_for() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = ask(&mut caller, ms(0), Options { hedge, ..hedged(Options::default()) });
    let request = sent(&mut caller).remove(0);
    assert_eq!(request.head.flags, CloneFlags::CLONE);
    caller.receive(ms(1), &failure(&request, 11, b"no"));
    assert_eq!(caller.event(), None, "it was cloned");
    caller.receive(ms(1), &answer(&request, 12, CloneRepr { clo: ORIGINAL, ..by_element() }, b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
}

#[test]
fn a_call_that_one_server_got_and_failed_is_the_other_s() {
    let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    for replies in [&[b"no 1", b"yes!"], &[b"no 1", b"no 2"]] {
        let mut caller = caller();
        let call = ask(&mut caller, ms(0), Options::default());
        let request = sent(&mut caller).remove(0);
        caller.receive(ms(1), &answer(&request, 11, head, replies[0]));
        let again = sent(&mut caller).remove(0);
        assert_eq!((again.head.attempt, again.head.flags, caller.event()), (1, CloneFlags::DIRECT, None));
        assert!(again.base.dst != 11, "it has failed there");
        let head = CloneRepr { flags: if replies[1] == b"yes!" { 0 } else { CloneFlags::FAILED }, ..by_element() };
        caller.receive(ms(2), &answer(&again, again.base.dst, head, replies[1]));
        assert_eq!(answered(&mut caller), Some((call, replies[1].to_vec())));
        assert!(caller.is_empty() && sent(&mut caller).is_empty());
    }
}

#[test]
fn a_failure_is_the_answer_where_the_budget_has_nothing_for_another_server() {
    let budget = Budget { share: 0.0, burst: 0.0, per_second: 0.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], ..config() });
    let call = ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, head, b"no"));
    assert_eq!((answered(&mut caller), sent(&mut caller).len()), (Some((call, b"no".to_vec())), 0));
}

#[test]
fn a_failure_is_the_answer_when_nobody_is_known_to_work_on_the_call() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = ask(&mut caller, ms(0), Options { hedge, ..hedged(Options::default()) });
    let request = sent(&mut caller).remove(0);
    caller.receive(ms(1), &failure(&request, 11, b"no"));
    caller.receive(ms(2), &reply(Kind::CloneWorking, &request, 12, by_element(), b""));
    // The one that works on it is asked; the word of it may be lost.
    let mut at = 2;
    while caller.stats().repeated == 0 {
        at += 1;
        caller.poll(ms(at));
        assert_eq!(caller.event(), None);
    }
    assert_eq!(sent(&mut caller)[0].base.dst, 12);
    (at..at + 100).for_each(|at| caller.poll(ms(at)));
    assert_eq!(answered(&mut caller), Some((call, b"no".to_vec())));
    assert!(caller.is_empty() && sent(&mut caller).is_empty());
}

#[test]
fn each_who_is_known_to_work_on_a_call_is_asked_before_a_failure_is_its_answer() {
    let mut caller = caller();
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    let call = ask(&mut caller, ms(0), Options { hedge, ..hedged(Options::default()) });
    let request = sent(&mut caller).remove(0);
    for server in [12, 11] {
        caller.receive(ms(1), &reply(Kind::CloneWorking, &request, server, by_element(), b""));
    }
    caller.receive(ms(2), &failure(&request, 11, b"no"));
    let mut at = 2;
    let again = loop {
        at += 1;
        caller.poll(ms(at));
        assert_eq!(caller.event(), None, "after {at} ms");
        if let Some(again) = sent(&mut caller).pop() {
            break again;
        }
    };
    assert_eq!(again.base.dst, 12);
    caller.receive(ms(at), &answer(&again, 12, by_element(), b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
}

#[test]
fn what_was_not_cloned_and_failed_is_paid_back_once() {
    let budget = Budget { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], ..config() });
    let hedge = Some(Hedge { max_attempts: 1, ..HEDGE });
    for _ in 0..5 {
        ask(&mut caller, ms(0), Options { hedge, ..hedged(Options::default()) });
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.head.flags, CloneFlags::CLONE, "the one before was paid back");
        let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
        for _ in 0..2 {
            caller.receive(ms(0), &answer(&request, 11, head, b"no"));
        }
        assert!(answered(&mut caller).is_some());
    }
}

#[test]
fn what_was_sent_again_in_vain_is_sent_later_the_next_time() {
    let first_repeat = |caller: &mut Caller| {
        ask(caller, ms(0), Options::default());
        (0..10_000).find(|at| {
            caller.poll(Instant(at * 100_000));
            caller.stats().repeated > 0
        })
    };
    let pause = |late: bool| {
        let mut caller = caller();
        for took in [4, 4, 4, 4, 4, 40, 40, 4, 4, 4] {
            ask(&mut caller, ms(0), Options::default());
            let request = sent(&mut caller).remove(0);
            caller.poll(ms(took));
            // What is sent again is answered; what was sent before is late, or lost.
            let again = sent(&mut caller);
            let before = (late || again.is_empty()).then_some(&request);
            for request in again.iter().chain(before) {
                caller.receive(ms(took), &answer(request, 11, by_element(), b""));
            }
        }
        assert_eq!((caller.stats().repeated, caller.stats().redundant), (2, if late { 2 } else { 0 }));
        caller.stats = CallerStats::default();
        first_repeat(&mut caller).expect("nobody answers")
    };
    let (late, lost) = (pause(true), pause(false));
    assert!(late > lost + lost / 2, "{late}, and {lost} where what was sent before was lost");
}

#[test]
fn a_call_is_sent_a_few_times_before_its_deadline() {
    let mut caller = caller();
    ask(&mut caller, ms(0), Options { deadline: Duration::from_millis(40), ..Options::default() });
    (0..=40).for_each(|at| caller.poll(ms(at)));
    let stats = caller.stats();
    assert_eq!((stats.repeated, stats.failed), (3, 1), "though nothing is known of how long answers take");
}

/// Servers say that they work on it, and all of their answers are lost: each begins the pauses anew.
#[test]
fn attempts_last_as_long_as_the_call_has_time() {
    let budgets = vec![Budget { share: 0.0, burst: 1e6, per_second: 0.0 }];
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets, ..config() });
    ask(&mut caller, ms(0), Options::default());
    let quick = sent(&mut caller).remove(0);
    caller.receive(ms(1), &answer(&quick, 11, by_element(), b"this"));
    assert!(answered(&mut caller).is_some());
    ask(&mut caller, ms(1), Options { deadline: Duration::from_secs(4), ..Options::default() });
    let mut sent_at = Vec::new();
    for at in 1..=4_001 {
        caller.poll(ms(at));
        for request in sent(&mut caller) {
            caller.receive(ms(at), &reply(Kind::CloneWorking, &request, 11, by_element(), b""));
            sent_at.push(at);
        }
    }
    assert!(matches!(caller.event(), Some(Event::Failed(..))) && sent_at.len() <= 256);
    let late = sent_at.iter().filter(|at| **at > 3_000).count();
    assert!(late >= 16, "{late} of {} in the last second", sent_at.len());
}

#[test]
fn a_failure_of_the_last_attempt_there_can_be_is_the_answer() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), hedged(random()));
    let mut last = sent(&mut caller).remove(0);
    last.head.attempt = u8::MAX;
    caller.calls.get_mut(&call.0).expect("in progress").attempt = u8::MAX;
    caller.receive(ms(1), &failure(&last, last.base.dst, b"no"));
    assert_eq!(answered(&mut caller), Some((call, b"no".to_vec())));
}

/// A call that was sent five times, and its requests.
fn sent_five_times() -> (Caller, CallId, Vec<Sent>) {
    let hedge = Hedge { delay: Duration::from_millis(1), max_attempts: 5 };
    let budgets = vec![Budget { share: 0.0, burst: 1e6, per_second: 0.0 }];
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets, ..config() });
    let call = ask(&mut caller, ms(0), Options { hedge: Some(hedge), ..hedged(random()) });
    let mut requests = Vec::new();
    for at in 0..100 {
        caller.poll(ms(at));
        requests.extend(sent(&mut caller));
    }
    requests.truncate(5);
    assert_eq!(requests.len(), 5);
    (caller, call, requests)
}

/// The parts of five long answers come in turn; one of them is no failure.
#[test]
fn failures_in_parts_do_not_drive_out_the_answer() {
    let (mut caller, call, requests) = sent_five_times();
    for (part, payload) in [(0, &[7; PART][..]), (1, b"end")] {
        for (i, request) in requests.iter().enumerate() {
            let flags = if i == 0 { 0 } else { CloneFlags::FAILED };
            let head = CloneRepr { flags, part, parts: 2, ..by_element() };
            caller.receive(ms(100), &answer(request, request.base.dst, head, payload));
        }
    }
    let (of, reply) = answered(&mut caller).expect("all parts of an answer have come");
    assert_eq!((of, reply.len(), caller.stats().set_aside), (call, PART + 3, 0));
}

/// The answer to the first attempt comes last, when the others' have each lost a part.
#[test]
fn an_answer_to_an_early_attempt_may_come_late() {
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
