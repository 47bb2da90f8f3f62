use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::clone::{CALLER_ID, ORIGINAL, PART, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneRepr, MAX_FRAME};
use proptest::prelude::*;

use super::super::{Balance, CloneOptions, Hedge, HedgeAfter, HedgeBudgetConfig};
use super::*;

mod automatic;
mod counters;
mod deadlines;
mod failures;
mod held;
mod ignored;
mod outage;
mod pushback;
mod server_choice;

const SERVERS: [u32; 3] = [11, 12, 13];

/// Frame that the caller sent.
struct Sent {
    to: CloneDestination,
    base: BaseRepr,
    head: CloneRepr,
    payload: Vec<u8>,
}

fn config() -> CloneCallerConfig {
    let pool = Pool { gaid: 9, version: 4, servers: SERVERS.to_vec() };
    CloneCallerConfig { last_call: 0, ..CloneCallerConfig::new(5, 77, pool, 3) }
}

fn caller() -> CloneCaller {
    CloneCaller::new(Instant(0), config())
}

fn ms_of(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn start_call(caller: &mut CloneCaller, now: Instant, options: CloneOptions) -> CloneCallId {
    start_call_for(caller, now, options, b"what?")
}

fn start_call_for(
    caller: &mut CloneCaller,
    now: Instant,
    options: CloneOptions,
    request: &'static [u8],
) -> CloneCallId {
    caller.start_call(now, CloneCall { request: Bytes::from_static(request), options }).expect("the call starts")
}

fn sent(caller: &mut CloneCaller) -> Vec<Sent> {
    sent_at(caller, Instant(0))
}

fn sent_at(caller: &mut CloneCaller, now: Instant) -> Vec<Sent> {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (to, len) = caller.transmit(now, &mut out)?;
        let frame = CloneFrame::new_checked(&out[..len]).expect("a valid frame");
        Some(Sent { to, base: frame.base().repr(), head: frame.head().repr(), payload: frame.payload().to_vec() })
    };
    std::iter::from_fn(next).collect()
}

/// Part of an answer to a request.
fn answer(request: &Sent, server: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    reply(FrameKind::CloneReply, request, server, head, payload)
}

fn reply(kind: FrameKind, request: &Sent, server: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    let base = BaseRepr {
        flags: Flags::FROM_SERVER,
        gaid: request.base.gaid,
        src: server,
        src_incarnation: 1,
        dst: request.base.src,
        dst_incarnation: request.base.src_incarnation,
        seq: request.base.seq,
        ..BaseRepr::new(kind)
    };
    let head = CloneRepr { attempt: request.head.attempt, parts: head.parts.max(1), ..head };
    let mut out = vec![0; MAX_FRAME];
    let len = emit(&base, &head, payload, &mut out);
    out.truncate(len);
    out
}

fn by_element() -> CloneRepr {
    CloneRepr { switch_id: 1, ..CloneRepr::default() }
}

fn answered(caller: &mut CloneCaller) -> Option<(CloneCallId, Vec<u8>)> {
    match caller.next_event()? {
        Event::Answered(call, answer) => Some((call, answer.reply.to_vec())),
        Event::Failed(call, failure) => panic!("{call:?}: {failure}"),
    }
}

/// Options for a random server, past the element.
fn random() -> CloneOptions {
    CloneOptions { clone: false, ..CloneOptions::default() }
}

/// Options for the servers in turn, past the element.
fn in_turn() -> CloneOptions {
    CloneOptions { balance: Balance::RoundRobin, ..random() }
}

/// Options for two random servers at once (C-Clone).
fn sent_to_two() -> CloneOptions {
    CloneOptions { send_to_two: true, ..random() }
}

