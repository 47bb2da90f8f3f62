//! Tests of frames through an element on real sockets: processed, forwarded, copied and dropped.

use super::common::{BANK, GAID, Host, SERVER, WIDTH, fixture, keyed, linear, values};
use pathcall_proto::v1::{EndpointEntry, SetEndpointsRequest};
use pathcall_wire::map::frame_len;
use pathcall_wire::{Base, Flags, FrameKind, MapFlags, MapFrame, MapRepr};

const WORKERS: [u32; 2] = [11, 12];

#[tokio::test]
async fn repeated_keyed_add_is_applied_once() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let add = |seq, value| {
        let flags = MapFlags::ADD | MapFlags::GET;
        keyed(caller.base(FrameKind::MapData, &server, seq), flags, &[(3, value), (5, value)])
    };
    for (seq, sent, sum) in [(1, 20, 20), (1, 20, 20), (2, 22, 42), (2, 22, 42)] {
        caller.send(&add(seq, sent)).await;
        let ack = caller.receive().await;
        assert_eq!((ack.kind(), ack.base().seq()), (FrameKind::MapAck, seq));
        assert_eq!((ack.base().src(), ack.base().dst()), (SERVER, caller.endpoint));
        assert_eq!([ack.keyed(0), ack.keyed(1)], [Some((3, sum)), Some((5, sum))]);
    }
    assert_eq!((fixture.row(3).await[BANK], fixture.row(5).await[BANK + 1]), (42, 42));
    assert_eq!(fixture.counters().await.applications[&GAID].counters["repeats"], 2);
}

#[tokio::test]
async fn round_of_two_workers_is_summed_and_multicast() {
    let mut fixture = fixture().await;
    let server = fixture.host(SERVER).await;
    let workers = [fixture.host(WORKERS[0]).await, fixture.host(WORKERS[1]).await];
    fixture.set_group(&WORKERS).await;
    let contribution = |worker: usize| {
        let flags = MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND;
        let map = MapRepr { flags, index: 2, threshold: 2, worker: worker as u16, tag: 99, ..MapRepr::default() };
        let mut base = workers[worker].base(FrameKind::MapData, &server, 1);
        base.round = 1;
        let lanes: Vec<i32> = (0..WIDTH as i32).map(|lane| lane * (worker as i32 + 1)).collect();
        linear(base, map, &lanes)
    };
    let sums: Vec<i64> = (0..WIDTH as i64).map(|lane| lane * 3).collect();

    workers[0].send(&contribution(0)).await;
    workers[0].send(&contribution(0)).await;
    assert_eq!(workers[0].receive().await.kind(), FrameKind::MapHeld, "the answer to the repeat");
    workers[1].send(&contribution(1)).await;
    let sum = server.receive().await;
    assert!(sum.map().has(MapFlags::REACHED));
    assert_eq!((sum.kind(), values(&sum)), (FrameKind::MapData, sums.clone()));

    // The server reads the row and sends the result to all workers; the element clears the row as the result passes.
    let map = MapRepr { flags: MapFlags::GET, index: 2, ..MapRepr::default() };
    server.send(&linear(server.base(FrameKind::MapRead, &server, 0), map, &[0; WIDTH])).await;
    let read = server.receive().await;
    assert_eq!((read.kind(), values(&read)), (FrameKind::MapValues, sums.clone()));

    let flags = MapFlags::CLEAR | MapFlags::ROUND;
    let map = MapRepr { flags, index: 2, ..MapRepr::default() };
    let mut base = server.base(FrameKind::MapResult, &server, 0);
    base.flags |= Flags::MCAST;
    (base.round, base.dst, base.dst_incarnation) = (1, 0, 0);
    let lanes: Vec<i32> = sums.iter().map(|&sum| sum as i32).collect();
    server.send(&linear(base, map, &lanes)).await;
    for worker in &workers {
        let result = worker.receive().await;
        assert_eq!((result.kind(), result.base().round()), (FrameKind::MapResult, 1));
        assert_eq!((result.base().dst(), result.base().dst_incarnation()), (worker.endpoint, worker.incarnation));
        assert_eq!(values(&result), sums);
    }
    assert_eq!(fixture.row(2).await, [0; WIDTH]);
}

#[tokio::test]
async fn frame_not_admitted_is_forwarded_unchanged() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let mut base = caller.base(FrameKind::MapData, &server, 1);
    base.epoch += 1;
    let sent = keyed(base, MapFlags::ADD, &[(3, 5)]);
    caller.send(&sent).await;
    let got = server.receive().await;
    assert!(got.base().has(Flags::NOT_ADMITTED));
    assert_eq!(got.keyed(0), Some((3, 5)));
    assert_eq!(fixture.row(3).await, [0; WIDTH]);
    assert_eq!(fixture.counters().await.applications[&GAID].counters["not_admitted"], 1);
}

