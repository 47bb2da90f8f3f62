//! Clear policy *shadow* at a worker and at the owner.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{CallError, ClearPolicy, Dest, FrameSink, Modify, Operation, Output, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::{client_config, server_config};

pub(crate) const ROWS: u32 = 4;
pub(crate) const WIDTH: u16 = 4;
pub(crate) const NOW: Instant = Instant(1);

#[derive(Default)]
pub(crate) struct Sent(pub(crate) Vec<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

impl Sent {
    /// Destination, kind, row, round and flags of each frame.
    pub(crate) fn heads(&self) -> Vec<(Dest, FrameKind, u32, u32, u16)> {
        let head = |(to, bytes): &(Dest, Vec<u8>)| {
            let frame = MapFrame::new_checked(&bytes[..]).expect("valid frame");
            (*to, frame.kind(), frame.map().index(), frame.base().round(), frame.map().flags())
        };
        self.0.iter().map(head).collect()
    }
}

fn worker() -> MapClient {
    MapClient::new(ClientConfig {
        element: true,
        rows: ROWS,
        width: WIDTH,
        clear: ClearPolicy::Shadow,
        ..client_config()
    })
}

/// Frame to the worker, from the element or the server.
pub(crate) fn to_worker(kind: FrameKind, flags: u16, row: u32, round: u32, values: &[i32]) -> Vec<u8> {
    let base = BaseRepr {
        flags,
        gaid: 7,
        epoch: 1,
        src: 1,
        src_incarnation: 5,
        dst: 10,
        dst_incarnation: 5,
        round,
        ..BaseRepr::new(kind)
    };
    let bare = if values.is_empty() { MapFlags::BARE } else { MapFlags::LINEAR };
    let map = MapRepr { flags: MapFlags::ROUND | bare, lanes: values.len() as u16, index: row, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, values.len(), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    for (lane, value) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).zip(values) {
        lane.copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Handles a frame. Returns the frames sent then.
pub(crate) fn handle_frame(worker: &mut MapClient, bytes: &[u8]) -> Sent {
    let mut sent = Sent::default();
    worker.handle(NOW, bytes);
    worker.poll(NOW, &mut sent);
    sent
}

/// Starts a call of this number of chunks. Returns the frames sent then.
pub(crate) fn call(worker: &mut MapClient, chunks: usize) -> Sent {
    let lanes = vec![1; chunks * usize::from(WIDTH)].into();
    worker.start(
        NOW,
        CallId(1),
        Operation::Sum { lanes, modify: Modify::default(), threshold: 2, to: ForwardTarget::All },
    );
    let mut sent = Sent::default();
    worker.poll(NOW, &mut sent);
    sent
}

#[test]
fn worker_window_is_half_of_the_rows() {
    let mut worker = worker();
    let heads = call(&mut worker, 6).heads();
    assert_eq!(heads.iter().map(|head| (head.0, head.2)).collect::<Vec<_>>(), [(Dest::Element, 0), (Dest::Element, 1)]);
    assert!(heads.iter().all(|head| head.4 & MapFlags::CLEAR != 0), "{heads:?}");
    let next = handle_frame(&mut worker, &to_worker(FrameKind::MapResult, 0, 0, 1, &[2; 4]));
    assert_eq!(next.heads()[0].2, 2);
}

#[test]
fn saturated_chunk_is_resent_to_server() {
    let mut worker = worker();
    call(&mut worker, 1);
    let again = handle_frame(&mut worker, &to_worker(FrameKind::MapResult, 0, 0, 1, &[2, i32::MAX, 2, 2]));
    assert!(matches!(again.heads()[..], [(Dest::Endpoint(1), FrameKind::MapData, 0, 1, _)]), "{:?}", again.heads());
    assert_eq!(worker.next_event(), None);
    // The server's sums are exact, also at the end of the range.
    handle_frame(&mut worker, &to_worker(FrameKind::MapResult, Flags::FROM_SERVER, 0, 1, &[2, i32::MAX, 2, 2]));
    let sums = Output::Sums(vec![2, i64::from(i32::MAX), 2, 2].into());
    assert_eq!(worker.next_event(), Some((CallId(1), Ok(sums))));
}

#[test]
fn worker_sends_requested_sums_to_server() {
    let mut worker = worker();
    call(&mut worker, 1);
    handle_frame(&mut worker, &to_worker(FrameKind::MapResult, 0, 0, 1, &[7, 8, 9, 10]));
    assert!(worker.next_event().is_some());
    let asked = to_worker(FrameKind::MapSoft, Flags::FROM_SERVER, 0, 1, &[]);
    let given = handle_frame(&mut worker, &asked);
    let [(to, kind, row, round, flags)] = given.heads()[..] else { panic!("{:?}", given.heads()) };
    assert_eq!((to, kind, row, round), (Dest::Endpoint(1), FrameKind::MapData, 0, 1));
    assert_eq!(flags & (MapFlags::GET | MapFlags::ADD), MapFlags::GET);
    let frame = MapFrame::new_checked(&given.0[0].1[..]).expect("valid frame");
    assert_eq!((frame.linear(0), frame.linear(3)), (Some(7), Some(10)));
    let never = to_worker(FrameKind::MapSoft, Flags::FROM_SERVER, 1, 1, &[]);
    assert_eq!(handle_frame(&mut worker, &never).heads(), []);
}

fn server() -> MapServer {
    server_of(2)
}

/// Server with this number of workers.
fn server_of(threshold: u32) -> MapServer {
    MapServer::new(ServerConfig {
        grant: Some(RegisterGrant { rows: ROWS, width: WIDTH }),
        threshold,
        clear: ClearPolicy::Shadow,
        width: WIDTH,
        ..server_config()
    })
}

pub(crate) fn member(endpoint: u32, terms: u64) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms }
}

fn join(server: &mut MapServer, endpoint: u32, terms: u64) -> u64 {
    server.join(NOW, member(endpoint, terms)).expect("join succeeds").start_chunk
}

/// Base header of a worker's frame past the element.
pub(crate) fn past_the_element(endpoint: u32, kind: FrameKind) -> BaseRepr {
    BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        ..BaseRepr::new(kind)
    }
}