/// All kinds of options.
const ALL_OPTIONS: [fn() -> CloneOptions; 7] = [
    random,
    in_turn,
    sent_to_two,
    || CloneOptions { balance: Balance::Shortest, ..random() },
    || CloneOptions {
        hedge: Some(Hedge { after: HedgeAfter::Delay(Duration::from_millis(10)), max_attempts: 2 }),
        ..random()
    },
    CloneOptions::default,
    || CloneOptions { balance: Balance::Shortest, ..CloneOptions::default() },
];

#[test]
fn cloned_call_is_answered_once() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    assert_eq!(
        (request.to, request.head.flags, request.head.req_id),
        (CloneDestination::Element, CloneFlags::CLONE, 0)
    );
    assert_eq!((request.base.epoch, &request.payload[..]), (4, &b"what?"[..]));
    let cloned = CloneRepr { clo: ORIGINAL, ..by_element() };
    caller.receive(ms(1), &answer(&request, 12, cloned, b"this"));
    caller.receive(ms(1), &answer(&request, 11, cloned, b"that"));
    assert_eq!((answered(&mut caller), caller.next_event()), (Some((call, b"this".to_vec())), None));
    let stats = caller.stats();
    assert_eq!((stats.answered, stats.redundant, stats.cloned), (1, 1, 1));
    assert!(caller.is_empty());
}

#[test]
fn parts_of_two_answers_are_not_mixed() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    let part = |part| CloneRepr { part, parts: 2, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, part(0), &[1; PART]));
    caller.receive(ms(1), &answer(&request, 12, part(1), b"2"));
    assert_eq!(answered(&mut caller), None);
    caller.receive(ms(1), &answer(&request, 11, part(1), b"1"));
    let (of, reply) = answered(&mut caller).expect("a complete answer");
    assert_eq!((of, reply.len(), reply[PART]), (call, PART + 1, b'1'));
}

#[test]
fn non_idempotent_call_is_sent_once_to_one_server() {
    let mut caller = caller();
    for options in ALL_OPTIONS {
        start_call(&mut caller, ms(0), CloneOptions { idempotent: false, ..options() });
        let requests = sent(&mut caller);
        assert_eq!((requests.len(), requests[0].head.flags), (1, CloneFlags::DIRECT), "{:?}", options());
        assert_eq!(requests[0].to, CloneDestination::Endpoint(requests[0].base.dst), "{:?}", options());
    }
    for at in 1..=1_000 {
        caller.poll(ms(at));
    }
    assert!(sent(&mut caller).is_empty());
    let failed = std::iter::from_fn(|| caller.next_event()).filter(|event| matches!(event, Event::Failed(..))).count();
    assert_eq!((failed, caller.is_empty()), (ALL_OPTIONS.len(), true));
}

#[test]
fn unanswered_call_is_repeated_with_own_id() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), CloneOptions::default());
    let first = sent(&mut caller).remove(0);
    caller.poll(ms(100));
    let again = sent(&mut caller).remove(0);
    assert_eq!((first.head.attempt, again.head.attempt, again.base.seq), (0, 1, first.base.seq));
    assert!(again.head.req_id & CALLER_ID != 0);
    // An answer to either attempt is accepted.
    caller.receive(ms(101), &answer(&first, 11, by_element(), b"late"));
    assert!(answered(&mut caller).is_some());
}

#[test]
fn repeated_parts_go_to_one_server() {
    let mut caller = caller();
    let request = &[7; PART + 1];
    start_call_for(&mut caller, ms(0), CloneOptions { balance: Balance::Shortest, ..CloneOptions::default() }, request);
    let first = sent(&mut caller);
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|part| part.head.flags == CloneFlags::CLONE | CloneFlags::SHORTEST));
    assert!(first.iter().all(|part| part.head.req_id == first[0].head.req_id && part.head.grp == first[0].head.grp));
    caller.poll(ms(100));
    let again = sent(&mut caller);
    assert!(again.iter().all(|part| part.head.flags == 0 && part.head.grp == again[0].head.grp));
    assert_eq!(again.iter().map(|part| part.payload.len()).collect::<Vec<_>>(), [PART, 1]);
}

