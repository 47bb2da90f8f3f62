mod held;

use pathcall_wire::clone::{CLONE, ORIGINAL, PART, emit};
use pathcall_wire::{BaseRepr, CloneFlags, CloneRepr, MAX_FRAME};
use proptest::prelude::*;

use super::*;

const CONFIG: CloneWorkerConfig = CloneWorkerConfig::new(9, 11, 1, 0, 1);

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn request(seq: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    frame(FrameKind::CloneRequest, seq, head, payload)
}

fn frame(kind: FrameKind, seq: u32, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    let base = BaseRepr { gaid: 9, epoch: 4, src: 5, src_incarnation: 77, dst: 11, seq, ..BaseRepr::new(kind) };
    let head = CloneRepr { parts: head.parts.max(1), ..head };
    let mut out = vec![0; MAX_FRAME];
    let len = emit(&base, &head, payload, &mut out);
    out.truncate(len);
    out
}

fn plain() -> CloneRepr {
    CloneRepr { switch_id: 1, req_id: 8, idx: 1, grp: 2, ..CloneRepr::default() }
}

fn sent(worker: &mut CloneWorker) -> Vec<(CloneDestination, BaseRepr, CloneRepr, Vec<u8>)> {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (to, len) = worker.transmit(Instant(0), &mut out)?;
        let frame = CloneFrame::new_checked(&out[..len]).expect("a valid frame");
        Some((to, frame.base().repr(), frame.head().repr(), frame.payload().to_vec()))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn requests_run_in_order_and_answers_report_queue_length() {
    let mut worker = CloneWorker::new(CONFIG);
    for seq in 1..=3 {
        worker.receive(ms(0), &request(seq, plain(), &[seq as u8]));
    }
    for (seq, waiting) in [(1_u32, 2), (2, 1), (3, 0)] {
        let work = worker.begin_next(ms(5)).expect("a waiting request");
        assert_eq!((&work.request[..], work.caller, worker.begin_next(ms(5))), (&[seq as u8][..], 5, None));
        assert_eq!(work.waited, Duration::from_millis(5));
        worker.finish(work.id, Bytes::from_static(b"done")).expect("in progress");
        let (to, base, head, payload) = sent(&mut worker).remove(0);
        assert_eq!((to, base.dst, base.dst_incarnation, base.seq), (CloneDestination::Element, 5, 77, seq));
        assert_eq!((head.state, head.sid, head.req_id, head.idx, head.grp), (waiting, 0, 8, 1, 2));
        assert_eq!((base.epoch, base.flags, &payload[..]), (4, Flags::FROM_SERVER, &b"done"[..]));
        assert_eq!(base.round, seq, "each report has the next number");
    }
    assert!(worker.is_empty() && worker.stats().idle == 1);
}

#[test]
fn completed_requests_leave_few_timers() {
    let mut worker = CloneWorker::new(CONFIG);
    let patient = |patience| CloneRepr { patience, ..plain() };
    worker.receive(ms(0), &request(1, patient(2_000_000), b""));
    let slow = worker.begin_next(ms(0)).expect("one waits");
    worker.config.workers += 1;
    for seq in 2..10_000 {
        worker.receive(ms(1), &request(seq, patient(u32::MAX), b""));
        let quick = worker.begin_next(ms(1)).expect("one waits");
        worker.finish(quick.id, Bytes::new()).expect("in progress");
        sent(&mut worker);
    }
    assert!(worker.timers.len() <= 2 * 2 + STALE_MAX, "{}", worker.timers.len());
    // The request in progress keeps its timer.
    worker.poll(ms(2_000));
    assert_eq!(sent(&mut worker)[0].1.kind, FrameKind::CloneWorking as u8);
    worker.finish(slow.id, Bytes::new()).expect("in progress");
}

#[test]
fn clone_is_dropped_when_requests_wait() {
    let mut worker = CloneWorker::new(CONFIG);
    let clone = CloneRepr { clo: CLONE, flags: CloneFlags::CLONE, ..plain() };
    worker.receive(ms(0), &request(1, clone, b""));
    worker.receive(ms(0), &request(2, clone, b""));
    worker.receive(ms(0), &request(3, CloneRepr { clo: ORIGINAL, flags: CloneFlags::CLONE, ..plain() }, b""));
    assert_eq!((worker.waiting(), worker.stats().clones_dropped), (2, 1));
    while let Some(work) = worker.begin_next(ms(0)) {
        worker.finish(work.id, Bytes::new()).expect("in progress");
    }
    worker.receive(ms(1), &request(4, clone, b""));
    assert_eq!((worker.waiting(), worker.stats().clones), (1, 2), "no request waited");
}

#[test]
fn dropped_clone_in_parts_counts_once() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, plain(), b""));
    for part in 0..3 {
        worker.receive(
            ms(0),
            &request(2, CloneRepr { clo: CLONE, flags: CloneFlags::CLONE, part, parts: 3, ..plain() }, &[1; PART]),
        );
    }
    assert_eq!((worker.waiting(), worker.stats().clones_dropped), (1, 1));
}

