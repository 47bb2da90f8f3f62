//! Tests of requests whose hedge the element holds, or should hold.

use super::*;

/// Request whose caller lets the element send a hedge after 3 ms.
fn held(seq: u32, head: CloneRepr) -> Vec<u8> {
    let mut bytes = request(seq, head, b"held");
    CloneFrame::new_checked(&mut bytes[..]).expect("a valid frame").base_mut().set_round(3_000);
    bytes
}

/// Times in ms at which the server has reported that it works on the request.
fn reports(head: CloneRepr) -> Vec<u64> {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &held(1, head));
    let reported = |at: &u64| {
        worker.poll(ms(*at));
        !sent(&mut worker).is_empty()
    };
    (1..=20).filter(reported).collect()
}

#[test]
fn server_reports_request_that_element_does_not_hold() {
    assert_eq!(reports(plain()), [3], "at the time of the hedge");
    assert_eq!(reports(CloneRepr { patience: 9_000, ..plain() }), [3]);
    assert_eq!(reports(CloneRepr { patience: 2_000, ..plain() }), [2]);
    assert_eq!(reports(CloneRepr { clo: ORIGINAL, ..plain() }), [], "the element holds it");
    assert_eq!(reports(CloneRepr { clo: ORIGINAL, patience: 9_000, ..plain() }), [9]);
}

#[test]
fn hedge_waits_in_queue_and_counts_its_time_at_element() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(10), &request(1, plain(), b""));
    worker.receive(ms(10), &held(2, CloneRepr { clo: CLONE, ..plain() }));
    assert_eq!((worker.waiting(), worker.stats().clones_dropped), (2, 0));
    let works = [(), ()].map(|()| {
        let work = worker.begin_next(ms(12)).expect("a waiting request");
        worker.finish(work.id, Bytes::new()).expect("in progress");
        work.waited
    });
    assert_eq!(works, [Duration::from_millis(2), Duration::from_millis(5)]);
}

#[test]
fn invalid_request_fails_for_good_although_element_holds_hedge() {
    for (flags, failed) in [(0, 0), (CloneFlags::CLONE, CloneFlags::FAILED | CloneFlags::CLONE)] {
        let mut worker = CloneWorker::new(CONFIG);
        worker.receive(ms(0), &held(1, CloneRepr { clo: ORIGINAL, flags, ..plain() }));
        let work = worker.begin_next(ms(0)).expect("a waiting request");
        worker.fail(work.id, Bytes::new(), FailureCause::Request, None).expect("in progress");
        assert_eq!(sent(&mut worker)[0].2.flags, failed);
    }
}
