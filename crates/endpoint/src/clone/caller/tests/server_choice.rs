//! Tests of the choice of servers, at the first send and for hedges.

use super::*;

#[test]
fn c_clone_asks_two_servers_and_cancels_one() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), CloneOptions { cancel: true, ..sent_to_two() });
    let requests = sent(&mut caller);
    let (one, other) = (requests[0].base.dst, requests[1].base.dst);
    assert!(requests.len() == 2 && one != other, "{one} {other}");
    caller.receive(ms(1), &answer(&requests[0], one, CloneRepr::default(), b""));
    let cancel = sent(&mut caller).remove(0);
    assert_eq!((cancel.base.kind, cancel.to), (FrameKind::CloneCancel as u8, CloneDestination::Endpoint(other)));
}

#[test]
fn cloned_call_is_cancelled_through_the_element() {
    let mut caller = caller();
    start_call(&mut caller, ms(0), CloneOptions { cancel: true, ..CloneOptions::default() });
    let request = sent(&mut caller).remove(0);
    let head = CloneRepr { clo: ORIGINAL, sid: 2, grp: request.head.grp, ..by_element() };
    caller.receive(ms(1), &answer(&request, 13, head, b""));
    let cancel = sent(&mut caller).remove(0);
    assert_eq!((cancel.to, cancel.head.sid, cancel.head.grp), (CloneDestination::Element, 2, request.head.grp));
    assert_eq!(sent(&mut caller).len(), 0);
}

#[test]
fn slow_hedged_call_goes_to_another_server() {
    let mut caller = caller();
    let hedge = Hedge { after: HedgeAfter::Delay(Duration::from_millis(3)), max_attempts: 2 };
    start_call(&mut caller, ms(0), CloneOptions { hedge: Some(hedge), ..random() });
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
fn learned_delay_grows_while_calls_wait() {
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { retry_min: ms_of(100), ..config() });
    let hedge = Hedge { after: HedgeAfter::Share(50), max_attempts: 2 };
    let options = CloneOptions { hedge: Some(hedge), ..random() };
    for nth in 0..16 {
        start_call(&mut caller, ms(10 * nth), options);
        let request = sent(&mut caller).remove(0);
        caller.poll(ms(10 * nth + 1));
        caller.receive(ms(10 * nth + 1), &answer(&request, request.base.dst, CloneRepr::default(), b""));
    }
    let calls = [(); 3].map(|()| start_call(&mut caller, ms(1000), options));
    let first = sent(&mut caller).remove(0);
    let mut hedged_at = |us: u64| {
        caller.poll(Instant(us * 1_000));
        sent(&mut caller).len()
    };
    // The first delay is four times the mean latency. Each hedge makes it a tenth longer for the others.
    assert_eq!([1_003_900, 1_004_010, 1_004_300].map(&mut hedged_at), [0, 1, 0]);
    assert_eq!([1_004_410, 1_004_800, 1_004_850].map(&mut hedged_at), [1, 0, 1]);
    caller.receive(ms(1005), &answer(&first, first.base.dst, CloneRepr::default(), b"a"));
    let last = std::iter::from_fn(|| answered(&mut caller)).last().map(|(call, _)| call);
    assert_eq!((last, caller.stats().hedged), (Some(calls[0]), 3));
}

#[test]
fn refused_hedge_counts_as_one_slow_call() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 0.0, per_second: 0.0 };
    let config = CloneCallerConfig { retry_min: ms_of(100), budgets: vec![budget], ..config() };
    let mut caller = CloneCaller::new(Instant(0), config);
    let hedge = Hedge { after: HedgeAfter::Share(50), max_attempts: 2 };
    let options = CloneOptions { hedge: Some(hedge), deadline: Duration::from_secs(60), ..random() };
    for _ in 0..16 {
        start_call(&mut caller, ms(0), options);
        let request = sent(&mut caller).remove(0);
        caller.receive(ms(1), &answer(&request, request.base.dst, CloneRepr::default(), b""));
    }
    start_call(&mut caller, ms(1000), options);
    sent(&mut caller);
    for us in (1_000_000..3_000_000).step_by(1_000) {
        caller.poll(Instant(us * 1_000));
    }
    let delay = caller.hedge_delays[0].get().expect("learned").as_micros();
    assert!(caller.stats().hedged == 0 && (4_300..4_500).contains(&delay), "{delay} us");
}

#[test]
fn hedges_without_delay_wait_for_budget() {
    let budget = HedgeBudgetConfig { share: 0.0, burst: 1.0, per_second: 100.0 };
    let mut caller =
        CloneCaller::new(Instant(0), CloneCallerConfig { budgets: vec![budget], retry_min: ms_of(2), ..config() });
    let hedge = Hedge { after: HedgeAfter::Delay(Duration::ZERO), max_attempts: 4 };
    start_call(&mut caller, ms(0), CloneOptions { hedge: Some(hedge), ..random() });
    let mut after = |now: u64| {
        caller.poll(ms(now));
        sent(&mut caller).len()
    };
    assert_eq!([after(0), after(1)], [2, 0], "the call, and one hedge from the budget");
    assert_eq!((2..=30).map(after).sum::<usize>(), 2, "time adds to the budget");
}

#[test]
fn round_robin_asks_all_servers_in_turn() {
    let mut caller = caller();
    let mut asked = Vec::new();
    for _ in 0..6 {
        start_call(&mut caller, ms(0), in_turn());
        asked.push(sent(&mut caller).remove(0).base.dst);
    }
    assert_eq!(asked[..3], asked[3..]);
    asked.truncate(3);
    asked.sort_unstable();
    assert_eq!(asked, SERVERS);
}

/// Servers that calls past a silent element, or by a pair's first server, go to while none is answered.
fn chosen_servers(caller: &mut CloneCaller, now: Instant, calls: u32) -> Vec<u32> {
    let options = CloneOptions { clone: false, balance: Balance::Shortest, ..CloneOptions::default() };
    let call = |_| {
        start_call(caller, now, options);
        let request = sent(caller).remove(0);
        let (first, _) = pathcall_wire::clone::pair(request.head.grp, SERVERS.len()).expect("a group");
        SERVERS[usize::from(first)]
    };
    (0..calls).map(call).collect()
}

#[test]
fn burst_of_calls_for_shorter_queue_is_spread_although_reports_are_old() {
    let mut caller = caller();
    let chosen = chosen_servers(&mut caller, ms(0), 90);
    for server in SERVERS {
        let count = chosen.iter().filter(|chosen| **chosen == server).count();
        assert!((28..=32).contains(&count), "{server}: {count} of 90");
    }
}

#[test]
fn server_that_reports_waiting_requests_is_chosen_second() {
    let mut caller = caller();
    let options = CloneOptions { clone: false, balance: Balance::Shortest, ..CloneOptions::default() };
    start_call(&mut caller, ms(0), options);
    let request = sent(&mut caller).remove(0);
    for (server, state) in [(11, 50), (12, 0), (13, 0)] {
        let head = CloneRepr { state, ..by_element() };
        let mut bytes = reply(FrameKind::CloneWorking, &request, server, head, b"");
        CloneFrame::new_checked(&mut bytes[..]).expect("a frame").base_mut().set_round(1);
        caller.receive(ms(0), &bytes);
    }
    assert!(!chosen_servers(&mut caller, ms(1), 40).contains(&11));
    let later = chosen_servers(&mut caller, ms(102), 40);
    assert!(later.contains(&11), "after 100 ms, the report counts no longer");
}