/// Delivers a worker's progress report of this era.
fn greet(server: &mut MapServer, endpoint: u32, era: Era, row: u32, round: u32) {
    let base = past_the_element(endpoint, FrameKind::MapHello);
    let map = MapRepr { flags: MapFlags::BARE, index: row, threshold: round, tag: era.number(), ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 0)];
    emit(&base, &map, &mut bytes);
    server.handle(NOW, &bytes, &mut Sent::default());
}

fn renew(server: &mut MapServer, number: u64, epoch: u32) {
    let grant = Some(RegisterGrant { rows: ROWS, width: WIDTH });
    server.renew(NOW, ElementTerms { number, epoch, grant, reason: "a test" });
}

#[test]
fn successor_starts_at_oldest_open_chunk_of_others() {
    let mut server = server();
    for endpoint in [10, 11] {
        assert!(server.can_admit());
        assert_eq!(join(&mut server, endpoint, 0), 0);
    }
    server.leave(NOW, 11);
    assert!(!server.can_admit(), "the progress of the other workers is unknown");
    assert!(!server.can_admit());
    assert_eq!(server.next_event(), Some(Event::EpochEndRequested));
    assert_eq!(server.next_event(), None, "requested once");
    // The same epoch continues without the element.
    server.renew(NOW, ElementTerms { number: 1, epoch: 1, grant: None, reason: "a test" });
    let before = Era::of_epoch(1);
    greet(&mut server, 10, before.of_element(), 3, 7);
    assert!(!server.can_admit(), "the report is of an earlier era");
    greet(&mut server, 10, before.next(1).of_element(), 1, 3);
    assert!(server.can_admit());
    assert_eq!(join(&mut server, 12, 1), 9, "row 1 of 4, in round 3");
}

