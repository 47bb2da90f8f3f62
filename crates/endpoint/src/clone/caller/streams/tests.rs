use proptest::prelude::*;

use super::*;

const DELAY: Duration = Duration::from_millis(10);
/// Calls after which the learned delay and the usual latency are known.
const MANY: u64 = 200;

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn budget(burst: f64) -> HedgeBudgetConfig {
    HedgeBudgetConfig { share: 0.0, burst, per_second: 0.0 }
}

fn hedges(burst: f64) -> StreamHedges {
    StreamHedges::new(Instant(0), budget(burst))
}

/// Options of a call to three servers, two of which may be asked.
fn options() -> StreamOptions {
    let hedge = Hedge { after: HedgeAfter::Delay(DELAY), max_attempts: 2 };
    StreamOptions { hedge: Some(hedge), cost: 1, servers: 3, deadline: None }
}

fn with_attempts(max_attempts: u8) -> StreamOptions {
    StreamOptions { hedge: options().hedge.map(|hedge| Hedge { max_attempts, ..hedge }), ..options() }
}

fn learned() -> StreamOptions {
    let hedge = Hedge { after: HedgeAfter::Share(50), max_attempts: 2 };
    StreamOptions { hedge: Some(hedge), ..options() }
}

/// Starts a call, and asks its first server.
fn start(hedges: &mut StreamHedges, now: Instant, options: StreamOptions) -> StreamCallId {
    let call = hedges.start_call(now, options).expect("the call starts");
    assert_eq!(hedges.next_step(now, call), StreamStep::Ask);
    call
}

#[test]
fn call_is_hedged_after_the_delay_as_often_as_its_policy_allows() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), with_attempts(3));
    assert_eq!(hedges.next_step(ms(0), call), StreamStep::Wait(Some(ms(10))));
    assert_eq!(hedges.next_step(ms(9), call), StreamStep::Wait(Some(ms(10))));
    assert_eq!(hedges.next_step(ms(12), call), StreamStep::Ask);
    assert_eq!(hedges.next_step(ms(12), call), StreamStep::Wait(Some(ms(22))));
    assert_eq!(hedges.next_step(ms(22), call), StreamStep::Ask);
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::Wait(None), "three requests at most");
    assert_eq!(hedges.record_first_message(ms(900), call, 1), 2, "two others wait");
    let CloneCallerStats { calls, answered, hedged, cancelled, .. } = hedges.stats();
    assert_eq!((calls, answered, hedged, cancelled, hedges.is_empty()), (1, 1, 2, 2, true));
}

#[test]
fn call_without_other_server_is_not_hedged() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), StreamOptions { servers: 1, ..options() });
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::Wait(None));
    hedges.record_failure(ms(900), call, None);
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::End);
    assert_eq!(hedges.stats().extra() + hedges.stats().refused.total(), 0);
}

#[test]
fn call_without_policy_has_one_request() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), StreamOptions { hedge: None, ..options() });
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::Wait(None));
    hedges.record_failure(ms(900), call, None);
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::End);
}

#[test]
fn failed_answer_asks_next_server_at_once_until_all_have_failed() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), options());
    hedges.record_failure(ms(3), call, None);
    assert_eq!(hedges.next_step(ms(3), call), StreamStep::Ask);
    assert_eq!(hedges.next_step(ms(3), call), StreamStep::Wait(None));
    hedges.record_failure(ms(4), call, None);
    assert_eq!(hedges.next_step(ms(4), call), StreamStep::End, "two attempts at most");
    hedges.end_call(ms(4), call, StreamCallEnd::Failed);
    let CloneCallerStats { answered, hedged, after_failed, set_aside, .. } = hedges.stats();
    assert_eq!((answered, hedged, after_failed, set_aside), (1, 0, 1, 2));
}

#[test]
fn failed_answer_waits_for_other_asked_server() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), options());
    assert_eq!(hedges.next_step(ms(10), call), StreamStep::Ask);
    hedges.record_failure(ms(11), call, None);
    assert_eq!(hedges.next_step(ms(11), call), StreamStep::Wait(None));
}

