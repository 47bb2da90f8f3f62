//! Tests of the counters of extra requests, by reason.

use super::*;

/// Counters after `act` on a caller with a budget of this size.
fn counted(burst: f64, act: impl FnOnce(&mut CloneCaller)) -> CloneCallerStats {
    let budgets = vec![HedgeBudgetConfig { share: 0.0, burst, per_second: 0.0 }];
    let mut caller = CloneCaller::new(Instant(0), CloneCallerConfig { budgets, ..config() });
    act(&mut caller);
    caller.stats()
}

/// Starts a call, and answers its first request.
fn call(caller: &mut CloneCaller, options: CloneOptions, head: CloneRepr) {
    start_call(caller, ms(0), options);
    let request = sent(caller).remove(0);
    caller.receive(ms(0), &answer(&request, request.base.dst.max(11), head, b"yes"));
}

#[test]
fn each_extra_request_is_counted_by_its_reason() {
    let clone = counted(9.0, |caller| {
        call(caller, CloneOptions::default(), CloneRepr { clo: ORIGINAL, ..by_element() });
    });
    let second = counted(9.0, |caller| call(caller, sent_to_two(), by_element()));
    let repeat = counted(9.0, |caller| {
        start_call(caller, ms(0), random());
        caller.poll(ms(20));
    });
    let hedge = counted(9.0, |caller| {
        let hedge = Hedge { after: HedgeAfter::Delay(ms_of(3)), max_attempts: 2 };
        start_call(caller, ms(0), CloneOptions { hedge: Some(hedge), ..random() });
        caller.poll(ms(3));
    });
    let failed = counted(9.0, |caller| {
        call(caller, CloneOptions::default(), CloneRepr { flags: CloneFlags::FAILED, ..by_element() });
    });
    let reasons = |stats: CloneCallerStats| {
        [stats.cloned, stats.second_requests, stats.repeated, stats.hedged, stats.after_failed]
    };
    assert_eq!(
        [clone, second, repeat, hedge, failed].map(reasons),
        [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    );
    assert!([clone, second, repeat, hedge, failed].iter().all(|stats| stats.extra() == 1));
}

#[test]
fn refused_clone_or_hedge_is_counted_by_its_reason() {
    let once = CloneOptions { idempotent: false, ..CloneOptions::default() };
    let dear = CloneOptions { cost: 2, ..CloneOptions::default() };
    let refused = [
        counted(0.0, |caller| call(caller, CloneOptions::default(), by_element())),
        counted(1.0, |caller| call(caller, dear, by_element())),
        counted(1.0, |caller| call(caller, CloneOptions::default(), by_element())),
        counted(1.0, |caller| call(caller, once, by_element())),
    ];
    let usual = RefusedExtra::default();
    assert_eq!(
        refused.map(|stats| stats.refused),
        [
            RefusedExtra { budget: 1, ..usual },
            RefusedExtra { dear: 1, ..usual },
            RefusedExtra { busy: 1, ..usual },
            RefusedExtra { not_idempotent: 1, ..usual },
        ]
    );
    assert!(refused.iter().all(|stats| stats.refused.total() == 1 && stats.extra() == 0));
}
