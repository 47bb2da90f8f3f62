//! Which servers a call goes to, and when to another.

use super::*;

#[test]
fn c_clone_asks_two_servers_and_cancels_one() {
    let mut caller = caller();
    ask(&mut caller, ms(0), Options { cancel: true, ..twice() });
    let requests = sent(&mut caller);
    let (one, other) = (requests[0].base.dst, requests[1].base.dst);
    assert!(requests.len() == 2 && one != other, "{one} {other}");
    caller.receive(ms(1), &answer(&requests[0], one, CloneRepr::default(), b""));
    let cancel = sent(&mut caller).remove(0);
    assert_eq!((cancel.base.kind, cancel.to), (Kind::CloneCancel as u8, To::Endpoint(other)));
}

#[test]
fn the_other_server_of_a_cloned_call_is_told_by_the_element() {
    let mut caller = caller();
    ask(&mut caller, ms(0), Options { cancel: true, ..Options::default() });
    let request = sent(&mut caller).remove(0);
    let head = CloneRepr { clo: ORIGINAL, sid: 2, grp: request.head.grp, ..by_element() };
    caller.receive(ms(1), &answer(&request, 13, head, b""));
    let cancel = sent(&mut caller).remove(0);
    assert_eq!((cancel.to, cancel.head.sid, cancel.head.grp), (To::Element, 2, request.head.grp));
    assert_eq!(sent(&mut caller).len(), 0);
}

#[test]
fn a_hedged_call_goes_to_another_server_when_it_takes_long() {
    let mut caller = caller();
    let hedge = Hedge { delay: Duration::from_millis(3), max_attempts: 2 };
    ask(&mut caller, ms(0), Options { hedge: Some(hedge), ..random() });
    let first = sent(&mut caller).remove(0).base.dst;
    caller.poll(ms(2));
    assert!(sent(&mut caller).is_empty());
    caller.poll(ms(3));
    let second = sent(&mut caller).remove(0).base.dst;
    assert!(first != second, "{first}");
    caller.poll(ms(6));
    assert!(sent(&mut caller).is_empty() && caller.stats().hedged == 1);
}

#[test]
fn hedges_without_a_delay_wait_for_their_budget() {
    let budget = Budget { share: 0.0, burst: 1.0, per_second: 100.0 };
    let mut caller = Caller::new(Instant(0), CallerConfig { budgets: vec![budget], retry_min: ms_of(2), ..config() });
    let hedge = Hedge { delay: Duration::ZERO, max_attempts: 4 };
    ask(&mut caller, ms(0), Options { hedge: Some(hedge), ..random() });
    let mut after = |now: u64| {
        caller.poll(ms(now));
        sent(&mut caller).len()
    };
    assert_eq!([after(0), after(1)], [2, 0], "the call, and what the budget has for it");
    assert_eq!((2..=30).map(after).sum::<usize>(), 2, "as time pays for them");
}

#[test]
fn servers_in_turn() {
    let mut caller = caller();
    let mut asked = Vec::new();
    for _ in 0..6 {
        ask(&mut caller, ms(0), in_turn());
        asked.push(sent(&mut caller).remove(0).base.dst);
    }
    assert_eq!(asked[..3], asked[3..]);
    asked.truncate(3);
    asked.sort_unstable();
    assert_eq!(asked, SERVERS);
}
