//! Rounds of workers that come late, or whose element comes late.

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::{Joined, KEY_MEMORY, MapServer, Member, ServerConfig, Terms};
use pathcall_endpoint::map::{ClearPolicy, Dest, Grant, Outbox};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr};

/// Kind, row and round of frames.
#[derive(Default)]
struct Sent(Vec<(Kind, u32, u32)>);

impl Outbox for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        let frame = MapFrame::new_checked(frame).expect("a frame");
        self.0.push((frame.kind(), frame.map().index(), frame.base().round()));
    }
}

/// An owner of `workers` workers, with 4 rows in an element, if at all.
fn server(workers: u32, element: bool) -> MapServer {
    MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: element.then_some(GRANT),
        threshold: workers,
        clear: ClearPolicy::Copy,
        mapping: false,
        acked: false,
        locks: false,
        votes: false,
        eviction: None,
        key_memory: KEY_MEMORY,
        width: 256,
        lease: LEASE,
        timing: Timing::default(),
    })
}

const GRANT: Grant = Grant { rows: 4, width: 256 };

fn join(server: &mut MapServer, endpoint: u32, terms: u64) -> Joined {
    let member = Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms };
    server.join(Instant(0), member).expect("room")
}

fn renew(server: &mut MapServer, grant: Option<Grant>) {
    server.renew(Instant(0), Terms { number: 1, epoch: 2, grant, reason: "a test" });
}

/// A worker's part of round 1 of a row, sent past the element; what is said to it.
fn part(server: &mut MapServer, endpoint: u32, worker: u16, row: u32, tag: u32) -> Vec<(Kind, u32, u32)> {
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: row + 1,
        round: 1,
        ..BaseRepr::new(Kind::MapData)
    };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let map = MapRepr { flags, lanes: 4, worker, index: row, tag, threshold: 2, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 4, 0)];
    emit(&base, &map, &mut bytes);
    let mut sent = Sent::default();
    server.handle(Instant(1), &bytes, &mut sent);
    sent.0
}

fn polled(server: &mut MapServer, at: u64) -> Vec<(Kind, u32, u32)> {
    let mut sent = Sent::default();
    server.poll(Instant(at), &mut sent);
    sent.0
}

#[test]
fn a_worker_that_joins_when_the_memory_has_become_too_small_works_past_the_element() {
    let mut server = server(2, true);
    assert!(join(&mut server, 10, 0).element);
    renew(&mut server, Some(Grant { rows: 3, ..GRANT }));
    let joined = join(&mut server, 11, 1);
    assert_eq!((joined.rows, joined.element), (4, false), "the circle of rows stays as it was");
}

#[test]
fn a_round_that_was_begun_without_an_element_is_announced_when_there_is_one() {
    let mut server = server(2, false);
    join(&mut server, 10, 0);
    join(&mut server, 11, 0);
    part(&mut server, 10, 0, 2, 99);
    assert_eq!(polled(&mut server, 1), []);
    renew(&mut server, Some(Grant { rows: 1 << 16, ..GRANT }));
    // Or the other worker's part would wait in the element for ever.
    let said = polled(&mut server, 2);
    assert!(said.contains(&(Kind::MapSoft, 2, 1)), "{said:?}");
}

#[test]
fn a_successor_does_not_get_the_result_of_what_its_predecessor_was_doing() {
    let mut server = server(1, false);
    join(&mut server, 10, 0);
    // The first chunk was lost, and then the worker.
    assert_eq!(part(&mut server, 10, 0, 1, 99), [(Kind::MapResult, 1, 1)]);
    server.leave(Instant(2), 10);
    assert_eq!(join(&mut server, 11, 0).start_chunk, 0);
    assert_eq!(part(&mut server, 11, 0, 0, 55), [(Kind::MapResult, 0, 1)]);
    let said = part(&mut server, 11, 0, 1, 77);
    assert!(matches!(said[..], [(Kind::MapError, ..)]), "it has no part in what is complete: {said:?}");
}

#[test]
fn a_successor_learns_what_is_complete_even_if_the_element_takes_it_for_open() {
    let mut server = server(2, true);
    join(&mut server, 10, 0);
    join(&mut server, 11, 0);
    part(&mut server, 10, 0, 1, 99);
    part(&mut server, 11, 1, 1, 99);
    server.leave(Instant(2), 11);
    join(&mut server, 12, 0);
    let complete = (Kind::MapSoft, 1, 1);
    for at in [50_000_000, 100_000_000] {
        assert!(polled(&mut server, at).contains(&complete), "said until it asks the server");
    }
    assert_eq!(part(&mut server, 12, 1, 1, 99), [(Kind::MapResult, 1, 1)]);
    assert!(!polled(&mut server, 200_000_000).contains(&complete));
}
