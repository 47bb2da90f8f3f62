//! Tests of pushback: a failed answer tells when another server may be asked (gRPC A6, `grpc-retry-pushback-ms`).

use super::super::super::Pushback;
use super::*;

/// Caller that repeats no call by itself.
fn patient() -> CloneCaller {
    CloneCaller::new(Instant(0), CloneCallerConfig { retry_min: ms_of(5_000), retry_max: ms_of(5_000), ..config() })
}

fn hedged() -> CloneOptions {
    let hedge = Hedge { after: HedgeAfter::Delay(ms_of(500)), max_attempts: 3 };
    CloneOptions { hedge: Some(hedge), ..random() }
}

/// Fails a request, with a pushback.
fn fail(caller: &mut CloneCaller, now: u64, request: &Sent, pushback: Pushback) {
    let head = CloneRepr { flags: CloneFlags::FAILED, patience: Pushback::encode(Some(pushback)), ..by_element() };
    caller.receive(ms(now), &answer(request, request.base.dst.max(11), head, b"no"));
    caller.poll(ms(now));
}

/// Times in ms at which requests are sent until `until`.
fn sent_until(caller: &mut CloneCaller, from: u64, until: u64) -> Vec<u64> {
    let mut times = Vec::new();
    for at in from..until {
        caller.poll(ms(at));
        times.extend(sent(caller).iter().map(|_| at));
    }
    times
}

#[test]
fn pushback_round_trips() {
    for pushback in [None, Some(Pushback::Never), Some(Pushback::After(ms_of(30)))] {
        assert_eq!(Pushback::decode(Pushback::encode(pushback)), pushback);
    }
    let least = Pushback::After(Duration::from_micros(1));
    assert_eq!(Pushback::decode(Pushback::encode(Some(Pushback::After(Duration::ZERO)))), Some(least));
    let long = Pushback::decode(Pushback::encode(Some(Pushback::After(Duration::from_secs(1 << 40)))));
    assert!(matches!(long, Some(Pushback::After(time)) if time > Duration::from_secs(3600)), "{long:?}");
}

#[test]
fn attempt_waits_for_the_pushback() {
    for options in [hedged(), CloneOptions::default()] {
        let mut caller = patient();
        let call = start_call(&mut caller, ms(0), options);
        let first = sent(&mut caller).remove(0);
        fail(&mut caller, 1, &first, Pushback::After(ms_of(100)));
        assert_eq!(sent_until(&mut caller, 1, 101), Vec::<u64>::new(), "{options:?}");
        assert_eq!(caller.next_event(), None);
        caller.poll(ms(101));
        let second = sent(&mut caller).remove(0);
        caller.receive(ms(102), &answer(&second, second.base.dst, by_element(), b"yes"));
        assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())), "{options:?}");
    }
}

#[test]
fn failure_is_the_answer_after_a_final_pushback() {
    for options in [hedged(), CloneOptions::default()] {
        for pushback in [Pushback::Never, Pushback::After(ms_of(1_000))] {
            let mut caller = patient();
            let call = start_call(&mut caller, ms(0), options);
            let first = sent(&mut caller).remove(0);
            fail(&mut caller, 1, &first, pushback);
            assert_eq!(answered(&mut caller), Some((call, b"no".to_vec())), "{options:?} {pushback:?}");
            assert_eq!((sent(&mut caller).len(), caller.stats().refused.pushback), (0, 1));
        }
    }
}

#[test]
fn other_attempts_go_on_after_a_final_pushback() {
    let mut caller = patient();
    let call = start_call(&mut caller, ms(0), hedged());
    let first = sent(&mut caller).remove(0);
    caller.poll(ms(500));
    let second = sent(&mut caller).remove(0);
    fail(&mut caller, 501, &first, Pushback::Never);
    assert_eq!((sent_until(&mut caller, 501, 900), caller.next_event()), (Vec::new(), None));
    caller.receive(ms(900), &answer(&second, second.base.dst, by_element(), b"yes"));
    assert_eq!(answered(&mut caller), Some((call, b"yes".to_vec())));
}

#[test]
fn repeats_and_hedges_wait_for_the_pushback() {
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { retry_max: ms_of(20), ..config() });
    let hedge = Hedge { after: HedgeAfter::Delay(ms_of(2)), max_attempts: 4 };
    start_call(&mut caller, ms(0), CloneOptions { hedge: Some(hedge), ..random() });
    let first = sent(&mut caller).remove(0);
    caller.poll(ms(2));
    assert_eq!(sent(&mut caller).len(), 1, "a hedge");
    fail(&mut caller, 3, &first, Pushback::After(ms_of(200)));
    let times = sent_until(&mut caller, 3, 230);
    assert!(!times.is_empty() && times.iter().all(|at| *at >= 203), "{times:?}");
}
