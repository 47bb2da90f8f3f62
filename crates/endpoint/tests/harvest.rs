//! Harvest, request by request, with callers that join and leave.

use std::collections::VecDeque;

use pathcall_endpoint::map::server::{ElementTerms, Event, MapServer, Member, QueryId, ServerConfig};
use pathcall_endpoint::map::{CallError, Dest, FrameSink, Key, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr, RECORD_PLACES, pairs};

use crate::config::server_config;

const EPOCH: u32 = 3;

#[derive(Default)]
struct Sent(VecDeque<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push_back((to, frame.to_vec()));
    }
}

impl Sent {
    /// Removes and returns the frames of a kind.
    fn take(&mut self, kind: FrameKind) -> Vec<Vec<u8>> {
        let (wanted, rest) =
            self.0.drain(..).partition(|(_, f)| MapFrame::new_checked(&f[..]).expect("valid frame").kind() == kind);
        self.0 = rest;
        let wanted: VecDeque<(Dest, Vec<u8>)> = wanted;
        wanted.into_iter().map(|(_, frame)| frame).collect()
    }
}

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        epoch: EPOCH,
        grant: Some(RegisterGrant { rows: 4, width: 64 }),
        mapping: true,
        ..server_config()
    });
    for endpoint in [10, 11] {
        server.join(Instant(0), member(endpoint, 0)).expect("join succeeds");
    }
    server
}

fn member(endpoint: u32, terms: u64) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: endpoint - 10, flows: 1, terms }
}

/// Adds to a whole key; the first addition gives the key a register.
fn add(server: &mut MapServer, endpoint: u32, key: &str, value: i64) {
    let key = Key::from(key);
    let payload = pairs::entry_len(key.as_bytes().len());
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: 7,
        epoch: EPOCH,
        src: endpoint,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: 1,
        ..BaseRepr::new(FrameKind::MapPairs)
    };
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::ADD, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
    pairs::put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), value).expect("enough space");
    server.handle(Instant(1), &bytes, &mut Sent::default());
}

/// Element's answer to a request, with lanes from `fill`.
fn answer(request: &[u8], kind: FrameKind, round: u32, fill: impl Fn(usize) -> i32) -> Vec<u8> {
    let mut bytes = request.to_vec();
    let mut frame = MapFrame::new_checked(&mut bytes[..]).expect("valid frame");
    frame.base_mut().set_kind(kind as u8);
    frame.base_mut().set_round(round);
    for (i, lane) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).enumerate() {
        lane.copy_from_slice(&fill(i).to_be_bytes());
    }
    bytes
}

/// Closes generation 1 and answers for its only row, with 40 in the first register.
fn close_and_read(server: &mut MapServer, out: &mut Sent) {
    server.poll(Instant(3), out);
    let close = out.take(FrameKind::MapClose).remove(0);
    server.handle(Instant(4), &answer(&close, FrameKind::MapClosed, 2, |_| 0), out);
    server.poll(Instant(5), out);
    for row in out.take(FrameKind::MapRead) {
        server.handle(Instant(6), &answer(&row, FrameKind::MapValues, 1, |lane| if lane == 0 { 40 } else { 0 }), out);
    }
}

#[test]
fn query_answer_is_base_plus_register_after_record_is_read() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    close_and_read(&mut server, &mut out);
    assert_eq!(server.next_event(), None, "no commit before the record is complete");
    let places = out.take(FrameKind::MapPlaces);
    assert_eq!(places.len(), 8, "two callers, one slot each, four frames a slot");
    for request in &places {
        server.handle(Instant(7), &answer(request, FrameKind::MapRecord, 1, |_| 0), &mut out);
    }
    assert_eq!(server.next_event(), Some(Event::Answered(QueryId(1), Ok(vec![(Key::from("a"), 42)]))));
    assert_eq!(out.take(FrameKind::MapCommit).len(), 1);
}

#[test]
fn harvest_ignores_slots_of_departed_caller() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    close_and_read(&mut server, &mut out);
    // The element does not answer for its slots any more.
    for request in out.take(FrameKind::MapPlaces) {
        let of = MapFrame::new_checked(&request[..]).expect("valid frame").map().threshold();
        if of == 10 {
            server.handle(Instant(7), &answer(&request, FrameKind::MapRecord, 1, |_| 0), &mut out);
        }
    }
    assert_eq!(server.next_event(), None);
    server.leave(Instant(8), 11);
    server.poll(Instant(8), &mut out);
    assert_eq!(server.next_event(), Some(Event::Answered(QueryId(1), Ok(vec![(Key::from("a"), 42)]))));
}

#[test]
fn epoch_change_contains_record_of_committed_frames() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    close_and_read(&mut server, &mut out);
    // Position 9 of each slot: frame 9 in generation 1 without lane 3; position 10: frame 10 in generation 2.
    let lanes = |lane: usize| match (lane % RECORD_PLACES, lane / RECORD_PLACES) {
        (place @ 9..=10, 0) => place as i32,
        (place @ 9..=10, 1) => place as i32 - 8,
        (9, 2) => 1 << 3,
        _ => 0,
    };
    for request in out.take(FrameKind::MapPlaces) {
        let first = MapFrame::new_checked(&request[..]).expect("valid frame").map().first_lane();
        let fill = |lane| if first == 0 { lanes(lane) } else { 0 };
        server.handle(Instant(7), &answer(&request, FrameKind::MapRecord, 1, fill), &mut out);
    }
    server.renew(Instant(8), ElementTerms { number: 1, epoch: EPOCH + 1, grant: None, reason: "a test" });
    assert_eq!(server.take_epoch_change(member(10, 0)), None, "the terms are outdated");
    let renewal = server.take_epoch_change(member(10, 1)).expect("known member");
    assert_eq!((renewal.epoch, renewal.element, renewal.committed), (EPOCH + 1, false, 1));
    let [applied] = renewal.applied[..] else { panic!("{:?}", renewal.applied) };
    assert_eq!((applied.flow, applied.seq, applied.overflowed_lanes), (0, 9, 1 << 3));
}

#[test]
fn uncommitted_values_of_departed_caller_are_data_loss() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    // The caller may have added in the element, which is gone before a harvest.
    server.leave(Instant(2), 11);
    server.poll(Instant(3), &mut out);
    server.renew(Instant(4), ElementTerms { number: 1, epoch: EPOCH + 1, grant: None, reason: "a test" });
    server.query(Instant(5), QueryId(1), None);
    assert_eq!(server.next_event(), None, "the other caller may still repeat its additions");
    server.leave(Instant(6), 10);
    let lost = |event| matches!(event, Some(Event::Answered(_, Err(CallError::DataLoss { .. }))));
    assert!(lost(server.next_event()));
}
