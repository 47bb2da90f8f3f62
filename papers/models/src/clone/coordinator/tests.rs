use std::time::Duration;

use pathcall_wire::clone::{ORIGINAL, PART, emit};
use pathcall_wire::{BaseRepr, CloneRepr, MAX_FRAME};

use super::*;

fn coordinator(workers: usize) -> Coordinator {
    Coordinator::new(CoordinatorConfig {
        pool: Pool { gaid: 9, version: 1, servers: vec![11, 12, 13] },
        switch_id: 6,
        workers,
        queue_max: 8,
        lost_after: Duration::from_millis(100),
        seed: 1,
    })
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn frame(base: BaseRepr, head: CloneRepr, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; MAX_FRAME];
    let len = emit(&base, &CloneRepr { parts: head.parts.max(1), ..head }, payload, &mut out);
    out.truncate(len);
    out
}

fn request(seq: u32, head: CloneRepr) -> Vec<u8> {
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq, ..BaseRepr::new(FrameKind::CloneRequest) };
    let head = CloneRepr { flags: CloneFlags::CLONE, ..head };
    frame(base, head, &vec![0; if head.parts > 1 && head.part + 1 < head.parts { PART } else { 0 }])
}

fn reply(server: u32, seq: u32) -> Vec<u8> {
    part_of_reply(server, seq, 0, 1)
}

fn part_of_reply(server: u32, seq: u32, part: u16, parts: u16) -> Vec<u8> {
    let base = BaseRepr {
        flags: Flags::FROM_SERVER,
        gaid: 9,
        src: server,
        dst: 5,
        dst_incarnation: 7,
        seq,
        ..BaseRepr::new(FrameKind::CloneReply)
    };
    let head = CloneRepr { part, parts, ..CloneRepr::default() };
    frame(base, head, &vec![0; if part + 1 < parts { PART } else { 0 }])
}

fn sent(coordinator: &mut Coordinator) -> Vec<(u32, CloneRepr)> {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (CloneDestination::Endpoint(to), len) = coordinator.transmit(Instant(0), &mut out)? else {
            panic!("a coordinator sends to endpoints")
        };
        let frame = CloneFrame::new_checked(&out[..len]).expect("coordinators write frames");
        assert_eq!(frame.base().dst(), to);
        Some((to, frame.head().repr()))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn call_goes_to_two_idle_servers_then_one_then_queue() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let both = sent(&mut coordinator);
    assert!(both.len() == 2 && both[0].0 != both[1].0);
    assert!(both.iter().all(|(_, head)| (head.clo, head.switch_id, head.req_id) == (ORIGINAL, 6, 1)));
    coordinator.receive(ms(0), &request(2, CloneRepr::default()));
    let one = sent(&mut coordinator);
    assert_eq!((one.len(), one[0].1.clo), (1, 0));
    coordinator.receive(ms(0), &request(3, CloneRepr::default()));
    assert_eq!((sent(&mut coordinator).len(), coordinator.waiting()), (0, 1));
    // The first answer is forwarded and frees a server for the next call; the second one only frees a server.
    coordinator.receive(ms(1), &reply(both[0].0, 1));
    let after = sent(&mut coordinator);
    assert_eq!(after.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [5, both[0].0]);
    coordinator.receive(ms(1), &reply(both[1].0, 1));
    assert_eq!((sent(&mut coordinator).len(), coordinator.stats().redundant), (0, 1));
    coordinator.receive(ms(1), &reply(one[0].0, 2));
    coordinator.receive(ms(1), &reply(both[0].0, 3));
    assert!(sent(&mut coordinator).len() == 2 && coordinator.is_empty());
}

#[test]
fn lost_requests_free_their_servers() {
    let mut coordinator = coordinator(1);
    for seq in 1..=9 {
        coordinator.receive(ms(0), &request(seq, CloneRepr::default()));
    }
    assert_eq!((sent(&mut coordinator).len(), coordinator.waiting()), (3, 7));
    assert_eq!(coordinator.deadline(), Some(ms(100)));
    coordinator.receive(ms(99), &request(10, CloneRepr::default()));
    coordinator.receive(ms(99), &request(11, CloneRepr::default()));
    assert_eq!(coordinator.stats().overflowed, 1);
    coordinator.poll(ms(100));
    assert_eq!((coordinator.stats().lost, coordinator.waiting()), (9, 0));
    assert!(!sent(&mut coordinator).is_empty(), "servers of lost requests are idle again");
    coordinator.poll(ms(199));
    assert!(coordinator.is_empty() && coordinator.load == [0; 3]);
}

#[test]
fn parts_of_request_go_to_same_servers() {
    let mut coordinator = coordinator(1);
    let part = |part| CloneRepr { part, parts: 3, req_id: clone::caller_id(5, 1, 0), ..CloneRepr::default() };
    for number in [1, 0, 2] {
        coordinator.receive(ms(0), &request(1, part(number)));
    }
    let frames = sent(&mut coordinator);
    let servers: std::collections::BTreeSet<u32> = frames.iter().map(|(to, _)| *to).collect();
    assert_eq!((frames.len(), servers.len()), (6, 2));
}

fn destinations(sent: &[(u32, CloneRepr)]) -> Vec<u32> {
    sent.iter().map(|(to, _)| *to).collect()
}

