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
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq, ..BaseRepr::new(Kind::CloneRequest) };
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
        ..BaseRepr::new(Kind::CloneReply)
    };
    let head = CloneRepr { part, parts, ..CloneRepr::default() };
    frame(base, head, &vec![0; if part + 1 < parts { PART } else { 0 }])
}

fn sent(coordinator: &mut Coordinator) -> Vec<(u32, CloneRepr)> {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (To::Endpoint(to), len) = coordinator.transmit(Instant(0), &mut out)? else {
            panic!("a coordinator sends to endpoints")
        };
        let frame = CloneFrame::new_checked(&out[..len]).expect("coordinators write frames");
        assert_eq!(frame.base().dst(), to);
        Some((to, frame.head().repr()))
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn two_idle_servers_get_a_call_then_one_then_none() {
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
    // The first answer passes and lets the next one in; the second does only that.
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
fn what_is_lost_is_not_counted_on_for_ever() {
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
    assert!(!sent(&mut coordinator).is_empty(), "the last one found idle servers");
    coordinator.poll(ms(199));
    assert!(coordinator.is_empty() && coordinator.load == [0; 3]);
}

#[test]
fn parts_go_together() {
    let mut coordinator = coordinator(1);
    let part = |part| CloneRepr { part, parts: 3, req_id: clone::caller_id(5, 1, 0), ..CloneRepr::default() };
    for number in [1, 0, 2] {
        coordinator.receive(ms(0), &request(1, part(number)));
    }
    let frames = sent(&mut coordinator);
    let servers: std::collections::BTreeSet<u32> = frames.iter().map(|(to, _)| *to).collect();
    assert_eq!((frames.len(), servers.len()), (6, 2));
}

fn to(sent: &[(u32, CloneRepr)]) -> Vec<u32> {
    sent.iter().map(|(to, _)| *to).collect()
}

#[test]
fn a_call_that_is_sent_again_is_one_call() {
    let attempt = |attempt| CloneRepr { attempt, ..CloneRepr::default() };
    let answers = |coordinator: &mut Coordinator, server| coordinator.receive(ms(2), &reply(server, 1));
    let mut coordinator = coordinator(2);
    coordinator.receive(ms(0), &request(1, attempt(0)));
    let first = to(&sent(&mut coordinator));
    // There is one server more. Those that work on it answer once, whichever attempt they say that it is for.
    coordinator.receive(ms(1), &request(1, attempt(1)));
    let second = to(&sent(&mut coordinator));
    assert!(second.len() == 1 && !first.contains(&second[0]), "{second:?} beside {first:?}");
    // All work on it: two hear of it again, and nothing waits. What is late goes nowhere.
    coordinator.receive(ms(1), &request(1, attempt(2)));
    assert_eq!((to(&sent(&mut coordinator)), coordinator.waiting()), (first.clone(), 0));
    coordinator.receive(ms(1), &request(1, attempt(1)));
    assert_eq!(sent(&mut coordinator).len(), 0);
    first.iter().chain(&second).for_each(|server| answers(&mut coordinator, *server));
    assert_eq!(to(&sent(&mut coordinator)), [5], "one of the answers goes to the caller");
    assert!(coordinator.is_empty() && coordinator.load == [0; 3], "{:?}", coordinator.load);
    assert_eq!((coordinator.stats().requests, coordinator.stats().redundant), (1, 2));
}

#[test]
fn an_answer_that_is_lost_behind_the_coordinator_is_asked_for_anew() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = to(&sent(&mut coordinator));
    coordinator.receive(ms(1), &reply(asked[0], 1));
    coordinator.receive(ms(2), &request(1, CloneRepr { attempt: 1, ..CloneRepr::default() }));
    let again = to(&sent(&mut coordinator));
    assert!(again[0] == 5 && again.len() == 3 && !again.contains(&asked[1]), "{again:?} after {asked:?}");
}

#[test]
fn what_is_cancelled_is_not_counted_on() {
    let mut coordinator = coordinator(1);
    for seq in 1..=3 {
        coordinator.receive(ms(0), &request(seq, CloneRepr::default()));
    }
    let asked = to(&sent(&mut coordinator));
    assert_eq!((asked.len(), coordinator.waiting()), (3, 1));
    for seq in [3, 1] {
        let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq, ..BaseRepr::new(Kind::CloneCancel) };
        coordinator.receive(ms(1), &frame(base, CloneRepr::default(), b""));
    }
    assert_eq!((to(&sent(&mut coordinator)), coordinator.waiting()), (asked[..2].to_vec(), 0));
    coordinator.receive(ms(2), &request(4, CloneRepr::default()));
    let anew = to(&sent(&mut coordinator));
    assert_eq!(anew.len(), 2, "two are idle");
    // What was begun is answered all the same: nobody hears of it, and nobody is idle for it.
    asked[..2].iter().for_each(|server| coordinator.receive(ms(3), &reply(*server, 1)));
    assert_eq!((sent(&mut coordinator).len(), coordinator.load.iter().sum()), (0, 3));
    for (server, seq) in [(anew[0], 4), (anew[1], 4), (asked[2], 2)] {
        coordinator.receive(ms(4), &reply(server, seq));
    }
    assert_eq!((to(&sent(&mut coordinator)), &coordinator.load[..]), (vec![5, 5], &[0; 3][..]));
    assert!(coordinator.flights.is_empty() && coordinator.stats().lost == 0);
}

#[test]
fn copy_of_a_cancelled_call_goes_to_no_server() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = to(&sent(&mut coordinator));
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq: 1, ..BaseRepr::new(Kind::CloneCancel) };
    coordinator.receive(ms(1), &frame(base, CloneRepr::default(), b""));
    assert_eq!(to(&sent(&mut coordinator)), asked, "they are told");
    for attempt in [0, 1] {
        coordinator.receive(ms(2), &request(1, CloneRepr { attempt, ..CloneRepr::default() }));
        assert_eq!(to(&sent(&mut coordinator)), [0; 0], "attempt {attempt}");
    }
    assert_eq!((coordinator.stats().ignored, &coordinator.load[..]), (2, &[0; 3][..]));
}

/// Found by `pathcall sim clone`, seed 20261129074.
#[test]
fn an_answer_that_lost_passes_in_no_part_after_its_call_was_cancelled() {
    let mut coordinator = coordinator(1);
    coordinator.receive(ms(0), &request(1, CloneRepr::default()));
    let asked = to(&sent(&mut coordinator));
    for (server, part) in [(asked[0], 0), (asked[1], 0), (asked[0], 1)] {
        coordinator.receive(ms(1), &part_of_reply(server, 1, part, 2));
    }
    assert_eq!(to(&sent(&mut coordinator)), [5, 5]);
    // The caller has an answer, and wants no other.
    let base = BaseRepr { gaid: 9, src: 5, src_incarnation: 7, seq: 1, ..BaseRepr::new(Kind::CloneCancel) };
    coordinator.receive(ms(2), &frame(base, CloneRepr::default(), b""));
    coordinator.receive(ms(3), &part_of_reply(asked[1], 1, 1, 2));
    assert!(sent(&mut coordinator).is_empty());
    assert_eq!(&coordinator.load[..], &[0; 3][..]);
}
