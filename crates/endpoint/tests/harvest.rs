//! A harvest, question by question, with callers that come and go.

use std::collections::VecDeque;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::{Event, KEY_MEMORY, MapServer, Member, QueryId, ServerConfig, Terms};
use pathcall_endpoint::map::{CallError, ClearPolicy, Dest, Grant, Key, Outbox};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr, RECORD_PLACES, pairs};

const EPOCH: u32 = 3;

#[derive(Default)]
struct Sent(VecDeque<(Dest, Vec<u8>)>);

impl Outbox for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push_back((to, frame.to_vec()));
    }
}

impl Sent {
    /// Frames of a kind, taken out.
    fn take(&mut self, kind: Kind) -> Vec<Vec<u8>> {
        let (wanted, rest) =
            self.0.drain(..).partition(|(_, f)| MapFrame::new_checked(&f[..]).expect("ours").kind() == kind);
        self.0 = rest;
        let wanted: VecDeque<(Dest, Vec<u8>)> = wanted;
        wanted.into_iter().map(|(_, frame)| frame).collect()
    }
}

fn server() -> MapServer {
    let mut server = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: EPOCH,
        endpoint: 1,
        incarnation: 5,
        grant: Some(Grant { rows: 4, width: 64 }),
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
    for endpoint in [10, 11] {
        server.join(Instant(0), member(endpoint, 0)).expect("room");
    }
    server
}

fn member(endpoint: u32, terms: u64) -> Member {
    Member { endpoint, incarnation: 5, element: true, slot_base: endpoint - 10, flows: 1, terms }
}

/// The first addition to a key travels whole, and gives it a register.
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
        ..BaseRepr::new(Kind::MapPairs)
    };
    let map = MapRepr { flags: MapFlags::BARE | MapFlags::ADD, payload_len: payload as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
    pairs::put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), value).expect("fits");
    server.handle(Instant(1), &bytes, &mut Sent::default());
}

/// The element's answer to a question, its lanes filled by `fill`.
fn answer(question: &[u8], kind: Kind, round: u32, fill: impl Fn(usize) -> i32) -> Vec<u8> {
    let mut bytes = question.to_vec();
    let mut frame = MapFrame::new_checked(&mut bytes[..]).expect("ours");
    frame.base_mut().set_kind(kind as u8);
    frame.base_mut().set_round(round);
    for (i, lane) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).enumerate() {
        lane.copy_from_slice(&fill(i).to_be_bytes());
    }
    bytes
}

/// Closes generation 1 and answers for its only row: 40 in the first register.
fn closed_and_read(server: &mut MapServer, out: &mut Sent) {
    server.poll(Instant(3), out);
    let close = out.take(Kind::MapClose).remove(0);
    server.handle(Instant(4), &answer(&close, Kind::MapClosed, 2, |_| 0), out);
    server.poll(Instant(5), out);
    for row in out.take(Kind::MapRead) {
        server.handle(Instant(6), &answer(&row, Kind::MapValues, 1, |lane| if lane == 0 { 40 } else { 0 }), out);
    }
}

#[test]
fn a_query_sees_base_and_register_once_the_record_is_there_too() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    closed_and_read(&mut server, &mut out);
    assert_eq!(server.next_event(), None, "registers without the record are not committed");
    let places = out.take(Kind::MapPlaces);
    assert_eq!(places.len(), 8, "two callers, one slot each, four frames a slot");
    for question in &places {
        server.handle(Instant(7), &answer(question, Kind::MapRecord, 1, |_| 0), &mut out);
    }
    assert_eq!(server.next_event(), Some(Event::Answered(QueryId(1), Ok(vec![(Key::from("a"), 42)]))));
    assert_eq!(out.take(Kind::MapCommit).len(), 1);
}

#[test]
fn a_caller_that_leaves_takes_its_slots_out_of_the_harvest() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    closed_and_read(&mut server, &mut out);
    // Its slots go with it: the element does not answer for them any more.
    for question in out.take(Kind::MapPlaces) {
        let of = MapFrame::new_checked(&question[..]).expect("ours").map().threshold();
        if of == 10 {
            server.handle(Instant(7), &answer(&question, Kind::MapRecord, 1, |_| 0), &mut out);
        }
    }
    assert_eq!(server.next_event(), None);
    server.leave(Instant(8), 11);
    server.poll(Instant(8), &mut out);
    assert_eq!(server.next_event(), Some(Event::Answered(QueryId(1), Ok(vec![(Key::from("a"), 42)]))));
}

#[test]
fn the_record_of_committed_frames_is_what_a_caller_is_told() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    server.query(Instant(2), QueryId(1), None);
    closed_and_read(&mut server, &mut out);
    // Place 9 of every slot: frame 9 in generation 1 but for lane 3; place 10: frame 10 in generation 2.
    let lanes = |lane: usize| match (lane % RECORD_PLACES, lane / RECORD_PLACES) {
        (place @ 9..=10, 0) => place as i32,
        (place @ 9..=10, 1) => place as i32 - 8,
        (9, 2) => 1 << 3,
        _ => 0,
    };
    for question in out.take(Kind::MapPlaces) {
        let first = MapFrame::new_checked(&question[..]).expect("ours").map().first_lane();
        let fill = |lane| if first == 0 { lanes(lane) } else { 0 };
        server.handle(Instant(7), &answer(&question, Kind::MapRecord, 1, fill), &mut out);
    }
    server.renew(Instant(8), Terms { number: 1, epoch: EPOCH + 1, grant: None, reason: "a test" });
    assert_eq!(server.rejoin(member(10, 0)), None, "those terms are over");
    let renewal = server.rejoin(member(10, 1)).expect("a member");
    assert_eq!((renewal.epoch, renewal.element, renewal.committed), (EPOCH + 1, false, 1));
    let [applied] = renewal.applied[..] else { panic!("{:?}", renewal.applied) };
    assert_eq!((applied.flow, applied.seq, applied.left_out), (0, 9, 1 << 3));
}

#[test]
fn what_a_caller_took_with_it_is_data_loss_and_no_silent_zero() {
    let (mut server, mut out) = (server(), Sent::default());
    add(&mut server, 10, "a", 2);
    // It may have added in the element, and the element is gone before that was harvested.
    server.leave(Instant(2), 11);
    server.poll(Instant(3), &mut out);
    server.renew(Instant(4), Terms { number: 1, epoch: EPOCH + 1, grant: None, reason: "a test" });
    server.query(Instant(5), QueryId(1), None);
    assert_eq!(server.next_event(), None, "the other caller may still repeat");
    server.leave(Instant(6), 10);
    let lost = |event| matches!(event, Some(Event::Answered(_, Err(CallError::DataLoss { .. }))));
    assert!(lost(server.next_event()));
}
