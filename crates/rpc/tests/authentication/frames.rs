//! Tests of hand-written frames of a caller that has joined.

use std::time::{Duration, Instant};

use pathcall_endpoint::map::Key;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{AdmitRequest, JoinGrant, JoinRequest};
use pathcall_rpc::layer::builder::Builder;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{counts, join, until};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapFrame, MapRepr, pairs};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tonic::Streaming;

use super::{ALL, CheckLocation, Guarded, Rules, with};

/// Caller that writes its frames by hand.
struct FrameForger {
    socket: UdpSocket,
    grant: JoinGrant,
    _joined: Streaming<JoinGrant>,
}

impl FrameForger {
    async fn join(guarded: &Guarded, token: &'static str, path: &str) -> Self {
        Self::join_for(guarded, token, &[path]).await
    }

    /// Joins with the first of these methods and gets admission for all of them.
    async fn join_for(guarded: &Guarded, token: &'static str, paths: &[&str]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let request = JoinRequest { udp_port: socket.local_addr().unwrap().port().into(), ..join(paths[0]) };
        let mut peer = PeerClient::connect(guarded.url.clone()).await.unwrap();
        let mut joined = peer.join(with(token, request)).await.unwrap().into_inner();
        let grant = joined.message().await.unwrap().unwrap();
        assert_eq!(grant.admitted_methods, paths);
        Self { socket, grant, _joined: joined }
    }

    async fn send(&self, flags: u16, seq: u32, key: &str) {
        let grant = &self.grant;
        let base = BaseRepr {
            flags: Flags::CROSS,
            gaid: grant.gaid,
            epoch: grant.epoch,
            src: grant.endpoint,
            src_incarnation: 5,
            dst: grant.server,
            dst_incarnation: grant.server_incarnation,
            seq,
            ..BaseRepr::new(FrameKind::MapPairs)
        };
        let key = Key::from(key);
        let payload = pairs::entry_len(key.as_bytes().len());
        let map = MapRepr {
            flags: flags | MapFlags::BARE,
            threshold: 2,
            payload_len: u16::try_from(payload).unwrap(),
            ..MapRepr::default()
        };
        let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
        pairs::put(emit(&base, &map, &mut bytes).payload_mut(), key.as_bytes(), 1).unwrap();
        let server = ("127.0.0.1", u16::try_from(grant.server_udp_port).unwrap());
        self.socket.send_to(&bytes, server).await.unwrap();
    }

    /// Values of the next answer.
    async fn values(&self) -> Vec<i64> {
        let mut bytes = [0; 2048];
        loop {
            let len = timeout(HANG, self.socket.recv(&mut bytes)).await.expect("an answer").unwrap();
            let frame = MapFrame::new_checked(&bytes[..len]).expect("a frame");
            if frame.kind() == FrameKind::MapPairsAck {
                return pairs::answers(frame.payload()).map(|answer| answer.value).collect();
            }
        }
    }
}

#[tokio::test]
async fn frames_beyond_admission_are_refused() {
    let rules = Rules::new(&[("voter", &["/rpctest.Locks/Vote"]), ("good", &[ALL])]);
    let guarded = Guarded::start(CheckLocation::Inner, rules, |builder| builder).await;
    let voter = FrameForger::join(&guarded, "voter", "/rpctest.Locks/Vote").await;
    let stats = || {
        let stats = guarded.server.stats().into_iter().find(|stats| stats.name == "T-VOTE").unwrap().map;
        (stats.frames_refused, stats.keys)
    };
    // The caller may vote, but not clear votes, read or add.
    for (seq, flags, expected) in
        [(1, MapFlags::CLEAR, (1, 0)), (2, MapFlags::ADD, (2, 0)), (3, 0, (3, 0)), (4, MapFlags::COUNT, (3, 1))]
    {
        voter.send(flags, seq, "a ballot").await;
        until(|| stats() == expected).await;
    }
}

#[tokio::test]
async fn add_permission_returns_no_value() {
    let rules = Rules::new(&[("adder", &["/rpctest.Words/Reduce"]), ("good", &[ALL])]);
    let guarded = Guarded::start(CheckLocation::Inner, rules, |builder| builder).await;
    WordsClient::new(guarded.channel().await).reduce(with("good", counts(&[("secret", 41)], ""))).await.unwrap();
    let adder = FrameForger::join(&guarded, "adder", "/rpctest.Words/Reduce").await;
    adder.send(MapFlags::ADD, 1, "secret").await;
    assert_eq!(adder.values().await, [0]);
    assert_eq!(guarded.value("secret").await, 42);
}

#[tokio::test]
async fn frames_after_expired_admission_are_refused() {
    const ADMITTED_FOR: Duration = Duration::from_secs(1);
    let [adds, reads] = ["/rpctest.Words/Reduce", "/rpctest.Words/Query"];
    let often = |builder: Builder| builder.admitted_for(ADMITTED_FOR);
    let guarded = Guarded::start(CheckLocation::Inner, Rules::new(&[("both", &[adds, reads])]), often).await;
    let mut peer = PeerClient::connect(guarded.url.clone()).await.unwrap();
    let stats = || guarded.server.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    let refused = async {
        // On a stalled machine both admissions expire at once, and the membership ends: then repeat.
        while stats().map.frames_refused == 0 {
            let caller = FrameForger::join_for(&guarded, "both", &[adds, reads]).await;
            let joined = Instant::now();
            while joined.elapsed() < ADMITTED_FOR {
                // The caller renews only the admission to read.
                let session = caller.grant.session.clone();
                let request = AdmitRequest { application: "T-WORDS".into(), session, methods: vec![reads.into()] };
                peer.admit(with("both", request)).await.unwrap();
            }
            let mut seq = 0;
            while stats().map.frames_refused == 0 && stats().members > 0 {
                let before = stats().map.frames_received;
                seq += 1;
                caller.send(MapFlags::ADD, seq, "a").await;
                until(|| stats().map.frames_received > before || stats().members == 0).await;
            }
        }
    };
    timeout(HANG, refused).await.expect("it may add for as long as it may read");
}
