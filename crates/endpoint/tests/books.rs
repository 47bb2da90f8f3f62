//! Calls with ids: applied whole and once, within bounds of memory and time.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::books::{BOOK_KEPT, Entered, Entry, IDS_MAX, Try};
use pathcall_endpoint::map::server::{Event, KEY_MEMORY, MapServer, QueryId, ServerConfig};
use pathcall_endpoint::map::{CallError, ClearPolicy, Key, Modify};
use pathcall_wire::{Instant, OpType};

const BOOK: u64 = 0xb00c;

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: None,
        threshold: 0,
        clear: ClearPolicy::Copy,
        mapping: true,
        acked: false,
        locks: false,
        votes: false,
        eviction: None,
        key_memory: KEY_MEMORY,
        width: 64,
        lease: LEASE,
        timing: Timing::default(),
    });
    server.open_book(Instant(0), BOOK).expect("room");
    server
}

fn at(time: Duration) -> Instant {
    Instant(0) + time
}

/// Adds 1 to "a" under this id.
fn add(server: &mut MapServer, now: Instant, id: &str, completed: &[Vec<u8>]) -> Result<Entered, CallError> {
    let entry = Entry { book: BOOK, nth: &Try::default(), id: id.as_bytes(), completed };
    server.apply(now, &entry, &[(Key::from("a"), 1)], Modify::default())
}

fn values(server: &mut MapServer, now: Instant) -> Vec<(Key, i64)> {
    server.query(now, QueryId(1), Some(vec![Key::from("a"), Key::from("full")]));
    let Some(Event::Answered(_, Ok(values))) = server.next_event() else { panic!("an answer") };
    values
}

#[test]
fn a_call_that_is_repeated_changes_nothing() {
    let mut server = server();
    assert_eq!(add(&mut server, at(Duration::ZERO), "x", &[]), Ok(Entered::Now));
    assert_eq!(add(&mut server, at(Duration::ZERO), "x", &[]), Ok(Entered::Before));
    assert_eq!(add(&mut server, at(Duration::ZERO), "y", &[]), Ok(Entered::Now));
    assert_eq!(values(&mut server, Instant(0))[0].1, 2);
    assert_eq!((server.stats().calls_applied, server.stats().calls_repeated), (2, 1));
}

#[test]
fn a_book_is_forgotten_when_nobody_writes_in_it_and_that_is_said() {
    let mut server = server();
    let almost = BOOK_KEPT - Duration::from_secs(1);
    add(&mut server, at(almost), "x", &[]).expect("kept");
    assert_eq!(add(&mut server, at(almost * 2), "x", &[]), Ok(Entered::Before));
    let later = at(almost * 2 + BOOK_KEPT);
    assert_eq!(add(&mut server, later, "x", &[]), Err(CallError::Forgotten));
    let strange = Entry { book: BOOK + 1, nth: &Try::default(), id: b"x", completed: &[] };
    assert_eq!(server.apply(later, &strange, &[], Modify::default()), Err(CallError::Forgotten));
    assert_eq!(values(&mut server, later)[0].1, 1);
}

#[test]
fn a_book_remembers_so_many_ids_and_those_that_are_noted_as_done_no_more() {
    let mut server = server();
    for id in 0..IDS_MAX {
        add(&mut server, Instant(0), &id.to_string(), &[]).expect("room");
    }
    assert_eq!(add(&mut server, Instant(0), "one more", &[]), Err(CallError::BooksFull));
    // What it has is known all the same.
    assert_eq!(add(&mut server, Instant(0), "7", &[]), Ok(Entered::Before));
    let noted = [b"3".to_vec(), b"no such".to_vec()];
    assert_eq!(add(&mut server, Instant(0), "one more", &noted), Ok(Entered::Now));
    assert_eq!(add(&mut server, Instant(0), "and another", &noted), Err(CallError::BooksFull));
}

