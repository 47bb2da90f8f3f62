use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::clone::{CALLER_ID, ORIGINAL, PART, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneRepr, MAX_FRAME};
use proptest::prelude::*;

use super::super::{Balance, Budget, Hedge, Options};
use super::*;

mod deadlines;
mod failures;
mod ignored;
mod steered;

const SERVERS: [u32; 3] = [11, 12, 13];

/// A frame as it was sent.
struct Sent {
    to: To,
    base: BaseRepr,
    head: CloneRepr,
    payload: Vec<u8>,
}

fn config() -> CallerConfig {
    let pool = Pool { gaid: 9, version: 4, servers: SERVERS.to_vec() };
    CallerConfig { last_call: 0, ..CallerConfig::new(5, 77, pool, 3) }
}

fn caller() -> Caller {
    Caller::new(Instant(0), config())
}

fn ms_of(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn ask(caller: &mut Caller, now: Instant, options: Options) -> CallId {
    ask_for(caller, now, options, b"what?")
}

fn ask_for(caller: &mut Caller, now: Instant, options: Options, request: &'static [u8]) -> CallId {
    caller.ask(now, Ask { request: Bytes::from_static(request), options }).expect("there is room")
}

fn sent(caller: &mut Caller) -> Vec<Sent> {
    sent_at(caller, Instant(0))
}

fn sent_at(caller: &mut Caller, now: Instant) -> Vec<Sent> {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (to, len) = caller.transmit(now, &mut out)?;
        let frame = CloneFrame::new_checked(&out[..len]).expect("callers write frames");
        Some(Sent { to, base: frame.base().repr(), head: frame.head().repr(), payload: frame.payload().to_vec() })
    };
    std::iter::from_fn(next).collect()
}

/// A part of an answer to a request.
fn answer(request: &Sent, server: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    reply(Kind::CloneReply, request, server, head, payload)
}

fn reply(kind: Kind, request: &Sent, server: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
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

fn answered(caller: &mut Caller) -> Option<(CallId, Vec<u8>)> {
    match caller.event()? {
        Event::Answered(call, answer) => Some((call, answer.reply.to_vec())),
        Event::Failed(call, failure) => panic!("{call:?}: {failure}"),
    }
}

/// A random server, past the element.
fn random() -> Options {
    Options { clone: false, ..Options::default() }
}

/// The servers in turn, past the element.
fn in_turn() -> Options {
    Options { balance: Balance::RoundRobin, ..random() }
}

/// Two random servers at once, by the caller.
fn twice() -> Options {
    Options { twice: true, ..random() }
}

/// Ways to make a call.
const WAYS: [fn() -> Options; 7] = [
    random,
    in_turn,
    twice,
    || Options { balance: Balance::Shortest, ..random() },
    || Options { hedge: Some(Hedge { delay: Duration::from_millis(10), max_attempts: 2 }), ..random() },
    Options::default,
    || Options { balance: Balance::Shortest, ..Options::default() },
];

#[test]
fn a_call_has_one_answer() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    assert_eq!((request.to, request.head.flags, request.head.req_id), (To::Element, CloneFlags::CLONE, 0));
    assert_eq!((request.base.epoch, &request.payload[..]), (4, &b"what?"[..]));
    let cloned = CloneRepr { clo: ORIGINAL, ..by_element() };
    caller.receive(ms(1), &answer(&request, 12, cloned, b"this"));
    caller.receive(ms(1), &answer(&request, 11, cloned, b"that"));
    assert_eq!((answered(&mut caller), caller.event()), (Some((call, b"this".to_vec())), None));
    let stats = caller.stats();
    assert_eq!((stats.answered, stats.redundant, stats.cloned), (1, 1, 1));
    assert!(caller.is_empty());
}

#[test]
fn parts_of_two_answers_never_meet() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    let part = |part| CloneRepr { part, parts: 2, ..by_element() };
    caller.receive(ms(1), &answer(&request, 11, part(0), &[1; PART]));
    caller.receive(ms(1), &answer(&request, 12, part(1), b"2"));
    assert_eq!(answered(&mut caller), None);
    caller.receive(ms(1), &answer(&request, 11, part(1), b"1"));
    let (of, reply) = answered(&mut caller).expect("all parts of one answer are there");
    assert_eq!((of, reply.len(), reply[PART]), (call, PART + 1, b'1'));
}

