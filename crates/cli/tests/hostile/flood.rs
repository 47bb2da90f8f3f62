//! Resource exhaustion: joins, streams, connections, incomplete and reset requests, overlong messages. Honest callers
//! are served meanwhile, and the resources are free again afterwards.

use std::net::SocketAddr;
use std::time::Duration;

use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{CarryFramesRequest, FollowPoolRequest, JoinRequest, NumberKeysRequest};
use pathcall_test_support::service::{FOR_EVER, join, names, note};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use rand::RngExt;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::attack::{Attack, Hostile};
use super::network::{INSIDER, OUTSIDER, by};
use super::raw_http2::{CONTINUATION, DATA, END_HEADERS, HEADERS, RST_STREAM, Raw, SETTINGS, call, frame};

/// Joins that are dropped, and joins that are held.
const DROPPED: usize = 60;
const HELD: usize = 200;
/// Streams of one connection, the limit of servers.
const OF_ONE: usize = 100;
/// Concurrent connections to each port.
const CONNECTIONS: usize = 64;
/// Requests that are reset at once.
const RESETS: u32 = 2000;
/// Continuation frames of one header block.
const CONTINUATIONS: usize = 2000;
/// Wait for a handler that never answers.
const SOON: Duration = Duration::from_millis(20);
/// Members that the hostile client always has.
const OWN: usize = 3;

const VOTE: &str = "/rpctest.Locks/Vote";
const ELECT: &str = "/rpctest.Locks/Elect";