#[test]
fn copy_is_not_begun_twice_and_is_reported() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, plain(), b""));
    let work = worker.begin_next(ms(0)).expect("a waiting request");
    worker.receive(ms(1), &request(1, plain(), b""));
    assert!(sent(&mut worker).is_empty(), "a copy made by the network gets no report");
    worker.receive(ms(2), &request(1, CloneRepr { attempt: 1, ..plain() }, b""));
    let (_, base, head, _) = sent(&mut worker).remove(0);
    assert_eq!((base.kind, head.attempt), (FrameKind::CloneWorking as u8, 1));
    worker.finish(work.id, Bytes::new()).expect("in progress");
    let replies = sent(&mut worker);
    assert_eq!((replies.len(), replies[0].2.attempt), (1, 1));
    // A late copy is ignored, a new attempt is processed again.
    worker.receive(ms(3), &request(1, plain(), b""));
    assert_eq!((worker.waiting(), worker.stats().repeats), (0, 3));
    worker.receive(ms(3), &request(1, CloneRepr { attempt: 2, ..plain() }, b""));
    assert_eq!(worker.waiting(), 1);
}

#[test]
fn repeated_clone_is_answered_with_its_clone_id() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, CloneRepr { clo: CLONE, flags: CloneFlags::CLONE, ..plain() }, b""));
    let work = worker.begin_next(ms(0)).expect("a waiting request");
    let again = CloneRepr { attempt: 1, req_id: 9, flags: CloneFlags::DIRECT, ..plain() };
    worker.receive(ms(2), &request(1, again, b""));
    assert_eq!(sent(&mut worker)[0].2.attempt, 1, "the repeat gets a report");
    worker.finish(work.id, Bytes::new()).expect("in progress");
    let (_, _, head, _) = sent(&mut worker).remove(0);
    assert_eq!((head.req_id, head.clo, head.attempt), (8, CLONE, 0), "the element matches both answers by the id");
    worker.receive(ms(3), &request(1, again, b""));
    assert_eq!(worker.waiting(), 0, "this attempt was answered");
    worker.receive(ms(3), &request(1, CloneRepr { attempt: 2, ..again }, b""));
    assert_eq!(worker.waiting(), 1, "the answer to the earlier attempt was lost");
    // A repeat past a silent element is answered past it.
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, CloneRepr { clo: CLONE, flags: CloneFlags::CLONE, ..plain() }, b""));
    worker.receive(ms(2), &request(1, CloneRepr { switch_id: 0, ..again }, b""));
    let work = worker.begin_next(ms(2)).expect("a waiting request");
    worker.finish(work.id, Bytes::new()).expect("in progress");
    assert_eq!(sent(&mut worker).last().map(|(to, ..)| *to), Some(CloneDestination::Endpoint(5)));
}

#[test]
fn repeat_past_element_is_reported_through_it_too() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, plain(), b""));
    worker.receive(ms(1), &request(1, CloneRepr { attempt: 1, ..CloneRepr::default() }, b""));
    let replies: Vec<_> = sent(&mut worker).into_iter().map(|(to, _, head, _)| (to, head.attempt)).collect();
    assert_eq!(replies, [(CloneDestination::Element, 0), (CloneDestination::Endpoint(5), 1)]);
    worker.receive(ms(2), &request(1, CloneRepr { attempt: 2, ..CloneRepr::default() }, b""));
    assert_eq!(sent(&mut worker).len(), 1, "only the first repeat gets two reports");
}

#[test]
fn slow_request_is_reported_to_its_caller() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, CloneRepr { patience: 2_000, ..plain() }, b""));
    assert_eq!(worker.deadline(), Some(ms(2)));
    worker.poll(ms(1));
    assert!(sent(&mut worker).is_empty());
    worker.poll(ms(2));
    assert_eq!(sent(&mut worker)[0].1.kind, FrameKind::CloneWorking as u8);
    assert_eq!((worker.deadline(), worker.stats().working), (None, 1));
}