#[tokio::test]
async fn frame_marked_cross_is_forwarded_unchanged() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let mut base = caller.base(FrameKind::MapData, &server, 1);
    base.flags |= Flags::CROSS;
    let sent = keyed(base, MapFlags::ADD, &[(3, 5)]);
    caller.send(&sent).await;
    let mut bytes = vec![0; sent.len() + 1];
    let len = server.socket.recv(&mut bytes).await.unwrap();
    assert_eq!(bytes[..len], sent);
    assert_eq!(fixture.row(3).await, [0; WIDTH]);
}

#[tokio::test]
async fn random_datagrams_are_dropped_and_counted() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let stranger = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    let mut junk = 0;
    for seq in 1..=200 {
        for _ in 0..3 {
            // Bytes of all lengths; every other datagram begins like a frame and becomes invalid later.
            let mut bytes: Vec<u8> = (0..noise % 700).map(|_| step(&mut noise) as u8).collect();
            if step(&mut noise).is_multiple_of(2) {
                let valid = keyed(caller.base(FrameKind::MapData, &server, seq), MapFlags::ADD, &[(0, 1)]);
                let keep = bytes.len().min(Base::LEN);
                bytes[..keep].copy_from_slice(&valid[..keep]);
            }
            stranger.send_to(&bytes, fixture.element.data_addr()).await.unwrap();
            junk += 1;
        }
        let flags = MapFlags::ADD | MapFlags::GET;
        caller.send(&keyed(caller.base(FrameKind::MapData, &server, seq), flags, &[(1, 1)])).await;
        let ack = caller.receive().await;
        assert_eq!(ack.keyed(0), Some((1, seq as i32)));
    }
    let counters = fixture.counters().await.element;
    assert_eq!(counters["frames_in"], 200 + junk);
    assert_eq!(counters["drop_malformed"], junk);
}

#[tokio::test]
async fn burst_is_answered_in_order() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    const BURST: u32 = 200;
    for seq in 1..=BURST {
        let flags = MapFlags::ADD | MapFlags::GET;
        caller.send(&keyed(caller.base(FrameKind::MapData, &server, seq), flags, &[(1, 2); 1])).await;
    }
    for seq in 1..=BURST {
        let ack = caller.receive().await;
        assert_eq!((ack.base().seq(), ack.keyed(0)), (seq, Some((1, 2 * seq as i32))));
    }
}

#[tokio::test]
async fn jumbo_frame_is_forwarded_to_server() {
    let mut fixture = fixture().await;
    let (server, caller): (Host, Host) = (fixture.host(SERVER).await, fixture.host(11).await);
    let lanes: Vec<i32> = (0..2000).collect();
    let sent = linear(caller.base(FrameKind::MapData, &server, 1), MapRepr::default(), &lanes);
    assert_eq!(sent.len(), frame_len(MapFlags::LINEAR, 2000, 0));
    caller.send(&sent).await;
    let got: MapFrame<Vec<u8>> = server.receive().await;
    assert!(got.map().has(MapFlags::DIVERTED));
    assert_eq!(values(&got).len(), 2000);
}

fn step(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[tokio::test]
async fn endpoint_at_element_address_causes_no_loop() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let (boot_id, data_address) = (fixture.element.boot_id(), fixture.element.data_addr().to_string());
    let own = EndpointEntry { endpoint: 12, incarnation: 7, data_address, gaid: GAID, slot_base: 0, slots: 0 };
    fixture.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![own] }).await.unwrap();
    let add = |seq| keyed(caller.base(FrameKind::MapData, &server, seq), MapFlags::ADD, &[(3, 1)]);
    for seq in 1..=20 {
        let mut base = caller.base(FrameKind::MapData, &server, 0);
        // One frame is admitted and forwarded; the other is not admitted and forwarded.
        (base.dst, base.dst_incarnation, base.flags) = (12, 7, Flags::CROSS);
        base.src_incarnation += seq % 2;
        caller.send(&keyed(base, MapFlags::ADD, &[(3, 1)])).await;
        caller.send(&add(seq)).await;
        assert_eq!(caller.receive().await.kind(), FrameKind::MapAck);
    }
    assert_eq!(fixture.counters().await.element["frames_in"], 40, "each once");
}
