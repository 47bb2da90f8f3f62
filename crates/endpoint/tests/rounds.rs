//! Rounds with late workers or a late element.

use pathcall_endpoint::map::server::{ElementTerms, Joined, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Dest, FrameSink, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::server_config;

/// Kind, row and round of sent frames.
#[derive(Default)]
struct Sent(Vec<(FrameKind, u32, u32)>);

impl FrameSink for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        let frame = MapFrame::new_checked(frame).expect("valid frame");
        self.0.push((frame.kind(), frame.map().index(), frame.base().round()));
    }
}

/// Owner with `workers` workers, and 4 rows in an element if `element`.
fn server(workers: u32, element: bool) -> MapServer {
    MapServer::new(ServerConfig { grant: element.then_some(GRANT), threshold: workers, width: 256, ..server_config() })
}

const GRANT: RegisterGrant = RegisterGrant { rows: 4, width: 256 };

fn join(server: &mut MapServer, endpoint: u32, terms: u64) -> Joined {
    let member = Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms };
    server.join(Instant(0), member).expect("join succeeds")
}

fn renew(server: &mut MapServer, grant: Option<RegisterGrant>) {
    server.renew(Instant(0), ElementTerms { number: 1, epoch: 2, grant, reason: "a test" });
}

/// Sends a worker's contribution to round 1 of a row past the element. Returns the answers.
fn part(server: &mut MapServer, endpoint: u32, worker: u16, row: u32, tag: u32) -> Vec<(FrameKind, u32, u32)> {
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
        ..BaseRepr::new(FrameKind::MapData)
    };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let map = MapRepr { flags, lanes: 4, worker, index: row, tag, threshold: 2, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, 4, 0)];
    emit(&base, &map, &mut bytes);
    let mut sent = Sent::default();
    server.handle(Instant(1), &bytes, &mut sent);
    sent.0
}

fn poll_frames(server: &mut MapServer, at: u64) -> Vec<(FrameKind, u32, u32)> {
    let mut sent = Sent::default();
    server.poll(Instant(at), &mut sent);
    sent.0
}

#[test]
fn joining_worker_gets_rows_of_present_epoch() {
    let mut server = server(2, true);
    assert!(join(&mut server, 10, 0).element);
    renew(&mut server, Some(RegisterGrant { rows: 3, ..GRANT }));
    let joined = join(&mut server, 11, 1);
    assert_eq!((joined.rows, joined.element), (3, true));
}

#[test]
fn round_begun_without_element_is_announced_to_new_element() {
    let mut server = server(2, false);
    join(&mut server, 10, 0);
    join(&mut server, 11, 0);
    part(&mut server, 10, 0, 2, 99);
    assert_eq!(poll_frames(&mut server, 1), []);
    renew(&mut server, Some(RegisterGrant { rows: 1 << 16, ..GRANT }));
    // Otherwise the other worker's contribution would wait in the element for ever.
    let answers = poll_frames(&mut server, 2);
    assert!(answers.contains(&(FrameKind::MapSoft, 2, 1)), "{answers:?}");
}

#[test]
fn successor_does_not_get_result_of_predecessors_round() {
    let mut server = server(1, false);
    join(&mut server, 10, 0);
    // The first chunk was lost, then the worker died.
    assert_eq!(part(&mut server, 10, 0, 1, 99), [(FrameKind::MapResult, 1, 1)]);
    server.leave(Instant(2), 10);
    assert_eq!(join(&mut server, 11, 0).start_chunk, 0);
    assert_eq!(part(&mut server, 11, 0, 0, 55), [(FrameKind::MapResult, 0, 1)]);
    let answers = part(&mut server, 11, 0, 1, 77);
    assert!(
        matches!(answers[..], [(FrameKind::MapError, ..)]),
        "the successor did not contribute to the complete round: {answers:?}"
    );
}

#[test]
fn complete_round_is_announced_until_successor_sends_past_element() {
    let mut server = server(2, true);
    join(&mut server, 10, 0);
    join(&mut server, 11, 0);
    part(&mut server, 10, 0, 1, 99);
    part(&mut server, 11, 1, 1, 99);
    server.leave(Instant(2), 11);
    join(&mut server, 12, 0);
    let complete = (FrameKind::MapSoft, 1, 1);
    for at in [50_000_000, 100_000_000] {
        assert!(poll_frames(&mut server, at).contains(&complete), "announced until the worker asks the server");
    }
    assert_eq!(part(&mut server, 12, 1, 1, 99), [(FrameKind::MapResult, 1, 1)]);
    assert!(!poll_frames(&mut server, 200_000_000).contains(&complete));
}