#[test]
fn repeated_attempts_belong_to_one_call() {
    let attempt = |attempt| CloneRepr { attempt, ..CloneRepr::default() };
    let answers = |coordinator: &mut Coordinator, server| coordinator.receive(ms(2), &reply(server, 1));
    let mut coordinator = coordinator(2);
    coordinator.receive(ms(0), &request(1, attempt(0)));
    let first = destinations(&sent(&mut coordinator));
    // One more server receives the call. The first two answer once, with the number of either attempt.
    coordinator.receive(ms(1), &request(1, attempt(1)));
    let second = destinations(&sent(&mut coordinator));
    assert!(second.len() == 1 && !first.contains(&second[0]), "{second:?} beside {first:?}");
    // All servers work on the call: two receive the attempt again, and nothing waits. Late answers are dropped.
    coordinator.receive(ms(1), &request(1, attempt(2)));
    assert_eq!((destinations(&sent(&mut coordinator)), coordinator.waiting()), (first.clone(), 0));
    coordinator.receive(ms(1), &request(1, attempt(1)));
    assert_eq!(sent(&mut coordinator).len(), 0);
    first.iter().chain(&second).for_each(|server| answers(&mut coordinator, *server));
    assert_eq!(destinations(&sent(&mut coordinator)), [5], "the caller receives one answer");
    assert!(coordinator.is_empty() && coordinator.load == [0; 3], "{:?}", coordinator.load);
    assert_eq!((coordinator.stats().requests, coordinator.stats().redundant), (1, 2));
}

#[test]
fn answer_lost_after_coordinator_is_requested_again() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = destinations(&sent(&mut coordinator));
    coordinator.receive(ms(1), &reply(asked[0], 1));
    coordinator.receive(ms(2), &request(1, CloneRepr { attempt: 1, ..CloneRepr::default() }));
    let again = destinations(&sent(&mut coordinator));
    assert!(again[0] == 5 && again.len() == 3 && !again.contains(&asked[1]), "{again:?} after {asked:?}");
}

#[test]
fn cancelled_call_frees_its_servers() {
    let mut coordinator = coordinator(1);
    for seq in 1..=3 {
        coordinator.receive(ms(0), &request(seq, CloneRepr::default()));
    }
    let asked = destinations(&sent(&mut coordinator));
    assert_eq!((asked.len(), coordinator.waiting()), (3, 1));
    for seq in [3, 1] {
        let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq, ..BaseRepr::new(FrameKind::CloneCancel) };
        coordinator.receive(ms(1), &frame(base, CloneRepr::default(), b""));
    }
    assert_eq!((destinations(&sent(&mut coordinator)), coordinator.waiting()), (asked[..2].to_vec(), 0));
    coordinator.receive(ms(2), &request(4, CloneRepr::default()));
    let anew = destinations(&sent(&mut coordinator));
    assert_eq!(anew.len(), 2, "two servers are idle");
    // Servers still answer requests that they had started. The answers go to no caller and free no server.
    asked[..2].iter().for_each(|server| coordinator.receive(ms(3), &reply(*server, 1)));
    assert_eq!((sent(&mut coordinator).len(), coordinator.load.iter().sum()), (0, 3));
    for (server, seq) in [(anew[0], 4), (anew[1], 4), (asked[2], 2)] {
        coordinator.receive(ms(4), &reply(server, seq));
    }
    assert_eq!((destinations(&sent(&mut coordinator)), &coordinator.load[..]), (vec![5, 5], &[0; 3][..]));
    assert!(coordinator.flights.is_empty() && coordinator.stats().lost == 0);
}

#[test]
fn copy_of_a_cancelled_call_goes_to_no_server() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = destinations(&sent(&mut coordinator));
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq: 1, ..BaseRepr::new(FrameKind::CloneCancel) };
    coordinator.receive(ms(1), &frame(base, CloneRepr::default(), b""));
    assert_eq!(destinations(&sent(&mut coordinator)), asked, "the servers receive the cancellation");
    for attempt in [0, 1] {
        coordinator.receive(ms(2), &request(1, CloneRepr { attempt, ..CloneRepr::default() }));
        assert_eq!(destinations(&sent(&mut coordinator)), [0; 0], "attempt {attempt}");
    }
    assert_eq!((coordinator.stats().ignored, &coordinator.load[..]), (2, &[0; 3][..]));
}

/// Found by `pathcall sim clone`, seed 20261129074.
#[test]
fn losing_answer_is_dropped_after_cancellation() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = destinations(&sent(&mut coordinator));
    for (server, part) in [(asked[0], 0), (asked[1], 0), (asked[0], 1)] {
        coordinator.receive(ms(1), &part_of_reply(server, 1, part, 2));
    }
    assert_eq!(destinations(&sent(&mut coordinator)), [5, 5]);
    // The caller has an answer and cancels the other one.
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq: 1, ..BaseRepr::new(FrameKind::CloneCancel) };
    coordinator.receive(ms(2), &frame(base, CloneRepr::default(), b""));
    coordinator.receive(ms(3), &part_of_reply(asked[1], 1, 1, 2));
    assert!(sent(&mut coordinator).is_empty());
    assert_eq!(&coordinator.load[..], &[0; 3][..]);
}
