//! Tests of extra requests while all servers are slow together.

use super::*;

/// Makes calls that are all answered after `took`, one each ms; returns the extra requests that were sent or allowed.
fn make_calls(caller: &mut CloneCaller, from: u64, calls: u64, took: u64, options: CloneOptions) -> Vec<u64> {
    let (mut waiting, mut extra) = (Vec::new(), vec![0; calls as usize]);
    for at in from..from + calls + took {
        if at < from + calls {
            start_call(caller, ms(at), options);
        }
        caller.poll(ms(at));
        let requests = sent(caller);
        let nth = (at - from).min(calls - 1) as usize;
        extra[nth] += requests.len() as u64 - u64::from(at < from + calls);
        for request in requests {
            let clone = request.head.flags & CloneFlags::CLONE != 0;
            extra[nth] += u64::from(clone);
            waiting.push((at + took, clone, request));
        }
        for (_, clone, request) in waiting.extract_if(.., |(due, ..)| *due == at) {
            let head = CloneRepr { clo: u8::from(clone) * ORIGINAL, ..by_element() };
            caller.receive(ms(at), &answer(&request, SERVERS[0], head, b"yes"));
        }
        while answered(caller).is_some() {}
    }
    extra
}

fn generous() -> CloneCaller {
    let budgets = vec![HedgeBudgetConfig { share: 1.0, burst: 1e6, per_second: 0.0 }];
    CloneCaller::new(Instant(0), CloneCallerConfig { budgets, retry_min: ms_of(900), ..config() })
}

#[test]
fn nothing_is_cloned_or_hedged_while_all_servers_are_slow() {
    let after = HedgeAfter::Delay(ms_of(3));
    let hedged = CloneOptions { hedge: Some(Hedge { after, max_attempts: 2 }), ..random() };
    for (options, usual_extra) in [(CloneOptions::default(), 1), (hedged, 0), (sent_to_two(), 1)] {
        let mut caller = generous();
        let usual = make_calls(&mut caller, 0, 500, 2, options);
        assert!(usual.iter().all(|extra| *extra == usual_extra), "{options:?}: {usual:?}");
        let slow = make_calls(&mut caller, 1_000, 500, 20, options);
        assert!(slow[150..].iter().all(|extra| *extra == 0), "{options:?}: {slow:?}");
        assert!(caller.stats().refused.outage > 200 && caller.stats().refused.budget == 0, "{:?}", caller.stats());
        let again = make_calls(&mut caller, 2_000, 500, 2, options);
        assert!(again[100..].iter().all(|extra| *extra == usual_extra), "{options:?}: {again:?}");
    }
}

#[test]
fn nothing_is_cloned_while_no_server_answers() {
    let mut caller = generous();
    make_calls(&mut caller, 0, 500, 2, CloneOptions::default());
    let mut clones = Vec::new();
    for at in 1_000..1_200 {
        start_call(&mut caller, ms(at), CloneOptions::default());
        let cloned = |request: &Sent| request.head.flags & CloneFlags::CLONE != 0;
        clones.push(sent(&mut caller).iter().any(cloned));
    }
    assert!(clones[..10].iter().all(|cloned| *cloned) && clones[150..].iter().all(|cloned| !cloned), "{clones:?}");
}

#[test]
fn failed_answer_goes_to_another_server_while_all_are_slow() {
    let mut caller = generous();
    make_calls(&mut caller, 0, 500, 2, CloneOptions::default());
    make_calls(&mut caller, 1_000, 500, 20, CloneOptions::default());
    start_call(&mut caller, ms(2_000), CloneOptions::default());
    let request = sent(&mut caller).remove(0);
    assert_eq!(request.head.flags, 0, "slow");
    let head = CloneRepr { flags: CloneFlags::FAILED, ..by_element() };
    caller.receive(ms(2_001), &answer(&request, 11, head, b"no"));
    assert_eq!(sent(&mut caller).len(), 1);
}