#[test]
fn pushback_delays_next_request_or_prevents_it() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), options());
    hedges.record_failure(ms(3), call, Some(Pushback::After(Duration::from_millis(50))));
    assert_eq!(hedges.next_step(ms(3), call), StreamStep::Wait(Some(ms(53))));
    assert_eq!(hedges.next_step(ms(53), call), StreamStep::Ask);
    // The first server's wish holds for the hedge that would be due, too.
    let call = start(&mut hedges, ms(0), with_attempts(3));
    assert_eq!(hedges.next_step(ms(10), call), StreamStep::Ask);
    hedges.record_failure(ms(11), call, Some(Pushback::Never));
    assert_eq!(hedges.next_step(ms(11), call), StreamStep::Wait(None), "the other server may still answer");
    hedges.record_failure(ms(12), call, None);
    assert_eq!(hedges.next_step(ms(12), call), StreamStep::End);
    let late = StreamOptions { deadline: Some(Duration::from_millis(30)), ..options() };
    let call = start(&mut hedges, ms(0), late);
    hedges.record_failure(ms(3), call, Some(Pushback::After(Duration::from_millis(50))));
    assert_eq!(hedges.next_step(ms(3), call), StreamStep::End, "the pushback ends after the deadline");
    assert_eq!(hedges.stats().refused.pushback, 3);
}

#[test]
fn unreached_server_is_replaced_without_cost() {
    let mut hedges = hedges(0.0);
    let call = start(&mut hedges, ms(0), options());
    for _ in 0..2 {
        hedges.record_unreached(call);
        assert_eq!(hedges.next_step(ms(0), call), StreamStep::Ask);
    }
    hedges.record_unreached(call);
    assert_eq!(hedges.next_step(ms(0), call), StreamStep::End, "each of three servers was asked");
    hedges.retry(call, 3);
    assert_eq!(hedges.next_step(ms(5), call), StreamStep::Ask);
    assert_eq!(hedges.stats().extra(), 0);
    hedges.record_unreached(call);
    hedges.end_call(ms(5), call, StreamCallEnd::Unreached);
    assert_eq!((hedges.stats().failed, hedges.is_empty()), (1, true));
}

#[test]
fn spent_budget_refuses_hedges_and_requests_after_failures() {
    let mut hedges = hedges(1.0);
    let call = start(&mut hedges, ms(0), options());
    assert_eq!(hedges.next_step(ms(10), call), StreamStep::Ask);
    let call = start(&mut hedges, ms(0), options());
    assert_eq!(hedges.next_step(ms(10), call), StreamStep::Wait(Some(ms(20))), "considered again later");
    hedges.record_failure(ms(11), call, None);
    assert_eq!(hedges.next_step(ms(11), call), StreamStep::End);
    assert_eq!((hedges.stats().extra(), hedges.stats().refused.budget), (1, 2));
}

#[test]
fn call_dearer_than_the_budget_is_not_hedged() {
    let mut hedges = hedges(2.0);
    let call = start(&mut hedges, ms(0), StreamOptions { cost: 3, ..options() });
    assert_eq!(hedges.next_step(ms(10), call), StreamStep::Wait(Some(ms(20))));
    assert_eq!((hedges.stats().refused.dear, hedges.stats().refused.budget), (1, 0));
}

#[test]
fn calls_without_delay_ask_all_servers_at_once() {
    let mut hedges = hedges(9.0);
    let hedge = Hedge { after: HedgeAfter::Delay(Duration::ZERO), max_attempts: 5 };
    let call = hedges.start_call(ms(0), StreamOptions { hedge: Some(hedge), ..options() }).expect("the call starts");
    let steps: Vec<_> = (0..4).map(|_| hedges.next_step(ms(0), call)).collect();
    assert_eq!(steps, [StreamStep::Ask, StreamStep::Ask, StreamStep::Ask, StreamStep::Wait(None)]);
}

/// Makes calls, each answered by its first server after this time.
fn answer_many(hedges: &mut StreamHedges, began: Instant, calls: u64, latency: Duration) -> Instant {
    (0..calls).fold(began, |now, _| {
        let call = start(hedges, now, learned());
        hedges.record_first_message(now + latency, call, 0);
        now + latency
    })
}

#[test]
fn delay_is_learned_from_times_to_first_message() {
    let mut hedges = hedges(9.0);
    let call = start(&mut hedges, ms(0), learned());
    assert_eq!(hedges.next_step(ms(900), call), StreamStep::Wait(None), "the delay is not known yet");
    let now = answer_many(&mut hedges, ms(900), MANY, Duration::from_millis(5));
    let call = start(&mut hedges, now, learned());
    let StreamStep::Wait(Some(at)) = hedges.next_step(now, call) else { panic!("a hedge is due") };
    let delay = at.since(now).as_millis();
    assert!((4..=20).contains(&delay), "{delay} ms, for first messages after 5 ms");
    assert_eq!(hedges.next_step(at, call), StreamStep::Ask);
}

#[test]
fn no_hedges_are_sent_while_all_servers_are_slow() {
    let mut hedges = hedges(9.0);
    let now = answer_many(&mut hedges, ms(0), MANY, Duration::from_millis(5));
    let slow = answer_many(&mut hedges, now, MANY, Duration::from_millis(500));
    let call = start(&mut hedges, slow, options());
    assert_eq!(hedges.next_step(slow + DELAY, call), StreamStep::Wait(Some(slow + DELAY + DELAY)));
    assert_eq!((hedges.stats().hedged, hedges.stats().refused.outage), (0, 1));
    // Another server may still be asked after a failed answer.
    hedges.record_failure(slow + DELAY, call, None);
    assert_eq!(hedges.next_step(slow + DELAY, call), StreamStep::Ask);
}

