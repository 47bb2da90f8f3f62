//! An application that can't go on: every worker learns it, even one that the element holds.

use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::{KEY_MEMORY, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{ClearPolicy, Dest, Grant, Outbox};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, Instant, Kind, MapFlags, MapRepr};

#[derive(Default)]
struct Kinds(Vec<Kind>);

impl Outbox for Kinds {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        self.0.push(Kind::parse(Base::new_checked(frame).expect("a frame").kind()).expect("a kind"));
    }
}

fn contribution(endpoint: u32, worker: u16, lanes: u16) -> Vec<u8> {
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: 1,
        round: 1,
        ..BaseRepr::new(Kind::MapData)
    };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let map = MapRepr { flags, lanes, worker, threshold: 3, tag: lanes.into(), ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, lanes.into(), 0)];
    emit(&base, &map, &mut bytes);
    bytes
}

#[test]
fn a_report_that_may_have_been_lost_is_repeated_until_a_worker_joins_anew() {
    let mut server = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: Some(Grant { rows: 4, width: 256 }),
        threshold: 3,
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
    });
    for endpoint in [10, 11, 12] {
        server
            .join(Instant(0), Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms: 0 })
            .expect("room");
    }
    // The third worker's frames stay in the element: nothing of it ever comes here.
    server.handle(Instant(1), &contribution(10, 0, 4), &mut Kinds::default());
    server.handle(Instant(2), &contribution(11, 1, 5), &mut Kinds::default());

    let mut now = Instant(2);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let due = server.deadline().expect("a report is due");
        let mut sent = Kinds::default();
        server.poll(due, &mut sent);
        if sent.0.contains(&Kind::MapError) {
            pauses.push(due - now);
            now = due;
        }
    }
    assert!(pauses.len() >= 7, "{pauses:?}");
    assert!(
        pauses.is_sorted() && pauses.last() == Some(&Duration::from_secs(1)),
        "slower, but never silent: {pauses:?}"
    );

    server.leave(now, 12);
    server
        .join(now, Member { endpoint: 13, incarnation: 5, element: true, slot_base: 0, flows: 1, terms: 0 })
        .expect("room");
    let mut sent = Kinds::default();
    server.poll(now + Duration::from_secs(10), &mut sent);
    assert!(!sent.0.contains(&Kind::MapError), "{:?}", sent.0);
}
