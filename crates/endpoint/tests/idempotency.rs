//! Calls with ids: applied whole and once, with limits of memory and time.

use std::time::Duration;

use pathcall_endpoint::map::server::idempotency::{ApplyOutcome, CALL_IDS_MAX, CallAttempt, Entry, JOURNAL_RETENTION};
use pathcall_endpoint::map::server::{Event, MapServer, QueryId, ServerConfig};
use pathcall_endpoint::map::{CallError, Key, Modify};
use pathcall_wire::{Instant, OpType};

use crate::config::server_config;

const JOURNAL: u64 = 0xb00c;

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig { mapping: true, ..server_config() });
    server.open_journal(Instant(0), JOURNAL).expect("enough space");
    server
}

fn at(time: Duration) -> Instant {
    Instant(0) + time
}

/// Adds 1 to "a" with this call id.
fn add(server: &mut MapServer, now: Instant, id: &str, completed: &[Vec<u8>]) -> Result<ApplyOutcome, CallError> {
    let entry = Entry { journal: JOURNAL, attempt: &CallAttempt::default(), id: id.as_bytes(), completed };
    server.apply(now, &entry, &[(Key::from("a"), 1)], Modify::default())
}

fn values(server: &mut MapServer, now: Instant) -> Vec<(Key, i64)> {
    server.query(now, QueryId(1), Some(vec![Key::from("a"), Key::from("full")]));
    let Some(Event::Answered(_, Ok(values))) = server.next_event() else { panic!("an answer") };
    values
}

#[test]
fn repeated_call_id_changes_nothing() {
    let mut server = server();
    assert_eq!(add(&mut server, at(Duration::ZERO), "x", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(add(&mut server, at(Duration::ZERO), "x", &[]), Ok(ApplyOutcome::AlreadyApplied));
    assert_eq!(add(&mut server, at(Duration::ZERO), "y", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(values(&mut server, Instant(0))[0].1, 2);
    assert_eq!((server.stats().calls_applied, server.stats().calls_repeated), (2, 1));
}

#[test]
fn unused_journal_expires_and_later_calls_fail() {
    let mut server = server();
    let almost = JOURNAL_RETENTION - Duration::from_secs(1);
    add(&mut server, at(almost), "x", &[]).expect("journal is kept");
    assert_eq!(add(&mut server, at(almost * 2), "x", &[]), Ok(ApplyOutcome::AlreadyApplied));
    let later = at(almost * 2 + JOURNAL_RETENTION);
    assert_eq!(add(&mut server, later, "x", &[]), Err(CallError::JournalForgotten));
    let strange = Entry { journal: JOURNAL + 1, attempt: &CallAttempt::default(), id: b"x", completed: &[] };
    assert_eq!(server.apply(later, &strange, &[], Modify::default()), Err(CallError::JournalForgotten));
    assert_eq!(values(&mut server, later)[0].1, 1);
}

#[test]
fn journal_ids_are_limited_and_completed_ids_are_deleted() {
    let mut server = server();
    for id in 0..CALL_IDS_MAX {
        add(&mut server, Instant(0), &id.to_string(), &[]).expect("enough space");
    }
    assert_eq!(add(&mut server, Instant(0), "one more", &[]), Err(CallError::IdempotencyFull));
    // Known ids are still recognised.
    assert_eq!(add(&mut server, Instant(0), "7", &[]), Ok(ApplyOutcome::AlreadyApplied));
    let noted = [b"3".to_vec(), b"no such".to_vec()];
    assert_eq!(add(&mut server, Instant(0), "one more", &noted), Ok(ApplyOutcome::Applied));
    assert_eq!(add(&mut server, Instant(0), "and another", &noted), Err(CallError::IdempotencyFull));
}

/// Late attempt of a killed process.
#[test]
fn late_attempt_of_deleted_id_changes_nothing() {
    let mut server = server();
    let mut add = |number, earlier_pending: &[u64], id: &str, completed: &[Vec<u8>]| {
        let attempt = CallAttempt { number, pending_from: number, earlier_pending: earlier_pending.to_vec() };
        let entry = Entry { journal: JOURNAL, attempt: &attempt, id: id.as_bytes(), completed };
        server.apply(Instant(0), &entry, &[(Key::from("a"), 1)], Modify::default())
    };
    // The next process repeats the call and reports it as done.
    assert_eq!(add(20, &[], "x", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(add(22, &[21], "y", &[b"x".to_vec()]), Ok(ApplyOutcome::Applied));
    assert_eq!(add(10, &[], "x", &[]), Err(CallError::AbandonedAttempt));
    assert_eq!(add(20, &[], "x", &[]), Err(CallError::AbandonedAttempt));
    // Earlier attempts under way may still arrive.
    assert_eq!(add(24, &[21, 23], "z", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(add(21, &[], "w", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(add(22, &[21], "y", &[]), Err(CallError::AbandonedAttempt));
    assert_eq!(add(23, &[21], "v", &[]), Ok(ApplyOutcome::Applied));
    // Attempts without a number are never late.
    assert_eq!(add(0, &[], "u", &[]), Ok(ApplyOutcome::Applied));
    assert_eq!(values(&mut server, Instant(0))[0].1, 6);
}

#[test]
fn call_adds_all_pairs_or_none() {
    let mut server = server();
    let pairs = |value| [(Key::from("a"), 1), (Key::from("full"), value)];
    let uncounted = CallAttempt::default();
    let entry = |id| Entry { journal: JOURNAL, attempt: &uncounted, id, completed: &[] };
    let nop = Modify::default();
    server.apply(Instant(0), &entry(b"x"), &pairs(i64::MAX), nop).expect("enough space");
    let outcome = server.apply(Instant(0), &entry(b"y"), &pairs(1), nop);
    assert_eq!(outcome, Err(CallError::Overflow { position: 1 }));
    let max = Modify { op: OpType::Max, para: 0 };
    let outcome = server.apply(Instant(0), &entry(b"y"), &pairs(1 << 40), max);
    assert_eq!(outcome, Err(CallError::Range { value: 1 << 40, position: 1, bits: 32 }));
    // The failed call had no effect, so it may be repeated.
    assert_eq!(server.apply(Instant(0), &entry(b"y"), &pairs(-1), nop), Ok(ApplyOutcome::Applied));
    assert_eq!(values(&mut server, Instant(0)), [(Key::from("a"), 2), (Key::from("full"), i64::MAX - 1)]);
}

#[test]
fn expired_journal_frees_its_ids() {
    const JOURNALS: u64 = 64;
    let mut server = server();
    let apply = |server: &mut MapServer, now, journal, id: usize| {
        let id = id.to_be_bytes();
        let entry = Entry { journal, attempt: &CallAttempt::default(), id: &id, completed: &[] };
        server.apply(now, &entry, &[(Key::from("a"), 1)], Modify::default())
    };
    // Maximum number of ids of all journals of an application.
    for journal in 1..=JOURNALS {
        server.open_journal(Instant(0), journal).expect("enough space");
        (0..CALL_IDS_MAX)
            .for_each(|id| assert_eq!(apply(&mut server, Instant(0), journal, id), Ok(ApplyOutcome::Applied)));
    }
    assert_eq!(apply(&mut server, Instant(0), JOURNAL, 1), Err(CallError::IdempotencyFull));
    let later = at(JOURNAL_RETENTION);
    server.open_journal(later, JOURNALS + 1).expect("enough space");
    assert_eq!(apply(&mut server, later, JOURNALS + 1, 1), Ok(ApplyOutcome::Applied));
    assert_eq!(apply(&mut server, later, 1, 1), Err(CallError::JournalForgotten));
}
