//! Eviction: announcements and sums of the owner, and remapping at a caller.

use std::collections::VecDeque;
use std::time::Duration;

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{Event, EvictionPolicy, MapServer, Member, QueryId, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, FrameSink, Key, Modify, Operation, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, PairAnswer, PairStatus};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::{client_config, server_config};

#[derive(Default)]
struct Sent(VecDeque<Vec<u8>>);

impl FrameSink for Sent {
    fn send(&mut self, _to: Dest, frame: &[u8]) {
        self.0.push_back(frame.to_vec());
    }
}

impl Sent {
    fn kinds(&self) -> Vec<FrameKind> {
        self.0.iter().map(|frame| parsed(frame).kind()).collect()
    }

    /// Removes and returns the frames of a kind.
    fn take(&mut self, kind: FrameKind) -> Vec<Vec<u8>> {
        let (wanted, rest) = self.0.drain(..).partition(|frame| parsed(frame).kind() == kind);
        self.0 = rest;
        let wanted: VecDeque<_> = wanted;
        wanted.into()
    }
}

fn parsed(frame: &[u8]) -> MapFrame<&[u8]> {
    MapFrame::new_checked(frame).expect("valid frame")
}

/// Frame with source and destination swapped, and another kind and round.
fn answer(frame: &[u8], kind: FrameKind, round: u32, change: impl FnOnce(&mut MapFrame<&mut [u8]>)) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    let mut frame = MapFrame::new_checked(&mut bytes[..]).expect("valid frame");
    let base = frame.base().repr();
    let mut to = frame.base_mut();
    to.set_kind(kind as u8);
    to.set_round(round);
    to.set_dst(base.src);
    to.set_dst_incarnation(base.src_incarnation);
    change(&mut frame);
    bytes
}

/// Owner with one row of registers that changes the mapping as soon as possible.
struct Owner {
    server: MapServer,
    seq: u32,
}

impl Owner {
    fn new() -> Self {
        Self::with_margin(0)
    }

    /// Owner with this eviction margin.
    fn with_margin(margin: u32) -> Self {
        let mut server = MapServer::new(ServerConfig {
            grant: Some(RegisterGrant { rows: 1, width: 64 }),
            mapping: true,
            eviction: Some(EvictionPolicy { window: Duration::ZERO, uses_min: 1, margin }),
            ..server_config()
        });
        let member = Member { endpoint: 10, incarnation: 5, element: true, slot_base: 0, flows: 1, terms: 0 };
        server.join(Instant(0), member).expect("join succeeds");
        Self { server, seq: 0 }
    }

    /// Adds 1 to a whole key. Returns the mapping version of the answer, and the answer.
    fn add(&mut self, key: &str) -> (u32, PairAnswer) {
        self.seq += 1;
        let (key, seq) = (Key::from(key), self.seq);
        let payload = pairs::entry_len(key.as_bytes().len());
        let names = BaseRepr {
            gaid: 7,
            epoch: 1,
            src: 10,
            src_incarnation: 5,
            dst: 1,
            dst_incarnation: 5,
            ..BaseRepr::new(FrameKind::MapPairs)
        };
        let flags = MapFlags::BARE | MapFlags::ADD | MapFlags::GET;
        let map = MapRepr { flags, payload_len: payload as u16, ..MapRepr::default() };
        let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
        let mut frame = emit(&BaseRepr { flags: Flags::CROSS, seq, ..names }, &map, &mut bytes);
        pairs::put(frame.payload_mut(), key.as_bytes(), 1).expect("enough space");
        let mut out = Sent::default();
        self.server.handle(Instant(1), &bytes, &mut out);
        let answered = out.take(FrameKind::MapPairsAck).remove(0);
        let frame = parsed(&answered);
        (frame.base().round(), pairs::answers(frame.payload()).next().expect("an answer"))
    }

