//! Tests of authenticated frames with invalid content: no panic, no wrong sum.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::server::{MapServer, Member, QueryId, ServerConfig};
use pathcall_endpoint::map::{Ack, Dest, FrameSink, Key, Modify, Operation, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, Instant, MapFlags, MapRepr};
use proptest::prelude::*;

use crate::config::{client_config, server_config};

#[derive(Default)]
struct Sent(Vec<(Dest, Vec<u8>)>);

impl FrameSink for Sent {
    fn send(&mut self, to: Dest, frame: &[u8]) {
        self.0.push((to, frame.to_vec()));
    }
}

fn client() -> MapClient {
    MapClient::new(ClientConfig { flows: 2, element: true, width: 256, ..client_config() })
}

fn server(threshold: u32) -> MapServer {
    let grant = Some(RegisterGrant { rows: 4, width: if threshold > 0 { 256 } else { 64 } });
    let mut server = MapServer::new(ServerConfig {
        grant,
        threshold,
        mapping: true,
        width: if threshold > 0 { 256 } else { 64 },
        ..server_config()
    });
    for endpoint in [10, 11] {
        server
            .join(Instant(0), Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 1, terms: 0 })
            .expect("room");
    }
    server
}

/// Frames that pass every identity check, with arbitrary content.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let header = (1u8..=10, any::<u16>(), prop::sample::select(vec![1u32, 10, 11]), 0u32..4, 0u32..8, 0u32..4);
    let map = (0u8..=10, 0u8..=2, any::<u16>(), 0u16..260, prop::sample::select(vec![0u16, 128, 3]), 0u32..6);
    let rest = (0u32..4, 0u16..70, prop::sample::select(vec![0u32, 1, 9]), prop::collection::vec(any::<u8>(), 0..64));
    (header, map, rest).prop_map(|(header, map, rest)| {
        let (kind, flags, peer, slot, seq, round) = header;
        let (op, to, map_flags, lanes, first_lane, index) = map;
        let (threshold, worker, tag, payload) = rest;
        let to_server = peer != 1 || kind == 7;
        let base = BaseRepr {
            flags: flags & !Flags::TOKEN,
            gaid: 7,
            epoch: 1,
            src: peer,
            src_incarnation: 5,
            dst: if to_server { 1 } else { 10 },
            dst_incarnation: 5,
            slot,
            seq,
            round,
            ..BaseRepr::new(FrameKind::parse(kind).expect("in range"))
        };
        let map = MapRepr {
            op,
            to,
            flags: map_flags,
            lanes,
            first_lane,
            para: 3,
            index,
            threshold,
            worker,
            payload_len: payload.len() as u16,
            tag,
        };
        let mut bytes = vec![0; frame_len(map.flags, lanes.into(), payload.len())];
        emit(&base, &map, &mut bytes).payload_mut().copy_from_slice(&payload);
        bytes
    })
}

proptest! {
    #[test]
    fn arbitrary_frames_cause_no_panic(frames in prop::collection::vec(frame(), 1..60)) {
        let mut out = Sent::default();
        let mut now = Instant(0);
        let (mut client, mut sums, mut keyed) = (client(), server(2), server(0));
        let modify = Modify::default();
        client.start(now, CallId(1), Operation::Sum { lanes: vec![1; 700].into(), modify, threshold: 2, to: ForwardTarget::All });
        let pairs = (0..90).map(|i| (Key::from(i), i)).collect();
        client.start(now, CallId(2), Operation::Add { pairs, modify, get: false, ack: Ack::Element });
        keyed.query(now, QueryId(1), None);
        for bytes in frames {
            now = Instant(now.0 + 3_000_000);
            client.handle(now, &bytes);
            client.poll(now, &mut out);
            for server in [&mut sums, &mut keyed] {
                server.handle(now, &bytes, &mut out);
                server.poll(now, &mut out);
            }
            prop_assert!(out.0.len() < 100_000);
        }
    }

    #[test]
    fn random_bytes_are_ignored(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut out = Sent::default();
        let (mut client, mut server) = (client(), server(2));
        client.handle(Instant(1), &noise);
        server.handle(Instant(1), &noise, &mut out);
        prop_assert!(out.0.is_empty());
        prop_assert_eq!((client.stats().frames_ignored, server.stats().frames_ignored), (1, 1));
    }
}

#[test]
fn foreign_frames_change_nothing() {
    let wrong = [
        BaseRepr { gaid: 8, ..own_base() },
        BaseRepr { epoch: 2, ..own_base() },
        BaseRepr { src_incarnation: 6, ..own_base() },
        BaseRepr { src: 99, ..own_base() },
        BaseRepr { dst: 2, ..own_base() },
        BaseRepr { dst_incarnation: 6, ..own_base() },
    ];
    for base in wrong {
        let (mut server, mut out) = (server(2), Sent::default());
        let map = MapRepr { flags: MapFlags::LINEAR | MapFlags::ROUND, lanes: 4, tag: 1, ..MapRepr::default() };
        let mut bytes = vec![0; frame_len(map.flags, 4, 0)];
        emit(&base, &map, &mut bytes);
        server.handle(Instant(1), &bytes, &mut out);
        assert_eq!((server.stats().frames_ignored, out.0.len()), (1, 0), "{base:?}");
    }
    let (mut server, mut out) = (server(2), Sent::default());
    let map = MapRepr { flags: MapFlags::LINEAR | MapFlags::ROUND, lanes: 4, tag: 1, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 4, 0)];
    emit(&own_base(), &map, &mut bytes);
    server.handle(Instant(1), &bytes, &mut out);
    assert_eq!(server.stats().software_adds, 4, "the same frame with the right names counts");
}

fn own_base() -> BaseRepr {
    BaseRepr {
        gaid: 7,
        epoch: 1,
        src: 10,
        src_incarnation: 5,
        dst: 1,
        dst_incarnation: 5,
        seq: 1,
        round: 1,
        ..BaseRepr::new(FrameKind::MapData)
    }
}