#[test]
fn what_may_take_effect_once_is_sent_once_to_one_server() {
    let mut caller = caller();
    for way in WAYS {
        ask(&mut caller, ms(0), Options { idempotent: false, ..way() });
        let requests = sent(&mut caller);
        assert_eq!((requests.len(), requests[0].head.flags), (1, CloneFlags::DIRECT), "{:?}", way());
        assert_eq!(requests[0].to, To::Endpoint(requests[0].base.dst), "{:?}", way());
    }
    for at in 1..=1_000 {
        caller.poll(ms(at));
    }
    assert!(sent(&mut caller).is_empty());
    let failed = std::iter::from_fn(|| caller.event()).filter(|event| matches!(event, Event::Failed(..))).count();
    assert_eq!((failed, caller.is_empty()), (WAYS.len(), true));
}

#[test]
fn a_call_that_nobody_answers_is_sent_again_under_its_own_id() {
    let mut caller = caller();
    ask(&mut caller, ms(0), Options::default());
    let first = sent(&mut caller).remove(0);
    caller.poll(ms(100));
    let again = sent(&mut caller).remove(0);
    assert_eq!((first.head.attempt, again.head.attempt, again.base.seq), (0, 1, first.base.seq));
    assert!(again.head.req_id & CALLER_ID != 0);
    // The answer to either is one.
    caller.receive(ms(101), &answer(&first, 11, by_element(), b"late"));
    assert!(answered(&mut caller).is_some());
}

#[test]
fn parts_that_are_sent_again_gather_at_one_server() {
    let mut caller = caller();
    let request = &[7; PART + 1];
    ask_for(&mut caller, ms(0), Options { balance: Balance::Shortest, ..Options::default() }, request);
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
fn who_works_on_a_call_is_asked_for_it() {
    let mut caller = caller();
    ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    assert!(request.head.patience > 0);
    caller.receive(ms(1), &reply(Kind::CloneWorking, &request, 12, by_element(), b""));
    caller.poll(ms(100));
    let again = sent(&mut caller).remove(0);
    assert_eq!((again.to, again.base.dst, again.head.flags), (To::Element, 12, CloneFlags::DIRECT));
}

#[test]
fn clones_and_repeats_keep_within_the_budget() {
    let budget = Budget { share: 0.1, burst: 5.0, per_second: 0.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], ..config() });
    let (mut clones, mut requests) = (0, 0);
    for at in 0..1_000 {
        ask(&mut caller, ms(at), Options::default());
        caller.poll(ms(at));
        for request in sent(&mut caller) {
            requests += 1;
            clones += u64::from(request.head.flags & CloneFlags::CLONE != 0);
        }
    }
    let extra = requests + clones - 1_000;
    assert!((95..=105).contains(&extra), "{extra}: {:?}", caller.stats());
    assert!(caller.stats().refused > 0);
}

#[test]
fn what_was_not_cloned_is_paid_back() {
    let budget = Budget { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], ..config() });
    for _ in 0..10 {
        ask(&mut caller, ms(0), Options::default());
        let request = sent(&mut caller).remove(0);
        assert_eq!(request.head.flags, CloneFlags::CLONE);
        caller.receive(ms(0), &answer(&request, 11, by_element(), b""));
    }
    ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    caller.receive(ms(0), &answer(&request, 11, CloneRepr { clo: ORIGINAL, ..by_element() }, b""));
    ask(&mut caller, ms(0), Options::default());
    assert_eq!(sent(&mut caller)[0].head.flags, 0, "the one before was cloned");
}

#[test]
fn calls_go_past_a_silent_element_and_come_back() {
    let mut caller = caller();
    let mut at = 0;
    while caller.by_element() {
        ask(&mut caller, ms(at), Options::default());
        at += 50;
        caller.poll(ms(at));
        assert!(at < 1_000, "three requests in a row are enough");
    }
    drop(sent(&mut caller));
    ask(&mut caller, ms(at), Options::default());
    assert!(matches!(sent(&mut caller)[0].to, To::Endpoint(_)));
    ask(&mut caller, ms(at + 100), Options::default());
    let probe = sent(&mut caller).into_iter().find(|sent| sent.to == To::Element).expect("it is tried again");
    caller.receive(ms(at + 101), &answer(&probe, 13, by_element(), b""));
    assert!(caller.by_element());
}