/// The try of a process that was killed, which still was in a socket of its.
#[test]
fn a_try_that_comes_when_its_id_is_forgotten_changes_nothing() {
    let mut server = server();
    let mut add = |number, stragglers: &[u64], id: &str, completed: &[Vec<u8>]| {
        let nth = Try { number, under_way_from: number, stragglers: stragglers.to_vec() };
        let entry = Entry { book: BOOK, nth: &nth, id: id.as_bytes(), completed };
        server.apply(Instant(0), &entry, &[(Key::from("a"), 1)], Modify::default())
    };
    // The next process makes the call again, and tells that it is done.
    assert_eq!(add(20, &[], "x", &[]), Ok(Entered::Now));
    assert_eq!(add(22, &[21], "y", &[b"x".to_vec()]), Ok(Entered::Now));
    assert_eq!(add(10, &[], "x", &[]), Err(CallError::Late));
    assert_eq!(add(20, &[], "x", &[]), Err(CallError::Late));
    // What was sent before and is under way may come behind.
    assert_eq!(add(24, &[21, 23], "z", &[]), Ok(Entered::Now));
    assert_eq!(add(21, &[], "w", &[]), Ok(Entered::Now));
    assert_eq!(add(22, &[21], "y", &[]), Err(CallError::Late));
    assert_eq!(add(23, &[21], "v", &[]), Ok(Entered::Now));
    // Who does not count is never late.
    assert_eq!(add(0, &[], "u", &[]), Ok(Entered::Now));
    assert_eq!(values(&mut server, Instant(0))[0].1, 6);
}

#[test]
fn all_pairs_are_added_or_none() {
    let mut server = server();
    let pairs = |value| [(Key::from("a"), 1), (Key::from("full"), value)];
    let uncounted = Try::default();
    let entry = |id| Entry { book: BOOK, nth: &uncounted, id, completed: &[] };
    let nop = Modify::default();
    server.apply(Instant(0), &entry(b"x"), &pairs(i64::MAX), nop).expect("fits");
    let outcome = server.apply(Instant(0), &entry(b"y"), &pairs(1), nop);
    assert_eq!(outcome, Err(CallError::Overflow { position: 1 }));
    let max = Modify { op: OpType::Max, para: 0 };
    let outcome = server.apply(Instant(0), &entry(b"y"), &pairs(1 << 40), max);
    assert_eq!(outcome, Err(CallError::Range { value: 1 << 40, position: 1, bits: 32 }));
    // It did not take effect: it may be made again.
    assert_eq!(server.apply(Instant(0), &entry(b"y"), &pairs(-1), nop), Ok(Entered::Now));
    assert_eq!(values(&mut server, Instant(0)), [(Key::from("a"), 2), (Key::from("full"), i64::MAX - 1)]);
}

#[test]
fn ids_of_a_forgotten_book_make_room_for_others() {
    const BOOKS: u64 = 64;
    let mut server = server();
    let apply = |server: &mut MapServer, now, book, id: usize| {
        let id = id.to_be_bytes();
        let entry = Entry { book, nth: &Try::default(), id: &id, completed: &[] };
        server.apply(now, &entry, &[(Key::from("a"), 1)], Modify::default())
    };
    // All that the books of an application remember together.
    for book in 1..=BOOKS {
        server.open_book(Instant(0), book).expect("room");
        (0..IDS_MAX).for_each(|id| assert_eq!(apply(&mut server, Instant(0), book, id), Ok(Entered::Now)));
    }
    assert_eq!(apply(&mut server, Instant(0), BOOK, 1), Err(CallError::BooksFull));
    let later = at(BOOK_KEPT);
    server.open_book(later, BOOKS + 1).expect("room");
    assert_eq!(apply(&mut server, later, BOOKS + 1, 1), Ok(Entered::Now));
    assert_eq!(apply(&mut server, later, 1, 1), Err(CallError::Forgotten));
}
