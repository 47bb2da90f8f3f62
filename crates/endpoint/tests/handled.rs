//! Sums for the server's handler.

use pathcall_endpoint::map::server::{
    ElementTerms, MapServer, Member, ReachedSum, SOFTWARE_ROWS, ServerConfig, SumEvent,
};
use pathcall_endpoint::map::{CallError, Dest, FrameSink, Lanes};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::server_config;

const NOW: Instant = Instant(1);
const LANES: usize = 4;

/// Kinds of sent frames, and the lanes of results.
#[derive(Default)]
struct Sent(Vec<FrameKind>, Vec<u8>);

impl FrameSink for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        let frame = MapFrame::new_checked(frame).expect("valid frame");
        if frame.kind() == FrameKind::MapResult {
            self.1 = frame.lanes().to_vec();
        }
        self.0.push(frame.kind());
    }
}

/// Owner with two workers, 10 and 11.
fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig { threshold: 2, handled: true, width: 256, ..server_config() });
    (10..12).for_each(|endpoint| assert_eq!(join(&mut server, endpoint), 0));
    server
}

/// Joins; returns the first chunk.
fn join(server: &mut MapServer, endpoint: u32) -> u64 {
    let member = Member { endpoint, incarnation: 5, element: false, slot_base: 0, flows: 1, terms: 0 };
    server.join(NOW, member).expect("join succeeds").start_chunk
}

/// Sends a worker's part of a chunk past the element, and returns what the server sends.
fn part(server: &mut MapServer, worker: u16, chunk: u64, tag: u32) -> Sent {
    let rows = u64::from(SOFTWARE_ROWS);
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: 1,
        src: 10 + u32::from(worker),
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: chunk as u32 + 1,
        round: (chunk / rows) as u32 + 1,
        ..BaseRepr::new(FrameKind::MapData)
    };
    let flags = MapFlags::COUNT | MapFlags::ADD | MapFlags::LINEAR | MapFlags::ROUND;
    let index = (chunk % rows) as u32;
    let to = ForwardTarget::Server as u8;
    let map = MapRepr { flags, lanes: LANES as u16, worker, index, tag, threshold: 2, to, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, LANES, 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    frame.bitmap_and_lanes_mut().1.as_chunks_mut().0.iter_mut().for_each(|lane| *lane = 5i32.to_be_bytes());
    let mut sent = Sent::default();
    server.handle(NOW, &bytes, &mut sent);
    sent
}

fn reached(server: &mut MapServer) -> Option<ReachedSum> {
    match server.next_sum_event()? {
        SumEvent::Reached(sum) => Some(sum),
        SumEvent::Failed => panic!("the sums failed"),
    }
}

fn answer(server: &mut MapServer, sum: &ReachedSum, result: i64) -> (bool, Sent) {
    let mut sent = Sent::default();
    (server.answer_sum(NOW, sum.position, &Lanes::from(vec![result; LANES]), &mut sent), sent)
}

#[test]
fn reached_sum_waits_for_result_of_handler() {
    let mut server = server();
    assert_eq!(part(&mut server, 0, 0, 9).0, [FrameKind::MapHeld]);
    assert_eq!(reached(&mut server), None);
    assert_eq!(part(&mut server, 1, 0, 9).0, [FrameKind::MapHeld], "no result yet");
    let sum = reached(&mut server).expect("reached");
    assert_eq!((sum.position.chunk, &sum.sums), (0, &Lanes::from(vec![10; LANES])));
    for worker in [0, 1, 1] {
        assert_eq!(part(&mut server, worker, 0, 9).0, [FrameKind::MapHeld], "the worker has to wait");
    }
    assert_eq!(reached(&mut server), None, "reached once");
    let (answered, sent) = answer(&mut server, &sum, 77);
    assert!(answered);
    assert_eq!((&sent.0[..], &sent.1[..4]), (&[FrameKind::MapResult; 2][..], &77i32.to_be_bytes()[..]));
    assert!(!answer(&mut server, &sum, 78).0, "it has a result");
    assert_eq!(part(&mut server, 0, 0, 9).1[..4], 77i32.to_be_bytes(), "a late worker gets the result");
}

#[test]
fn result_of_64_bits_is_sent_in_wide_lanes() {
    let mut server = server();
    part(&mut server, 0, 0, 9);
    part(&mut server, 1, 0, 9);
    let sum = reached(&mut server).expect("reached");
    assert_eq!(answer(&mut server, &sum, 1 << 40).1.1[..8], (1i64 << 40).to_be_bytes());
}

#[test]
fn reached_sum_survives_new_epoch_and_replaced_worker() {
    let mut server = server();
    part(&mut server, 0, 0, 9);
    part(&mut server, 1, 0, 9);
    let sum = reached(&mut server).expect("reached");
    server.renew(NOW, ElementTerms { number: 1, epoch: 2, grant: None, reason: "a test" });
    server.leave(NOW, 11);
    assert_eq!(join(&mut server, 11), 0);
    for worker in [0, 1] {
        assert_eq!(part(&mut server, worker, 0, 9).0, [FrameKind::MapHeld]);
    }
    assert_eq!(reached(&mut server), None, "the handler has the sum");
    assert!(answer(&mut server, &sum, 1).0);
}

#[test]
fn failed_step_is_void_and_repeated_in_other_rounds() {
    let mut server = server();
    for chunk in 0..3 {
        part(&mut server, 0, chunk, 9 + chunk as u32);
        part(&mut server, 1, chunk, 9 + chunk as u32);
    }
    let sums: Vec<_> = std::iter::from_fn(|| reached(&mut server)).collect();
    assert!(answer(&mut server, &sums[1], 1).0, "one chunk has its result");
    server.abandon_sum(NOW, 10, 5);
    assert_eq!(server.next_sum_event(), Some(SumEvent::Failed));
    assert!(!answer(&mut server, &sums[0], 1).0, "a late result has no effect");
    server.leave(NOW, 10);
    server.leave(NOW, 11);
    let first = join(&mut server, 10);
    assert_eq!(join(&mut server, 11), first);
    assert!(first > 2, "no chunk of the failed step is used again");
    for chunk in first..first + 3 {
        part(&mut server, 0, chunk, 9 + (chunk - first) as u32);
        part(&mut server, 1, chunk, 9 + (chunk - first) as u32);
        assert_eq!(reached(&mut server).expect("reached").position.chunk, chunk);
    }
}

#[test]
fn worker_with_another_call_fails_all() {
    let mut server = server();
    part(&mut server, 0, 0, 9);
    part(&mut server, 1, 0, 9);
    assert!(reached(&mut server).is_some());
    assert_eq!(part(&mut server, 1, 0, 8).0, [FrameKind::MapError; 2]);
    assert_eq!(server.next_sum_event(), Some(SumEvent::Failed));
    server.fail_sums(NOW, CallError::SumAbandoned);
    assert_eq!(server.next_sum_event(), Some(SumEvent::Failed));
}
