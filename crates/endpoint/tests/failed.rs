//! Failed application: all workers get the report, also workers whose frames the element holds.

use std::time::Duration;

use pathcall_endpoint::map::server::{MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Dest, FrameSink, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::server_config;

/// Destination and kind of sent frames.
#[derive(Default)]
struct Sent(Vec<(Dest, FrameKind)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, FrameKind::parse(Base::new_checked(frame).expect("valid frame").kind()).expect("a kind")));
    }
}

impl Sent {
    /// Destinations of failure reports.
    fn reported(&self) -> Vec<Dest> {
        self.0.iter().filter(|(_, kind)| *kind == FrameKind::MapError).map(|(to, _)| *to).collect()
    }
}

fn contribution(endpoint: u32, worker: u16, lanes: u16) -> Vec<u8> {
    contribution_to(1, endpoint, worker, lanes)
}

/// Contribution to a round of row 0.
fn contribution_to(round: u32, endpoint: u32, worker: u16, lanes: u16) -> Vec<u8> {
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: 1,
        round,
        ..BaseRepr::new(FrameKind::MapData)
    };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let map = MapRepr { flags, lanes, worker, threshold: 3, tag: lanes.into(), ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, lanes.into(), 0)];
    emit(&base, &map, &mut bytes);
    bytes
}

fn member(endpoint: u32) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms: 0 }
}

/// Application with three workers, 10 to 12.
fn three_workers() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        grant: Some(RegisterGrant { rows: 4, width: 256 }),
        threshold: 3,
        width: 256,
        ..server_config()
    });
    for endpoint in [10, 11, 12] {
        server.join(Instant(0), member(endpoint)).expect("join succeeds");
    }
    server
}

#[test]
fn failure_report_is_repeated_until_all_workers_rejoin() {
    let mut server = three_workers();
    // The element holds the third worker's frames, so the server gets none of them.
    server.handle(Instant(1), &contribution(10, 0, 4), &mut Sent::default());
    server.handle(Instant(2), &contribution(11, 1, 5), &mut Sent::default());

    let mut now = Instant(2);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let due = server.deadline().expect("a report is due");
        let mut sent = Sent::default();
        server.poll(due, &mut sent);
        if !sent.reported().is_empty() {
            pauses.push(due - now);
            now = due;
        }
    }
    assert!(pauses.len() >= 7, "{pauses:?}");
    assert!(
        pauses.is_sorted() && pauses.last() == Some(&Duration::from_secs(1)),
        "slower, but never silent: {pauses:?}"
    );

    // Each failed worker gets the report, and its frames are refused, even after a new worker has joined.
    server.leave(now, 12);
    server.join(now, member(13)).expect("join succeeds");
    let mut sent = Sent::default();
    server.handle(now, &contribution(10, 0, 4), &mut sent);
    server.poll(now + Duration::from_secs(10), &mut sent);
    let both = [10, 11].map(Dest::Endpoint);
    assert_eq!(sent.reported(), [both, both].concat());
    for endpoint in [10, 11] {
        server.leave(now, endpoint);
    }
    let mut sent = Sent::default();
    server.poll(now + Duration::from_secs(20), &mut sent);
    assert_eq!(sent.reported(), []);
}

#[test]
fn abandoned_sum_fails_all_present_workers() {
    let mut server = three_workers();
    server.handle(Instant(1), &contribution(10, 0, 4), &mut Sent::default());
    // Only the worker itself may abandon its sum.
    server.abandon_sum(Instant(2), 10, 6);
    server.abandon_sum(Instant(2), 9, 5);
    let mut sent = Sent::default();
    server.poll(Instant(2), &mut sent);
    assert_eq!(sent.reported(), []);

    server.abandon_sum(Instant(3), 10, 5);
    server.poll(Instant(3), &mut sent);
    assert_eq!(sent.reported(), [10, 11, 12].map(Dest::Endpoint));
    // A worker may join again before another worker has the report; the contribution of the latter does not count.
    server.leave(Instant(4), 10);
    let joined = server.join(Instant(4), member(20)).expect("join succeeds");
    let round = (joined.start_chunk / u64::from(joined.rows)) as u32 + 1;
    let mut sent = Sent::default();
    for (round, endpoint, worker) in [(round, 20, 0), (1, 11, 1), (1, 12, 2)] {
        server.handle(Instant(5), &contribution_to(round, endpoint, worker, 4), &mut sent);
    }
    assert!(!sent.0.iter().any(|(_, kind)| *kind == FrameKind::MapResult), "{:?}", sent.0);
    // After all have joined again, sums work.
    for endpoint in [11, 12] {
        server.leave(Instant(6), endpoint);
        server.join(Instant(6), member(endpoint + 10)).expect("join succeeds");
    }
    for (endpoint, worker) in [(20, 0), (21, 1), (22, 2)] {
        server.handle(Instant(7), &contribution_to(round, endpoint, worker, 4), &mut sent);
    }
    assert!(sent.0.iter().any(|(_, kind)| *kind == FrameKind::MapResult), "{:?}", sent.0);
}

#[test]
fn repeated_step_begins_after_results_of_failed_one() {
    let mut server = MapServer::new(ServerConfig { threshold: 1, width: 256, ..server_config() });
    let lone = |endpoint| Member { element: false, ..member(endpoint) };
    assert_eq!(server.join(Instant(0), lone(10)).expect("join succeeds").start_chunk, 0);
    // Chunk 3 has its result, earlier ones have not.
    let mut frame = contribution(10, 0, 4);
    let map =
        MapRepr { index: 3, threshold: 1, ..MapFrame::new_checked(&frame[..]).expect("valid frame").map().repr() };
    let base = Base::new_checked(&frame[..]).expect("valid frame").repr();
    emit(&base, &map, &mut frame);
    let mut sent = Sent::default();
    server.handle(Instant(1), &frame, &mut sent);
    assert_eq!(sent.0, [(Dest::Endpoint(10), FrameKind::MapResult)]);
    server.abandon_sum(Instant(2), 10, 5);
    server.leave(Instant(3), 10);
    assert!(server.join(Instant(3), lone(11)).expect("join succeeds").start_chunk > 3);
}