#[test]
fn repeat_goes_to_working_server() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    assert!(request.head.patience > 0);
    caller.receive(ms(1), &reply(FrameKind::CloneWorking, &request, 12, by_element(), b""));
    caller.poll(ms(100));
    let again = sent(&mut caller).remove(0);
    assert_eq!((again.to, again.base.dst, again.head.flags), (CloneDestination::Element, 12, CloneFlags::DIRECT));
}

#[test]
fn clones_and_repeats_stay_within_budget() {
    let budget = HedgeBudgetConfig { share: 0.1, burst: 5.0, per_second: 0.0 };
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], ..config() });
    let (mut clones, mut requests) = (0, 0);
    for at in 0..1_000 {
        start_call(&mut caller, ms(at), CloneOptions::default());
        caller.poll(ms(at));
        for request in sent(&mut caller) {
            requests += 1;
            clones += u64::from(request.head.flags & CloneFlags::CLONE != 0);
        }
    }
    let spend_extra = requests + clones - 1_000;
    assert!((95..=105).contains(&spend_extra), "{spend_extra}: {:?}", caller.stats());
    assert!(caller.stats().refused.budget > 0);
}

#[test]
fn uncloned_request_is_refunded() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], ..config() });
    for _ in 0..10 {
        start_call(&mut caller, ms(0), CloneOptions::default());
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.head.flags, CloneFlags::CLONE);
        caller.receive(ms(0), &answer(&request, 11, by_element(), b""));
    }
    start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    caller.receive(ms(0), &answer(&request, 11, CloneRepr { clo: ORIGINAL, ..by_element() }, b""));
    start_call(&mut caller, ms(0), CloneOptions::default());
    assert_eq!(sent(&mut caller)[0].head.flags, 0, "the previous call's clone used the budget");
}

#[test]
fn calls_bypass_silent_element_until_probe_succeeds() {
    let mut caller = caller();
    let mut at = 0;
    while caller.by_element() {
        start_call(&mut caller, ms(at), CloneOptions::default());
        at += 50;
        caller.poll(ms(at));
        assert!(at < 1_000, "three consecutive timeouts suffice");
    }
    drop(sent(&mut caller));
    start_call(&mut caller, ms(at), CloneOptions::default());
    assert!(matches!(sent(&mut caller)[0].to, CloneDestination::Endpoint(_)));
    start_call(&mut caller, ms(at + 100), CloneOptions::default());
    let probe = sent(&mut caller).into_iter().find(|sent| sent.to == CloneDestination::Element).expect("a probe");
    caller.receive(ms(at + 101), &answer(&probe, 13, by_element(), b""));
    assert!(caller.by_element());
}

#[test]
fn lone_call_bypasses_silent_element() {
    let mut caller =
        CloneCaller::new(Instant(0), CloneCallerConfig { retry_max: Duration::from_millis(100), ..config() });
    start_call(&mut caller, ms(0), CloneOptions::default());
    for at in 1..1_000 {
        caller.poll(ms(at));
    }
    let routes: Vec<bool> = sent(&mut caller).iter().map(|sent| sent.to == CloneDestination::Element).collect();
    assert!(
        routes.len() > 8 && routes[..3] == [true; 3] && routes[3..].iter().all(|by_element| !by_element),
        "{routes:?}"
    );
}

#[test]
fn request_counts_once_against_the_element() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], ..config() });
    start_call(&mut caller, ms(0), CloneOptions::default());
    for at in 1..1_000 {
        caller.poll(ms(at));
    }
    // The budget allowed one clone, and so no repeat.
    assert!(caller.by_element() && caller.stats().refused.budget > 3, "{:?}", caller.stats());
}

#[test]
fn call_of_removed_server_goes_to_another() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), random());
    let left = sent(&mut caller).remove(0).base.dst;
    let servers = SERVERS.into_iter().filter(|server| *server != left).collect();
    caller.set_pool(ms(1), Pool { gaid: 9, version: 5, servers });
    caller.poll(ms(1));
    let again = sent(&mut caller).remove(0);
    assert!(again.base.dst != left && again.base.epoch == 5);
}