impl Hostile<'_> {
    /// Join request as from another process.
    fn another_join(&mut self) -> JoinRequest {
        let path = [VOTE, ELECT][self.random.random_range(0..2)];
        let udp_port = [0, 9, 10][self.random.random_range(0..3)];
        JoinRequest {
            udp_port,
            incarnation: self.random.random(),
            flows: self.random.random_range(0..100),
            ..join(path)
        }
    }

    /// Waits until only the earlier members are left.
    async fn until_left(&self) {
        let members = || self.network.members();
        super::until("callers that left are still members", || members() == self.honest.members() + OWN).await;
    }

    pub(super) async fn joins_dropped(&mut self) {
        for turn in 0..DROPPED {
            let request = by(INSIDER, self.another_join());
            let mut peer = self.peer.clone();
            let outcome = match turn % 3 {
                // Dropped before or right after the answer.
                0 => timeout(Duration::ZERO, peer.join(request)).await.is_ok(),
                1 => timeout(Duration::from_micros(300), peer.join(request)).await.is_ok(),
                _ => peer.join(request).await.is_ok(),
            };
            self.tally.count(Attack::JoinsDropped, if outcome { "admitted" } else { "gone before" });
        }
        self.until_left().await;
    }

    pub(super) async fn joins_held(&mut self) {
        let mut held = Vec::new();
        for nth in 0..HELD {
            if nth % OF_ONE == 0 {
                held.push((PeerClient::new(self.network.connection()), Vec::new()));
            }
            let request = by(INSIDER, self.another_join());
            let (peer, streams) = held.last_mut().expect("pushed");
            match peer.join(request).await {
                Ok(joined) => streams.push(joined.into_inner()),
                Err(status) => self.tally.count(Attack::JoinsHeld, format!("{:?}", status.code())),
            }
        }
        self.honest.served_again().await;
        drop(held);
        self.until_left().await;
        self.tally.count(Attack::JoinsHeld, "free again");
    }

    pub(super) async fn streams_held(&mut self) {
        let mut held = JoinSet::new();
        for nth in 0..OF_ONE {
            let mut peer = PeerClient::new(self.network.connection());
            if nth % 10 == 0 {
                // One connection for many streams.
                self.peer = peer.clone();
            }
            peer.clone_from(&self.peer);
            let mut watch = TrainingClient::new(self.network.connection());
            let follow = FollowPoolRequest {
                udp_port: 9,
                incarnation: self.random.random(),
                method: "/rpctest.Store/Tried".into(),
                rack: String::new(),
            };
            held.spawn(async move {
                match nth % 3 {
                    0 => {
                        let stream = tokio_stream::pending::<CarryFramesRequest>();
                        let _ = peer.carry_frames(by(OUTSIDER, stream)).await;
                    }
                    1 => {
                        let followed = peer.follow_pool(by(INSIDER, follow)).await;
                        let Ok(mut views) = followed.map(tonic::Response::into_inner) else { return };
                        while let Ok(Some(_)) = views.message().await {}
                    }
                    _ => {
                        let watched = watch.watch(by(INSIDER, note(FOR_EVER))).await;
                        let Ok(mut notes) = watched.map(tonic::Response::into_inner) else { return };
                        while let Ok(Some(_)) = notes.message().await {}
                    }
                }
            });
        }
        self.honest.served_again().await;
        held.shutdown().await;
        self.until_followers_left().await;
        self.tally.count(Attack::StreamsHeld, "free again");
    }

    /// Waits until the pool has only its honest callers.
    async fn until_followers_left(&self) {
        let gone = async {
            while self
                .network
                .status()
                .await
                .pools
                .iter()
                .any(|pool| pool.callers as usize > self.honest.stats().count())
            {
                tokio::time::sleep(SOON).await;
            }
        };
        timeout(pathcall_test_support::HANG, gone).await.expect("callers that left are still in the pool");
    }

    /// TCP ports of the network.
    fn ports(&self) -> [SocketAddr; 3] {
        [self.network.server, self.network.controller.addr(), self.network.element.control_addr()]
    }

    pub(super) async fn connections_silent(&mut self) {
        let mut held = Vec::new();
        for to in self.ports() {
            for nth in 0..CONNECTIONS {
                let mut raw = Raw::connect(to).await;
                // No bytes, or a partial preface.
                raw.write(&b"PRI * HTTP/2.0\r\n\r\n"[..nth % 18]).await;
                held.push(raw);
            }
        }
        self.honest.served_again().await;
        self.answers().await;
        drop(held);
        self.tally.count(Attack::ConnectionsSilent, "others are served");
    }

    /// Checks that controller and element answer.
    pub(super) async fn answers(&self) {
        self.network.status().await;
        self.network.element_counters().await;
    }

    pub(super) async fn requests_half(&mut self) {
        let mut held = Vec::new();
        for to in self.ports() {
            for nth in 0..CONNECTIONS {
                let mut raw = Raw::begin(to).await;
                let block = call(
                    ["/pathcall.v1.Peer/Join", "/rpctest.Words/Reduce", "/pathcall.v1.Controller/Status"][nth % 3],
                );
                let bytes = match nth % 4 {
                    // An incomplete header block, or a message that is missing or incomplete.
                    0 => frame(HEADERS, 0, 1, &block),
                    1 => frame(HEADERS, END_HEADERS, 1, &block),
                    2 => [frame(HEADERS, END_HEADERS, 1, &block), frame(DATA, 0, 1, &[0, 0, 0, 1, 0, 1])].concat(),
                    _ => [frame(HEADERS, END_HEADERS, 1, &block), frame(DATA, 0, 1, &[0; 64])[..20].to_vec()].concat(),
                };
                raw.write(&bytes).await;
                held.push(raw);
            }
        }
        self.honest.served_again().await;
        self.answers().await;
        drop(held);
        self.tally.count(Attack::RequestsHalf, "others are served");
    }

    pub(super) async fn rapid_reset(&mut self) {
        for to in self.ports() {
            let mut raw = Raw::begin(to).await;
            let block = call("/pathcall.v1.Peer/Join");
            for nth in 0..RESETS {
                let stream = 2 * nth + 1;
                let made = frame(HEADERS, END_HEADERS, stream, &block);
                if !raw.write(&[made, frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()).await {
                    break;
                }
            }
            // A frame on stream 0 ends the connection if the peer still reads.
            raw.write(&frame(DATA, 0, 0, &[0])).await;
            let outcome = raw.until_closed().await;
            self.tally.count(Attack::RapidReset, outcome);
        }
        self.answers().await;
    }

    pub(super) async fn frames_of_http(&mut self) {
        for to in self.ports() {
            let block = call("/pathcall.v1.Peer/Join");
            let wrong = [
                // Another protocol; invalid lengths; invalid streams; an unterminated frame.
                (false, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_vec()),
                (false, vec![0xff; 64]),
                (true, frame(SETTINGS, 0, 0, &[0; 5])),
                (true, frame(HEADERS, END_HEADERS, 2, &block)),
                (true, frame(RST_STREAM, 0, 0, &[0; 4])),
                (true, [0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1].to_vec()),
                (true, frame(HEADERS, END_HEADERS, 1, &[0xff; 200])),
            ];
            for (begins, bytes) in wrong {
                let mut raw = if begins { Raw::begin(to).await } else { Raw::connect(to).await };
                raw.write(&bytes).await;
                let outcome = raw.until_closed().await;
                self.tally.count(Attack::FramesOfHttp, outcome);
            }
            // Header block without end.
            let mut raw = Raw::begin(to).await;
            let mut goes_on = raw.write(&frame(HEADERS, 0, 1, &block)).await;
            let more = [&[0, 1, b'x', 127, 0x81, 0x7e][..], &[b'y'; 16_000]].concat();
            for _ in 0..CONTINUATIONS {
                goes_on = goes_on && raw.write(&frame(CONTINUATION, 0, 1, &more)).await;
            }
            let outcome = raw.until_closed().await;
            self.tally.count(Attack::FramesOfHttp, outcome);
        }
        self.answers().await;
    }

    pub(super) async fn too_long(&mut self) {
        let mut locks = LocksClient::new(self.network.connection());
        let key = "k".repeat(8 << 20);
        let outcome = locks.vote(by(INSIDER, names(&[&key], ""))).await;
        self.refused(Attack::TooLong, "a message", outcome);
        for len in [100_000, 1 << 20] {
            let mut request = by(INSIDER, names(&["a"], ""));
            request.metadata_mut().insert("x-long", "x".repeat(len).parse().expect("text"));
            let outcome = locks.vote(request).await;
            self.refused(Attack::TooLong, "metadata", outcome);
        }
        let mut peer = PeerClient::new(self.network.connection());
        let keys = vec!["k".repeat(1 << 20); 8];
        let outcome = peer.number_keys(by(INSIDER, NumberKeysRequest { keys, ..NumberKeysRequest::default() })).await;
        self.refused(Attack::TooLong, "keys", outcome);
    }
}