#[test]
fn calls_that_wait_long_show_that_all_servers_are_slow() {
    let mut hedges = hedges(0.0);
    let now = answer_many(&mut hedges, ms(0), MANY, Duration::from_millis(5));
    let waiting: Vec<_> = (0..MANY).map(|_| start(&mut hedges, now, options())).collect();
    let late = now + Duration::from_secs(5);
    hedges.next_step(late, waiting[0]);
    assert_eq!(hedges.stats().refused.outage, 1, "no call has been answered");
    waiting.into_iter().for_each(|call| hedges.end_call(late, call, StreamCallEnd::Dropped));
    assert!(hedges.is_empty());
}

#[test]
fn dropped_call_fails_only_after_its_deadline() {
    let mut hedges = hedges(9.0);
    let limited = StreamOptions { deadline: Some(Duration::from_millis(30)), ..options() };
    for (end, failed) in [(29, 0), (30, 1)] {
        let call = start(&mut hedges, ms(0), limited);
        assert_eq!(hedges.next_step(ms(10), call), StreamStep::Ask);
        hedges.end_call(ms(end), call, StreamCallEnd::Dropped);
        assert_eq!((hedges.stats().failed, hedges.is_empty()), (failed, true));
        assert_eq!(hedges.next_step(ms(end), call), StreamStep::End, "an ended call has no steps");
        assert_eq!(hedges.record_first_message(ms(end), call, 0), 0);
    }
    assert_eq!((hedges.stats().answered, hedges.stats().cancelled), (0, 4));
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Wait(u64),
    Fail(Option<u64>),
    Unreach,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0_u64..40).prop_map(Act::Wait),
        prop::option::of(0_u64..60).prop_map(Act::Fail),
        Just(Act::Unreach),
    ];
    prop::collection::vec(act, 0..30)
}

proptest! {
    /// One call, against a model that counts: extra requests within attempts, servers and budget, none before a
    /// pushback has passed, and an end only if no server is left to wait for.
    #[test]
    fn requests_of_a_call_keep_all_limits(
        acts in acts(), servers in 1_usize..6, max_attempts in 2_u8..6, burst in 0_u32..5, cost in 1_u16..3,
    ) {
        let mut hedges = hedges(f64::from(burst));
        let options = StreamOptions { servers, cost, ..with_attempts(max_attempts) };
        let call = hedges.start_call(ms(0), options).expect("the call starts");
        let (mut now, mut asked, mut open, mut unreached, mut not_before) = (ms(0), 0, 0_u32, 0, ms(0));
        let mut ended = false;
        for act in acts.into_iter().map(Some).chain([None]) {
            let mut steps = 0;
            loop {
                steps += 1;
                prop_assert!(steps < 20, "no step leads to a wait");
                match hedges.next_step(now, call) {
                    StreamStep::Ask => {
                        prop_assert!(now >= not_before && !ended);
                        (asked, open) = (asked + 1, open + 1);
                    }
                    StreamStep::Wait(at) => {
                        prop_assert!(open > 0 || at.is_some());
                        prop_assert!(!ended);
                        if at.is_none_or(|at| at > now) {
                            break;
                        }
                    }
                    StreamStep::End => {
                        prop_assert_eq!(open, 0);
                        ended = true;
                        break;
                    }
                }
            }
            prop_assert!(asked >= 1 && asked <= servers);
            prop_assert!(asked - unreached <= usize::from(max_attempts));
            let extra = hedges.stats().extra();
            prop_assert!(extra * u64::from(cost) <= u64::from(burst));
            prop_assert!(asked as u64 <= 1 + extra + unreached as u64, "only unreached servers are replaced without cost");
            match act {
                Some(Act::Wait(time)) => now = now + Duration::from_millis(time),
                Some(Act::Fail(pushback)) if open > 0 => {
                    open -= 1;
                    let pushback = pushback.map(Duration::from_millis);
                    not_before = not_before.max(now + pushback.unwrap_or_default());
                    hedges.record_failure(now, call, pushback.map(Pushback::After));
                }
                Some(Act::Unreach) if open > 0 => {
                    (open, unreached) = (open - 1, unreached + 1);
                    hedges.record_unreached(call);
                }
                _ => {}
            }
        }
        if !ended {
            prop_assert_eq!(hedges.record_first_message(now, call, 0), open.saturating_sub(1));
        }
    }
}