    /// Harvests a generation with the value `held` in the register of lane 0. Returns the frames that close it.
    fn harvest(&mut self, generation: u32, held: i32) -> Sent {
        let mut out = Sent::default();
        self.server.poll(Instant(2), &mut out);
        let mut closing = std::mem::take(&mut out);
        let close = closing.take(FrameKind::MapClose).remove(0);
        closing.0.push_back(close.clone());
        self.server.handle(Instant(2), &answer(&close, FrameKind::MapClosed, generation + 1, |_| ()), &mut out);
        self.server.poll(Instant(2), &mut out);
        for (asked, said) in [(FrameKind::MapRead, FrameKind::MapValues), (FrameKind::MapPlaces, FrameKind::MapRecord)]
        {
            for question in out.take(asked) {
                let fill = |frame: &mut MapFrame<&mut [u8]>| {
                    let lanes = frame.bitmap_and_lanes_mut().1;
                    lanes.fill(0);
                    if asked == FrameKind::MapRead {
                        lanes[..4].copy_from_slice(&held.to_be_bytes());
                    }
                };
                self.server.handle(Instant(2), &answer(&question, said, generation, fill), &mut out);
            }
        }
        self.server.poll(Instant(2), &mut out);
        for wipe in out.take(FrameKind::MapWipe) {
            self.server.handle(Instant(2), &answer(&wipe, FrameKind::MapWiped, generation, |_| ()), &mut out);
        }
        closing
    }
}

#[test]
fn evicted_register_is_committed_to_its_old_key() {
    let mut owner = Owner::new();
    for n in 0..32 {
        assert_eq!(owner.add(&format!("key-{n}")).1.status, PairStatus::Mapped);
    }
    assert_eq!(owner.add("late").1.status, PairStatus::Logical, "no register is left");

    let closing = owner.harvest(1, 0);
    assert_eq!(closing.kinds(), [FrameKind::MapClose], "the evicted key is not chosen yet");
    assert_eq!(owner.add("late"), (0, PairAnswer { status: PairStatus::Logical, lane: 0, row: 0, value: 2 }));

    let mut closing = owner.harvest(2, 40);
    assert_eq!(
        closing.kinds(),
        [FrameKind::MapWithdraw, FrameKind::MapClose],
        "callers get the announcement before the element"
    );
    assert_eq!(parsed(&closing.0[1]).map().index(), 1, "after the close the element refuses version 0");
    let withdraw = closing.take(FrameKind::MapWithdraw).remove(0);
    assert_eq!((parsed(&withdraw).base().round(), parsed(&withdraw).payload()), (1, &[0; 4][..]));

    let (version, late) = owner.add("late");
    assert_eq!((version, late.status, late.lane, late.row), (1, PairStatus::Mapped, 0, 0));
    assert_eq!(owner.add("key-0").1.status, PairStatus::Logical);

    // Generation 3 belongs to the new key.
    owner.server.query(Instant(2), QueryId(1), Some(vec!["key-0".into(), "late".into()]));
    owner.harvest(3, 500);
    let values = vec![("key-0".into(), 1 + 40 + 1), ("late".into(), 3 + 500)];
    assert_eq!(owner.server.next_event(), Some(Event::Answered(QueryId(1), Ok(values))));
}

#[test]
fn most_used_key_keeps_its_register() {
    let mut owner = Owner::with_margin(1);
    for n in 0..32 {
        assert_eq!(owner.add(&format!("key-{n}")).1.status, PairStatus::Mapped);
    }
    // Each key has twice the uses of the others, but the key in lane 0 has forty times more.
    for n in (0..32).chain(0..32) {
        assert_eq!(owner.add(&format!("late-{n}")).1.status, PairStatus::Logical);
    }
    owner.harvest(1, 40);
    let withdrawn = owner.harvest(2, 0).take(FrameKind::MapWithdraw).concat();
    let withdrawn = parsed(&withdrawn);
    let (registers, _) = withdrawn.payload().as_chunks();
    assert_eq!(registers.iter().map(|one| u32::from_be_bytes(*one)).collect::<Vec<_>>(), (1..32).collect::<Vec<_>>());
}

