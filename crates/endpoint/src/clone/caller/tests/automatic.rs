//! Tests of calls whose policy the caller chooses.

use super::*;

fn automatic() -> CloneOptions {
    CloneOptions { automatic: true, cancel: true, ..random() }
}

/// Makes calls that are answered after 1 ms, one each ms, by servers with this many waiting requests; returns the
/// requests.
fn make_calls(caller: &mut CloneCaller, from: u64, calls: u64, state: u16) -> Vec<Sent> {
    let (mut requests, mut next) = (Vec::new(), 0);
    for at in from..from + calls {
        start_call(caller, ms(at), automatic());
        caller.poll(ms(at));
        requests.extend(sent(caller));
        while next + 1 < requests.len() {
            let head = CloneRepr { state, ..by_element() };
            caller.receive(ms(at), &answer(&requests[next], SERVERS[0], head, b"yes"));
            next += 1;
        }
        while answered(caller).is_some() {}
    }
    requests
}

fn with_budget(share: f64) -> CloneCaller {
    let budgets = vec![HedgeBudgetConfig { share, burst: 1e6, per_second: 0.0 }];
    CloneCaller::new(Instant(0), CloneCallerConfig { budgets, policy_period: 20, retry_min: ms_of(900), ..config() })
}

#[test]
fn automatic_calls_begin_with_the_shorter_queue_and_hedges() {
    let mut caller = with_budget(0.1);
    assert_eq!(caller.policy(0), None);
    let requests = make_calls(&mut caller, 0, 10, 0);
    assert!(requests.iter().all(|request| request.head.flags == CloneFlags::SHORTEST));
    let stats = caller.policy(0).expect("a policy");
    assert_eq!((stats.policy, stats.reason), (ClonePolicy::Hedged, PolicyReason::FewCalls));
}

#[test]
fn policies_with_more_requests_than_the_budget_allows_are_not_tried() {
    for (share, tried) in [(0.0, [true, true, false, false]), (0.1, [true, true, true, false]), (1.0, [true; 4])] {
        let mut caller = with_budget(share);
        let requests = make_calls(&mut caller, 0, 5_000, 0);
        let periods = caller.policy(0).expect("a policy").periods;
        assert_eq!(periods.map(|periods| periods > 0), tried, "{share}: {periods:?}");
        let cloned = requests.iter().any(|request| request.head.flags & CloneFlags::CLONE != 0);
        assert_eq!(cloned, tried[3], "{share}");
    }
}

#[test]
fn waiting_requests_at_servers_end_hedges() {
    let mut caller = with_budget(0.1);
    make_calls(&mut caller, 0, 2_000, 3);
    let stats = caller.policy(0).expect("a policy");
    assert!(stats.policy <= ClonePolicy::Shortest, "{stats:?}");
}

#[test]
fn automatic_call_that_is_not_idempotent_is_sent_once() {
    let mut caller = with_budget(1.0);
    start_call(&mut caller, ms(0), CloneOptions { idempotent: false, ..automatic() });
    let requests = sent(&mut caller);
    assert!(requests.len() == 1 && requests[0].head.flags == CloneFlags::DIRECT && caller.policy(0).is_none());
}