#[test]
fn waiting_request_is_cancelled() {
    let mut worker = CloneWorker::new(CONFIG);
    for seq in 1..=3 {
        worker.receive(ms(0), &request(seq, plain(), b""));
    }
    let first = worker.begin_next(ms(0)).expect("a waiting request");
    for seq in 1..=2 {
        worker.receive(ms(7), &frame(FrameKind::CloneCancel, seq, plain(), b""));
    }
    let cancelled = worker.next_cancelled().expect("a cancelled request");
    assert_eq!((cancelled.caller, cancelled.waited, worker.next_cancelled()), (5, Duration::from_millis(7), None));
    worker.receive(ms(1), &request(2, plain(), b""));
    assert_eq!((worker.waiting(), worker.stats().cancelled), (1, 1));
    worker.finish(first.id, Bytes::new()).expect("a request in progress");
    assert_eq!(worker.finish(first.id, Bytes::new()), Err(FinishError::Unknown(first.id)));
    assert_eq!(sent(&mut worker).len(), 1);
}

#[test]
fn parts_of_all_attempts_form_one_request() {
    let mut worker = CloneWorker::new(CONFIG);
    let part = |part, attempt| CloneRepr { part, parts: 2, attempt, ..plain() };
    worker.receive(ms(0), &request(1, part(0, 0), &[1; PART]));
    assert_eq!((worker.begin_next(ms(0)), worker.is_empty()), (None, false));
    worker.receive(ms(0), &request(1, part(1, 1), b"end"));
    let work = worker.begin_next(ms(0)).expect("all parts are received");
    assert_eq!(work.request.len(), PART + 3);
    worker.finish(work.id, Bytes::from(vec![3; 2 * PART + 1])).expect("in progress");
    let parts = sent(&mut worker);
    let heads: Vec<_> =
        parts.iter().map(|(_, _, head, part)| (head.part, head.parts, head.attempt, part.len())).collect();
    assert_eq!(heads, [(0, 3, 1, PART), (1, 3, 1, PART), (2, 3, 1, 1)]);
    assert!(worker.is_empty() && worker.memory() == 0);
}

#[test]
fn answer_reports_clone_whatever_part_came_first() {
    for parts in [[0, 1], [1, 0]] {
        let mut worker = CloneWorker::new(CONFIG);
        for part in parts {
            let clo = if part == 0 { ORIGINAL } else { 0 };
            let payload = if part == 0 { vec![1; PART] } else { Vec::new() };
            worker.receive(ms(0), &request(1, CloneRepr { part, parts: 2, clo, ..plain() }, &payload));
        }
        let work = worker.begin_next(ms(0)).expect("all parts are received");
        worker.finish(work.id, Bytes::new()).expect("in progress");
        assert_eq!(sent(&mut worker)[0].2.clo, ORIGINAL, "{parts:?}");
    }
}

#[test]
fn memory_and_time_of_partial_requests_are_bounded() {
    let config = CloneWorkerConfig { partial_max: 2, memory_max: 3 * PART, ..CONFIG };
    let mut worker = CloneWorker::new(config);
    let part = |part| CloneRepr { part, parts: 64, ..plain() };
    worker.receive(ms(0), &request(1, part(63), b""));
    assert_eq!((worker.memory(), worker.stats().overflowed), (0, 1), "64 parts exceed the memory");
    for seq in 2..=4 {
        worker.receive(ms(0), &request(seq, part(0), &[1; PART]));
    }
    assert_eq!((worker.memory(), worker.stats().expired), (2 * PART, 2), "the oldest are evicted");
    worker.poll(ms(1_000));
    assert!(worker.is_empty() && worker.memory() == 0);
}

#[test]
fn only_expired_partial_requests_are_dropped() {
    let mut worker = CloneWorker::new(CONFIG);
    let part = |part| CloneRepr { part, parts: 2, ..plain() };
    for (seq, at) in [(1, 0), (2, 999)] {
        worker.receive(ms(at), &request(seq, part(0), &[1; PART]));
    }
    worker.receive(ms(999), &request(1, part(1), b""));
    assert_eq!(worker.waiting(), 1, "the first is complete");
    worker.poll(ms(1_000));
    worker.receive(ms(1_000), &request(2, part(1), b""));
    assert_eq!((worker.waiting(), worker.stats().expired), (2, 0));
}