#[test]
fn call_numbers_wrap() {
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { last_call: u32::MAX - 1, ..config() });
    let ids = [(); 3].map(|()| start_call(&mut caller, ms(0), CloneOptions::default()).0);
    assert_eq!(ids, [u32::MAX, 1, 2]);
}

#[test]
fn exceeded_limits_are_errors() {
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { calls_max: 1, ..config() });
    let long = Bytes::from(vec![0; super::super::MESSAGE_MAX + 1]);
    let options = CloneOptions::default();
    let error = caller.start_call(ms(0), CloneCall { request: long, options }).expect_err("the request is too long");
    assert!(matches!(error, StartError::TooLong(_)), "{error}");
    start_call(&mut caller, ms(0), options);
    let request = Bytes::new();
    assert_eq!(caller.start_call(ms(0), CloneCall { request, options }), Err(StartError::CallsFull(1)));
}

proptest! {
    /// With arbitrary frames, each call ends once, with an answer to it or at its deadline.
    #[test]
    fn every_call_ends_once(steps in prop::collection::vec((0..6_u8, any::<u16>(), 0..4_u8), 1..200)) {
        let mut caller = caller();
        let (mut at, mut requests, mut open) = (0, Vec::new(), std::collections::HashSet::new());
        for (step, number, few) in steps {
            let pick = |len: usize| usize::from(number) % len.max(1);
            match step {
                0 | 1 => {
                    let options = CloneOptions { cancel: few == 1, ..ALL_OPTIONS[pick(ALL_OPTIONS.len())]() };
                    prop_assert!(open.insert(start_call(&mut caller, ms(at), options)));
                }
                2 => at += u64::from(number % 300),
                3 | 4 if !requests.is_empty() => {
                    let request: &Sent = &requests[pick(requests.len())];
                    let head = CloneRepr { clo: few % 3, switch_id: few.into(), ..CloneRepr::default() };
                    caller.receive(ms(at), &answer(request, SERVERS[usize::from(few) % 3], head, b"yes"));
                }
                _ => caller.receive(ms(at), &number.to_be_bytes().repeat(usize::from(few) * 20)),
            }
            caller.poll(ms(at));
            requests.extend(sent(&mut caller));
            while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.next_event() {
                prop_assert!(open.remove(&call), "{:?} ended twice", call);
            }
        }
        caller.poll(ms(at + 1_000));
        while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.next_event() {
            prop_assert!(open.remove(&call), "{:?} ended twice", call);
        }
        prop_assert!(open.is_empty() && caller.is_empty());
    }
}

#[test]
fn cancelled_call_is_cancelled_at_its_servers() {
    let mut caller = caller();
    let call = start_call(&mut caller, ms(0), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    caller.cancel(ms(0), call);
    let cancellations = sent(&mut caller);
    let (first, second) = pathcall_wire::clone::pair(request.head.grp, SERVERS.len()).expect("a group");
    let named: Vec<_> = cancellations
        .iter()
        .map(|cancellation| (cancellation.to, cancellation.head.sid, cancellation.head.grp))
        .collect();
    let of_pair = |sid| (CloneDestination::Element, sid, request.head.grp);
    assert_eq!(named, [of_pair(first), of_pair(second)], "each cancellation names the other server");
    let call = start_call(&mut caller, ms(0), sent_to_two());
    let asked: Vec<_> = sent(&mut caller).iter().map(|request| request.to).collect();
    caller.cancel(ms(0), call);
    let mut destinations: Vec<_> = sent(&mut caller).iter().map(|cancellation| cancellation.to).collect();
    destinations.reverse();
    assert_eq!(destinations, asked);
    caller.cancel(ms(0), call);
    assert!(sent(&mut caller).is_empty(), "a call is cancelled once");
}