/// Caller with two cached keys, "a" in lane 0 and "b" in lane 1 of row 0 (mapping version 0), and a frame of both keys
/// that it sent to the element.
fn caller() -> (MapClient, Vec<u8>) {
    let mut client = MapClient::new(ClientConfig { element: true, rows: 1, ..client_config() });
    let mut out = Sent::default();
    add(&mut client, 1, &mut out);
    let whole = out.take(FrameKind::MapPairs).remove(0);
    let places = [0, 1].map(|lane| PairAnswer { status: PairStatus::Mapped, lane, row: 0, value: 1 });
    let repr = MapRepr { flags: MapFlags::BARE, payload_len: 28, ..MapRepr::default() };
    let base = parsed(&answer(&whole, FrameKind::MapPairsAck, 0, |_| ())).base().repr();
    let mut bytes = vec![0; frame_len(repr.flags, 0, 28)];
    let flags = Flags::CROSS | Flags::FROM_SERVER;
    let mut frame = emit(&BaseRepr { flags, src: 1, ..base }, &repr, &mut bytes);
    let rest = pairs::put_answer(frame.payload_mut(), &places[0]).expect("enough space");
    pairs::put_answer(rest, &places[1]).expect("enough space");
    client.handle(Instant(1), &bytes);
    add(&mut client, 2, &mut out);
    let mapped = out.take(FrameKind::MapData).remove(0);
    assert_eq!((parsed(&mapped).base().round(), parsed(&mapped).lane_count()), (0, 2));
    (client, mapped)
}

fn add(client: &mut MapClient, id: u64, out: &mut Sent) {
    let pairs = vec![("a".into(), 1), ("b".into(), 1)];
    client.start(
        Instant(1),
        CallId(id),
        Operation::Add { pairs, modify: Modify::default(), get: false, ack: Ack::Element },
    );
    client.poll(Instant(1), out);
}

/// Delivers the announcement that version 1 withdraws lane 0 of row 0.
fn withdraw(client: &mut MapClient, like: &[u8]) {
    let base = parsed(&answer(like, FrameKind::MapWithdraw, 1, |_| ())).base().repr();
    let map = MapRepr { flags: MapFlags::BARE, payload_len: 4, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, 4)];
    emit(&BaseRepr { flags: Flags::FROM_SERVER, src: 1, ..base }, &map, &mut bytes);
    client.handle(Instant(2), &bytes);
}

/// Delivers the element's refusal of a frame with version 1. Returns the frames that the caller sends then.
fn refuse(client: &mut MapClient, frame: &[u8]) -> Sent {
    let mut out = Sent::default();
    client.handle(Instant(3), &answer(frame, FrameKind::MapRefused, 1, |_| ()));
    client.poll(Instant(3), &mut out);
    out
}

#[test]
fn announced_caller_drops_only_withdrawn_registers() {
    let (mut client, mapped) = caller();
    withdraw(&mut client, &mapped);
    let mut out = refuse(&mut client, &mapped);
    let again = out.take(FrameKind::MapData).remove(0);
    assert_eq!(parsed(&again).base().round(), 1, "b, with the current mapping");
    assert_eq!((parsed(&again).marked(0), parsed(&again).marked(1)), (false, true));
    let whole = out.take(FrameKind::MapPairs).remove(0);
    let keys: Vec<_> = pairs::entries(parsed(&whole).payload()).map(|(key, _)| key.to_vec()).collect();
    assert_eq!(keys, [b"sa"]);
}

#[test]
fn unannounced_caller_drops_all_registers() {
    let (mut client, mapped) = caller();
    let out = refuse(&mut client, &mapped);
    assert_eq!(out.kinds(), [FrameKind::MapPairs]);
    assert_eq!(pairs::entries(parsed(&out.0[0]).payload()).count(), 2);
}

#[test]
fn resent_frame_keeps_its_mapping_version() {
    let (mut client, first) = caller();
    let mut out = Sent::default();
    add(&mut client, 3, &mut out);
    let second = out.take(FrameKind::MapData).remove(0);
    withdraw(&mut client, &first);
    refuse(&mut client, &second);
    // The element may have applied the first copy, and expects the same version in a repeat.
    let due = client.deadline().expect("first frame is unanswered");
    client.poll(due + Duration::from_secs(1), &mut out);
    let repeated = out
        .take(FrameKind::MapData)
        .into_iter()
        .find(|frame| parsed(frame).base().seq() == parsed(&first).base().seq());
    assert_eq!(repeated.map(|frame| parsed(&frame).base().round()), Some(0));
}