#[test]
fn request_queue_is_bounded() {
    let mut worker = CloneWorker::new(CloneWorkerConfig { queue_max: 2, ..CONFIG });
    for seq in 1..=3 {
        worker.receive(ms(0), &request(seq, plain(), b""));
    }
    assert_eq!((worker.waiting(), worker.stats().overflowed), (2, 1));
}

#[test]
fn request_past_element_is_answered_past_it() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, CloneRepr::default(), b""));
    let work = worker.begin_next(ms(0)).expect("a waiting request");
    worker.finish(work.id, Bytes::new()).expect("in progress");
    assert_eq!(sent(&mut worker)[0].0, CloneDestination::Endpoint(5));
}

#[test]
fn too_long_answer_is_refused() {
    let mut worker = CloneWorker::new(CONFIG);
    worker.receive(ms(0), &request(1, plain(), b""));
    let work = worker.begin_next(ms(0)).expect("a waiting request");
    let long = super::super::MESSAGE_MAX + 1;
    assert_eq!(worker.finish(work.id, vec![0; long].into()), Err(FinishError::TooLong(long)));
    assert!(worker.is_empty() && worker.busy() == 0);
}

proptest! {
    /// With arbitrary frames, counters and bounds hold, and each begun request is answered once.
    #[test]
    fn begun_requests_are_answered_once(steps in prop::collection::vec((0..6_u8, 1..8_u32, any::<u8>()), 1..300)) {
        let config = CloneWorkerConfig { workers: 2, queue_max: 4, partial_max: 2, ..CONFIG };
        let (mut worker, mut at_work, mut begun) = (CloneWorker::new(config), Vec::new(), 0);
        for (step, seq, byte) in steps {
            let head = CloneRepr { attempt: byte & 1, clo: byte % 3, patience: u32::from(byte) * 50, ..plain() };
            match step {
                0 => worker.receive(ms(seq.into()), &request(seq, head, b"one")),
                1 => {
                    let head = CloneRepr { part: u16::from(byte & 1), parts: 2, ..head };
                    worker.receive(ms(seq.into()), &request(seq, head, &[byte; PART]));
                }
                2 => worker.receive(ms(seq.into()), &frame(FrameKind::CloneCancel, seq, head, b"")),
                3 => at_work.extend(worker.begin_next(ms(seq.into())).inspect(|_| begun += 1)),
                4 if !at_work.is_empty() => {
                    let work: PoolRequest = at_work.swap_remove(usize::from(byte) % at_work.len());
                    prop_assert!(worker.finish(work.id, Bytes::new()).is_ok());
                }
                _ => worker.poll(ms(u64::from(byte) * 20)),
            }
            prop_assert!(worker.waiting() <= 4 && worker.busy() == at_work.len() && at_work.len() <= 2);
        }
        for work in at_work.drain(..) {
            prop_assert!(worker.finish(work.id, Bytes::new()).is_ok());
        }
        while let Some(work) = worker.begin_next(ms(9)) {
            begun += 1;
            prop_assert!(worker.finish(work.id, Bytes::new()).is_ok());
        }
        let replies = sent(&mut worker).iter().filter(|(_, base, ..)| base.kind == FrameKind::CloneReply as u8).count();
        prop_assert_eq!(replies, begun);
        worker.poll(ms(100_000));
        prop_assert!(worker.is_empty() && worker.memory() == 0);
    }
}

#[test]
fn begun_request_becomes_unwanted_once() {
    let mut worker = CloneWorker::new(CloneWorkerConfig { workers: 2, ..CONFIG });
    for seq in 1..=2 {
        worker.receive(ms(0), &request(seq, plain(), b""));
    }
    let mut next = || worker.begin_next(ms(0)).expect("a waiting request");
    let (first, second) = (next(), next());
    assert_eq!(worker.next_unwanted(), None);
    for _ in 0..2 {
        worker.receive(ms(0), &frame(FrameKind::CloneCancel, 1, plain(), b""));
    }
    assert_eq!((worker.next_unwanted(), worker.next_unwanted(), worker.busy()), (Some(first.id), None, 2));
    worker.drop_request(first.id);
    // A request that is finished before the application asks is not reported.
    worker.receive(ms(0), &frame(FrameKind::CloneCancel, 2, plain(), b""));
    worker.finish(second.id, Bytes::new()).expect("in progress");
    assert_eq!((worker.next_unwanted(), worker.busy(), sent(&mut worker).len()), (None, 0, 1));
}