#[test]
fn new_workers_start_together_after_all_have_left() {
    let mut server = server();
    for endpoint in [10, 11] {
        join(&mut server, endpoint, 0);
    }
    for endpoint in [10, 11] {
        server.leave(NOW, endpoint);
    }
    assert!(!server.can_admit(), "contributions left in the element would count for the successors");
    renew(&mut server, 1, 2);
    let starts = [12, 13].map(|endpoint| {
        assert!(server.can_admit());
        join(&mut server, endpoint, 1)
    });
    assert_eq!(starts[0], starts[1]);
}

#[test]
fn worker_that_joins_again_alone_starts_at_its_next_chunk() {
    let mut server = server();
    for endpoint in [10, 11] {
        join(&mut server, endpoint, 0);
    }
    server.note_next_chunk(9);
    for endpoint in [10, 11] {
        server.leave(NOW, endpoint);
    }
    renew(&mut server, 1, 2);
    assert!(server.can_admit());
    server.note_next_chunk(6);
    assert_eq!(join(&mut server, 10, 1), 6, "the chunk that it reported with no other worker there");
    server.note_next_chunk(7);
    assert_eq!(join(&mut server, 11, 1), 6, "the other worker may miss chunk 6");
}

#[test]
fn departed_worker_of_new_epoch_does_not_count_for_successor() {
    let mut server = server();
    for endpoint in [10, 11] {
        join(&mut server, endpoint, 0);
    }
    renew(&mut server, 1, 2);
    // The worker left before its progress report, but may have sent contributions.
    server.leave(NOW, 11);
    greet(&mut server, 10, Era::of_epoch(2).of_element(), 0, 1);
    assert!(!server.can_admit());
    assert_eq!(server.next_event(), Some(Event::EpochEndRequested));
    renew(&mut server, 2, 3);
    greet(&mut server, 10, Era::of_epoch(3).of_element(), 0, 1);
    assert!(server.can_admit(), "the element has no contributions of it any more");
}

#[test]
fn excess_worker_is_refused_without_epoch_end() {
    // Including the maximum number of workers.
    for threshold in [2, 64] {
        let mut server = server_of(threshold);
        for endpoint in 0..threshold {
            assert!(server.can_admit());
            join(&mut server, 10 + endpoint, 0);
        }
        assert!(server.can_admit(), "{threshold}: joining must fail at once");
        assert_eq!(server.next_event(), None, "{threshold}");
        assert_eq!(server.join(NOW, member(9, 0)), Err(CallError::WorkersFull { threshold }));
    }
}

/// Sends a worker's contribution to row 0 past the element. Returns the server's frames.
fn part(server: &mut MapServer, endpoint: u32, worker: u16, round: u32) -> Vec<(Dest, FrameKind, u32, u32, u16)> {
    let base = BaseRepr { round, ..past_the_element(endpoint, FrameKind::MapData) };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let map = MapRepr { flags, lanes: WIDTH, worker, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, usize::from(WIDTH), 0)];
    emit(&base, &map, &mut bytes);
    let mut sent = Sent::default();
    server.handle(NOW, &bytes, &mut sent);
    server.poll(NOW, &mut sent);
    sent.heads()
}

#[test]
fn rounds_stop_before_the_number_overflows() {
    let mut server = server();
    for endpoint in [10, 11] {
        join(&mut server, endpoint, 0);
    }
    let last = u32::MAX - 1;
    for (round, kinds) in [(u32::MAX, 0), (last, 1), (u32::MAX, 0)] {
        part(&mut server, 10, 0, round);
        let said = part(&mut server, 11, 1, round);
        assert_eq!(
            said.iter().filter(|said| said.1 == FrameKind::MapResult && said.3 == round).count(),
            kinds,
            "{round}"
        );
    }
    // Frames for a row at its last round get the same answer.
    server.leave(NOW, 11);
    renew(&mut server, 1, 2);
    greet(&mut server, 10, Era::of_epoch(2).of_element(), 0, last);
    join(&mut server, 12, 1);
    server.poll(Instant(1 << 40), &mut Sent::default());
}