#[test]
fn a_call_alone_goes_past_a_silent_element() {
    let mut caller = Caller::new(Instant(0), CallerConfig { retry_max: Duration::from_millis(100), ..config() });
    ask(&mut caller, ms(0), Options::default());
    for at in 1..1_000 {
        caller.poll(ms(at));
    }
    let ways: Vec<bool> = sent(&mut caller).iter().map(|sent| sent.to == To::Element).collect();
    assert!(ways.len() > 8 && ways[..3] == [true; 3] && ways[3..].iter().all(|by_element| !by_element), "{ways:?}");
}

#[test]
fn an_element_is_blamed_once_for_a_request() {
    let budget = Budget { share: 0.0, burst: 1.0, per_second: 0.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], ..config() });
    ask(&mut caller, ms(0), Options::default());
    for at in 1..1_000 {
        caller.poll(ms(at));
    }
    // The budget paid for a clone, and so for no repeat.
    assert!(caller.by_element() && caller.stats().refused > 3, "{:?}", caller.stats());
}

#[test]
fn what_a_server_had_that_left_goes_to_another() {
    let mut caller = caller();
    ask(&mut caller, ms(0), random());
    let left = sent(&mut caller).remove(0).base.dst;
    let servers = SERVERS.into_iter().filter(|server| *server != left).collect();
    caller.pool(ms(1), Pool { gaid: 9, version: 5, servers });
    caller.poll(ms(1));
    let again = sent(&mut caller).remove(0);
    assert!(again.base.dst != left && again.base.epoch == 5);
}

#[test]
fn numbers_of_calls_wrap() {
    let mut caller = Caller::new(Instant(0), CallerConfig { last_call: u32::MAX - 1, ..config() });
    let ids = [(); 3].map(|()| ask(&mut caller, ms(0), Options::default()).0);
    assert_eq!(ids, [u32::MAX, 1, 2]);
}

#[test]
fn bounds_are_errors() {
    let mut caller = Caller::new(Instant(0), CallerConfig { calls_max: 1, ..config() });
    let long = Bytes::from(vec![0; super::super::MESSAGE_MAX + 1]);
    let options = Options::default();
    let error = caller.ask(ms(0), Ask { request: long, options }).expect_err("it is too long");
    assert!(matches!(error, AskError::TooLong(_)), "{error}");
    ask(&mut caller, ms(0), options);
    let request = Bytes::new();
    assert_eq!(caller.ask(ms(0), Ask { request, options }), Err(AskError::CallsFull(1)));
}

proptest! {
    /// Whatever comes, each call ends once, with an answer to it or at its deadline.
    #[test]
    fn every_call_ends_once(steps in prop::collection::vec((0..6_u8, any::<u16>(), 0..4_u8), 1..200)) {
        let mut caller = caller();
        let (mut at, mut requests, mut open) = (0, Vec::new(), std::collections::HashSet::new());
        for (what, number, few) in steps {
            let pick = |len: usize| usize::from(number) % len.max(1);
            match what {
                0 | 1 => {
                    let options = Options { cancel: few == 1, ..WAYS[pick(WAYS.len())]() };
                    prop_assert!(open.insert(ask(&mut caller, ms(at), options)));
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
            while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.event() {
                prop_assert!(open.remove(&call), "{:?} ended twice", call);
            }
        }
        caller.poll(ms(at + 1_000));
        while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.event() {
            prop_assert!(open.remove(&call), "{:?} ended twice", call);
        }
        prop_assert!(open.is_empty() && caller.is_empty());
    }
}

#[test]
fn servers_that_may_have_a_call_hear_that_it_is_given_up() {
    let mut caller = caller();
    let call = ask(&mut caller, ms(0), Options::default());
    let request = sent(&mut caller).remove(0);
    caller.give_up(call);
    let words = sent(&mut caller);
    let (first, second) = pathcall_wire::clone::pair(request.head.grp, SERVERS.len()).expect("a group");
    let named: Vec<_> = words.iter().map(|word| (word.to, word.head.sid, word.head.grp)).collect();
    let of_pair = |sid| (To::Element, sid, request.head.grp);
    assert_eq!(named, [of_pair(first), of_pair(second)], "each goes to the other one");
    let call = ask(&mut caller, ms(0), twice());
    let asked: Vec<_> = sent(&mut caller).iter().map(|request| request.to).collect();
    caller.give_up(call);
    let mut told: Vec<_> = sent(&mut caller).iter().map(|word| word.to).collect();
    told.reverse();
    assert_eq!(told, asked);
    caller.give_up(call);
    assert!(sent(&mut caller).is_empty(), "once");
}