#[test]
fn partial_request_survives_while_it_is_repeated() {
    let mut worker = CloneWorker::new(CloneWorkerConfig { partial_for: Duration::from_millis(300), ..CONFIG });
    let part = |attempt, part| CloneRepr { attempt, part, parts: 3, ..plain() };
    worker.receive(ms(0), &request(1, part(0, 0), &[0; PART]));
    worker.receive(ms(299), &request(1, part(1, 0), &[0; PART]));
    worker.receive(ms(299), &request(1, part(1, 1), &[1; PART]));
    worker.poll(ms(301));
    worker.receive(ms(301), &request(1, part(1, 2), b"end"));
    let work = worker.begin_next(ms(301)).expect("all parts have come");
    assert_eq!((work.request.len(), worker.stats().expired), (2 * PART + 3, 0));
}

#[test]
fn failure_is_not_filtered_by_the_element() {
    let mut worker = CloneWorker::new(CONFIG);
    for (seq, clo) in [(1, ORIGINAL), (2, 0)] {
        // Answer flags in a request are ignored.
        let header = CloneRepr { clo, flags: CloneFlags::CLONE | CloneFlags::FAILED, ..plain() };
        worker.receive(ms(0), &request(seq, header, b""));
        let work = worker.begin_next(ms(0)).expect("a waiting request");
        worker
            .fail(work.id, Bytes::from_static(b"why"), FailureCause::Policy, Some(Pushback::Never))
            .expect("in progress");
        let (to, _, head, payload) = sent(&mut worker).remove(0);
        let cloned = if clo == 0 { 0 } else { CloneFlags::CLONE };
        assert_eq!(
            (to, head.clo, head.flags, head.patience, &payload[..]),
            (CloneDestination::Element, 0, CloneFlags::FAILED | cloned, clone::NO_ATTEMPT, &b"why"[..])
        );
    }
    worker.receive(ms(1), &request(3, CloneRepr { flags: CloneFlags::FAILED, ..plain() }, b""));
    let work = worker.begin_next(ms(1)).expect("a waiting request");
    worker.finish(work.id, Bytes::new()).expect("in progress");
    assert_eq!((sent(&mut worker)[0].2.flags, worker.stats().failed), (0, 2));
}

#[test]
fn failed_server_is_not_reported_idle() {
    let mut worker = CloneWorker::new(CONFIG);
    let causes = [(FailureCause::Server, 1), (FailureCause::Policy, 0), (FailureCause::Request, 0)];
    for (clo, (seq, (blame, state))) in
        [0, ORIGINAL].into_iter().flat_map(|clo| (1..).zip(causes).map(move |b| (clo, b)))
    {
        let seq = seq + 10 * u32::from(clo);
        worker.receive(ms(0), &request(seq, CloneRepr { clo, flags: CloneFlags::CLONE, ..plain() }, b""));
        let work = worker.begin_next(ms(0)).expect("a waiting request");
        worker.fail(work.id, Bytes::new(), blame, None).expect("in progress");
        let (_, _, head, _) = sent(&mut worker).remove(0);
        // An invalid request is marked as failed only if another answer is on its way.
        let marked = blame != FailureCause::Request || clo != 0;
        assert_eq!((head.state, head.flags & CloneFlags::FAILED != 0), (state, marked), "{blame:?}, {clo}");
    }
}

#[test]
fn requests_beyond_the_workers_count_as_waiting() {
    let mut worker = CloneWorker::new(CloneWorkerConfig { workers: 2, begun_max: 4, ..CONFIG });
    for seq in 1..=5 {
        worker.receive(ms(0), &request(seq, plain(), b""));
    }
    let begun: Vec<_> = std::iter::from_fn(|| worker.begin_next(ms(0))).collect();
    assert_eq!((begun.len(), worker.waiting()), (4, 1));
    worker.receive(ms(1), &request(6, CloneRepr { clo: CLONE, flags: CloneFlags::CLONE, ..plain() }, b""));
    assert_eq!(worker.stats().clones_dropped, 1);
    // One request waits, and three are in progress for two workers.
    worker.finish(begun[0].id, Bytes::new()).expect("in progress");
    assert_eq!(sent(&mut worker)[0].2.state, 2);
    for (work, state) in begun[1..].iter().zip([1, 1, 1]) {
        let next = worker.begin_next(ms(2));
        worker.finish(work.id, Bytes::new()).expect("in progress");
        let left = worker.busy().saturating_sub(2) + worker.waiting();
        assert_eq!(usize::from(sent(&mut worker)[0].2.state), left, "{state}");
        drop(next);
    }
}
