//! Frames of a caller that has joined.

use pathcall_endpoint::map::Key;
use pathcall_proto::v1::JoinRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_test_support::service::until;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Kind, MapFlags, MapRepr, pairs};

use super::{ALL, By, Guarded, Rules, with};

#[tokio::test]
async fn frames_of_a_caller_ask_for_no_more_than_it_is_admitted_for() {
    let rules = Rules::new(&[("voter", &["/rpctest.Locks/Vote"]), ("good", &[ALL])]);
    let guarded = Guarded::start(By::Inner, rules, |builder| builder).await;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let method = PATHCALL.methods.iter().find(|method| method.path == "/rpctest.Locks/Vote").unwrap();
    let request = JoinRequest {
        application: method.app.into(),
        filter_digest: method.digest,
        udp_port: socket.local_addr().unwrap().port().into(),
        incarnation: 5,
        flows: 1,
        method: method.path.into(),
    };
    let mut peer = PeerClient::connect(guarded.url.clone()).await.unwrap();
    let mut joined = peer.join(with("voter", request)).await.unwrap().into_inner();
    let grant = joined.message().await.unwrap().unwrap();
    assert_eq!(grant.admitted, [method.path]);
    let stats = || {
        let stats = guarded.server.stats().into_iter().find(|stats| stats.name == method.app).unwrap().map;
        (stats.frames_refused, stats.keys)
    };
    let server = ("127.0.0.1", u16::try_from(grant.server_udp_port).unwrap());
    let send = |flags: u16, seq: u32| {
        let base = BaseRepr {
            flags: Flags::CROSS,
            gaid: grant.gaid,
            epoch: grant.epoch,
            src: grant.endpoint,
            src_incarnation: 5,
            dst: grant.server,
            dst_incarnation: grant.server_incarnation,
            seq,
            ..BaseRepr::new(Kind::MapPairs)
        };
        let key = Key::from("a ballot");
        let payload = pairs::entry_len(key.as_bytes().len());
        let map = MapRepr {
            flags: flags | MapFlags::BARE,
            threshold: 2,
            payload_len: u16::try_from(payload).unwrap(),
            ..MapRepr::default()
        };
        let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
        pairs::put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), 1).unwrap();
        socket.send_to(&bytes, server).unwrap();
    };
    // It may vote, and not clear what others have voted, nor read, nor add.
    send(MapFlags::CLEAR, 1);
    until(|| stats() == (1, 0)).await;
    send(MapFlags::ADD, 2);
    until(|| stats() == (2, 0)).await;
    send(0, 3);
    until(|| stats() == (3, 0)).await;
    send(MapFlags::COUNT, 4);
    until(|| stats() == (3, 1)).await;
}
