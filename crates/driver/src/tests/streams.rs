//! Tests of messages by TCP and QUIC: both directions, undelivered messages, invalid data.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::streams::{EventSink, Streams};
use bytes::Bytes;
use pathcall_endpoint::messages::Event;
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::TokenKey;
use pathcall_wire::messages::{Greeting, GreetingRepr, MessageKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Bytes that may wait for one peer.
const QUEUE_MAX: usize = 1 << 30;

/// Node and its events.
struct Node {
    streams: Streams,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Node {
    async fn event(&mut self) -> Event {
        loop {
            match timeout(HANG, self.events.recv()).await.expect("in time").expect("an event") {
                Event::Progress { .. } => {}
                event => return event,
            }
        }
    }

    async fn arrived(&mut self) -> (u64, SocketAddr, Bytes) {
        match self.event().await {
            Event::Arrived { node, from, message } => (node, from, message),
            other => panic!("{other:?}"),
        }
    }
}

fn sink() -> (EventSink, mpsc::UnboundedReceiver<Event>) {
    let (told, events) = mpsc::unbounded_channel();
    // The receiver is gone when the test is over.
    (Arc::new(move |event| drop(told.send(event))), events)
}

async fn tcp(node: u64, at: SocketAddr) -> Node {
    keyed(node, at, None).await
}

async fn keyed(node: u64, at: SocketAddr, key: Option<TokenKey>) -> Node {
    let (sink, events) = sink();
    Node { streams: Streams::tcp(node, at, key, sink).await.expect("a free port"), events }
}

/// Sends messages from one node to the other, and answers back, whichever side connects.
async fn exchange_messages(mut one: Node, mut other: Node) {
    let (at_one, at_other) = (one.streams.local_addr(), other.streams.local_addr());
    let lengths = [1, 100, 70_000, 5_000_000, 3];
    for len in lengths {
        one.streams.send(at_other, b"head ", &Bytes::from(vec![len as u8; len]));
    }
    let mut got = Vec::new();
    for _ in lengths {
        let (node, from, message) = other.arrived().await;
        assert_eq!((node, from), (1, at_one));
        assert!(message.starts_with(b"head ") && message[5..].iter().all(|byte| *byte == (message.len() - 5) as u8));
        got.push(message.len() - 5);
        other.streams.send(from, b"answer", &Bytes::copy_from_slice(&message[..6]));
    }
    got.sort_unstable();
    assert_eq!(got, [1, 3, 100, 70_000, 5_000_000]);
    for _ in lengths {
        let (node, from, message) = one.arrived().await;
        assert_eq!((node, from, message.len()), (2, at_other, 12));
    }
}

#[tokio::test]
async fn messages_go_both_ways_by_tcp() {
    exchange_messages(tcp(1, FREE).await, tcp(2, FREE).await).await;
}

#[tokio::test]
async fn node_is_answered_at_its_own_address() {
    exchange_messages(tcp(1, loopback::own()).await, tcp(2, loopback::own()).await).await;
}

#[tokio::test]
async fn messages_are_sent_from_any_thread() {
    let (node, mut peer) = (tcp(1, FREE).await, tcp(2, FREE).await);
    let (streams, to) = (node.streams.clone(), peer.streams.local_addr());
    let thread = std::thread::spawn(move || streams.send(to, b"message", &Bytes::new()));
    thread.join().expect("no panic");
    assert_eq!(peer.arrived().await.2, "message");
}

#[tokio::test]
async fn undelivered_tcp_messages_are_returned() {
    let gone = tcp(2, loopback::own()).await;
    let to = gone.streams.local_addr();
    gone.streams.close().await;
    drop(gone);
    let mut node = tcp(1, FREE).await;
    for head in [&b"first"[..], b"second"] {
        node.streams.send(to, head, &Bytes::new());
    }
    for head in [&b"first"[..], b"second"] {
        assert_eq!(node.event().await, Event::Undelivered { to, head: Bytes::from_static(head) });
    }
}

#[tokio::test]
async fn restarted_peer_is_reached_again() {
    let mut node = tcp(1, FREE).await;
    let mut peer = tcp(2, loopback::own()).await;
    let at = peer.streams.local_addr();
    node.streams.send(at, b"a", &Bytes::new());
    assert_eq!(peer.arrived().await.2, "a");
    peer.streams.close().await;
    drop(peer);
    let mut peer = tcp(3, at).await;
    // A message written before the end of the old connection is detected may be lost; later ones arrive.
    let again = async {
        loop {
            node.streams.send(at, b"b", &Bytes::new());
            if timeout(Duration::from_millis(20), peer.events.recv()).await.is_ok() {
                return;
            }
            while node.events.try_recv().is_ok() {}
        }
    };
    timeout(HANG, again).await.expect("a message in time");
}

/// Listener that only sends its greeting on each connection; counts the received messages.
async fn half_closed_listener() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(FREE).await.expect("a free port");
    let at = listener.local_addr().expect("bound");
    let read = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&read);
    tokio::spawn(async move {
        let hello = GreetingRepr::new(MessageKind::Hello, 9, 0, at.port().into()).bytes();
        while let Ok((mut stream, _)) = listener.accept().await {
            let read = Arc::clone(&counted);
            tokio::spawn(async move {
                stream.write_all(&hello).await.expect("a listening peer");
                stream.shutdown().await.expect("a listening peer");
                let mut received = vec![0; Greeting::LEN];
                stream.read_exact(&mut received).await.expect("its hello");
                while let Ok(len) = stream.read_u32().await {
                    received.resize(len as usize, 0);
                    stream.read_exact(&mut received).await.expect("all of it");
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (at, read)
}

#[tokio::test(flavor = "multi_thread")]
async fn half_closed_peer_receives_written_messages() {
    const COUNT: usize = 10_000;
    let (mut node, (to, read)) = (tcp(1, FREE).await, half_closed_listener().await);
    for _ in 0..COUNT {
        node.streams.send(to, b"head", &Bytes::from_static(b"payload"));
    }
    let (mut undelivered, began) = (0, Instant::now());
    while read.load(Ordering::Relaxed) + undelivered < COUNT {
        undelivered += usize::from(timeout(Duration::from_millis(20), node.events.recv()).await.is_ok());
        assert!(began.elapsed() < HANG, "{} were read, {undelivered} given back", read.load(Ordering::Relaxed));
    }
}

#[tokio::test]
async fn peer_without_reads_is_bounded_and_times_out() {
    let ((sink, events), stuck) = (sink(), Duration::from_secs(1));
    let streams = Streams::tcp_with_write_timeout(stuck, 1, FREE, None, sink).await.expect("a free port");
    let (mut node, listener) = (Node { streams, events }, TcpListener::bind(FREE).await.expect("a free port"));
    let to = listener.local_addr().expect("bound");
    let payload = Bytes::from(vec![7; 64 << 20]);
    let fit = QUEUE_MAX / (payload.len() + 4);
    for _ in 0..=fit {
        node.streams.send(to, b"head", &payload);
    }
    assert_eq!(node.event().await, Event::Undelivered { to, head: Bytes::from_static(b"head") });
    assert!(node.events.try_recv().is_err(), "the others fit");
    let hello = GreetingRepr::new(MessageKind::Hello, 9, 0, to.port().into()).bytes();
    let mut taken = Vec::new();
    // The stalled write times out, and waiting messages use another connection.
    for _ in 0..2 {
        let (mut stream, _) = timeout(HANG, listener.accept()).await.expect("in time").expect("a connection");
        stream.write_all(&hello).await.expect("a listening peer");
        taken.push(stream);
    }
    let first = &mut taken[0];
    let read = timeout(HANG, first.read_to_end(&mut Vec::new())).await.expect("an end in time");
    assert!(read.is_err() || read.is_ok_and(|read| read < payload.len()));
}

#[tokio::test]
async fn invalid_data_ends_only_its_connection() {
    let mut node = tcp(1, FREE).await;
    let at = node.streams.local_addr();
    let hello = GreetingRepr::new(MessageKind::Hello, 9, 0, 1).bytes();
    for nonsense in [&[0; 64][..], &[hello.as_slice(), &[0xff; 8]].concat(), &[hello.as_slice(), &[0; 4]].concat()] {
        let mut stranger = TcpStream::connect(at).await.unwrap();
        stranger.write_all(nonsense).await.unwrap();
        let mut received = Vec::new();
        // Only its greeting, and the end.
        let ended = timeout(HANG, stranger.read_to_end(&mut received)).await.expect("an end in time");
        assert!(ended.is_err() || received.len() <= Greeting::LEN);
    }
    let peer = tcp(2, FREE).await;
    peer.streams.send(at, b"right", &Bytes::new());
    assert_eq!(node.arrived().await.2, "right");
}

/// Relays bytes between a node and a peer, and records those sent to the peer; changes one of them if `change` is set.
async fn recording_relay(peer: SocketAddr, change: Option<usize>) -> (SocketAddr, mpsc::UnboundedReceiver<u8>) {
    let listener = TcpListener::bind(FREE).await.expect("a free port");
    let at = listener.local_addr().expect("bound");
    let (keep, kept) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let Ok(to) = TcpStream::connect(peer).await else { return };
            let ((mut from, mut back), (mut answers, mut on)) = (from.into_split(), to.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
            let keep = keep.clone();
            tokio::spawn(async move {
                let mut place = 0;
                while let Ok(byte) = from.read_u8().await {
                    let byte = if change == Some(place) { byte ^ 0x10 } else { byte };
                    place += 1;
                    let _ = keep.send(byte);
                    if on.write_u8(byte).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (at, kept)
}

const KEY: Option<TokenKey> = Some(TokenKey::new([1, 2]));
/// Greeting and proof of a connection with a key.
const HANDSHAKE_LEN: usize = Greeting::LEN + 8;

#[tokio::test]
async fn messages_go_both_ways_by_tcp_with_a_key() {
    exchange_messages(keyed(1, FREE, KEY).await, keyed(2, FREE, KEY).await).await;
}

#[tokio::test]
async fn changed_message_does_not_arrive() {
    // Bytes of the node's id, session, proof, message length, message and token. (A changed first byte is too long.)
    let (length, end) = (HANDSHAKE_LEN + 1..HANDSHAKE_LEN + 4, HANDSHAKE_LEN + 4 + 7 + 8);
    for change in [8, 20].into_iter().chain(Greeting::LEN..HANDSHAKE_LEN).chain(length.start..end) {
        let mut peer = keyed(2, FREE, KEY).await;
        let (at, mut kept) = recording_relay(peer.streams.local_addr(), Some(change)).await;
        let node = keyed(1, FREE, KEY).await;
        node.streams.send(at, b"mes", &Bytes::from_static(b"sage"));
        // With a longer length, the reader waits for the rest.
        if length.contains(&change) {
            for _ in 0..end {
                timeout(HANG, kept.recv()).await.expect("in time").expect("a byte");
            }
            node.streams.close().await;
        } else {
            let began = Instant::now();
            while peer.streams.stats().unauthenticated == 0 {
                assert!(began.elapsed() < HANG, "byte {change}");
                tokio::task::yield_now().await;
            }
        }
        // The message arrives on another connection, and none arrived before.
        let member = keyed(3, FREE, KEY).await;
        member.streams.send(peer.streams.local_addr(), b"right", &Bytes::new());
        assert_eq!(peer.arrived().await.2, "right", "byte {change}");
    }
}

#[tokio::test]
async fn replayed_connection_is_refused() {
    let mut peer = keyed(2, FREE, KEY).await;
    let (at, mut kept) = recording_relay(peer.streams.local_addr(), None).await;
    let node = keyed(1, FREE, KEY).await;
    node.streams.send(at, b"message", &Bytes::new());
    assert_eq!(peer.arrived().await.2, "message");
    let mut said = Vec::new();
    while let Ok(byte) = kept.try_recv() {
        said.push(byte);
    }
    assert_eq!(said.len(), HANDSHAKE_LEN + 4 + 7 + 8);
    let mut stranger = TcpStream::connect(peer.streams.local_addr()).await.expect("a listening peer");
    stranger.write_all(&said).await.expect("a listening peer");
    let began = Instant::now();
    while peer.streams.stats().unauthenticated == 0 {
        assert!(began.elapsed() < HANG);
        tokio::task::yield_now().await;
    }
    assert!(peer.events.try_recv().is_err(), "it arrived again");
}

#[cfg(feature = "quic")]
mod quic {
    use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};

    use super::*;
    use crate::streams::quic::Tls;

    /// Certificate authority of the test.
    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
        }

        async fn node(&self, node: u64, trusts: &Authority) -> Node {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["nodes.test".to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &self.0).expect("signed");
            let tls = Tls {
                certificates: certificate.pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
                roots: trusts.0.pem().into_bytes(),
                name: "nodes.test".to_owned(),
            };
            let (sink, events) = sink();
            Node { streams: Streams::quic(node, FREE, &tls, sink).await.expect("a free port"), events }
        }
    }

    #[tokio::test]
    async fn messages_go_both_ways_by_quic() {
        let authority = Authority::new();
        exchange_messages(authority.node(1, &authority).await, authority.node(2, &authority).await).await;
    }

    #[tokio::test]
    async fn untrusted_peers_are_refused() {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let mut node = ours.node(1, &ours).await;
        // The stranger trusts the node, but not the reverse; then the other way round.
        for mut stranger in [theirs.node(2, &ours).await, ours.node(3, &theirs).await] {
            let to = node.streams.local_addr();
            stranger.streams.send(to, b"hear", &Bytes::new());
            assert_eq!(stranger.event().await, Event::Undelivered { to, head: Bytes::from_static(b"hear") });
        }
        let peer = ours.node(4, &ours).await;
        peer.streams.send(node.streams.local_addr(), b"right", &Bytes::new());
        assert_eq!(node.arrived().await.2, "right");
    }

    #[tokio::test]
    async fn invalid_certificate_is_reported() {
        let tls = Tls { certificates: vec![], key: b"no".to_vec(), roots: vec![], name: "x".to_owned() };
        let refused = Streams::quic(1, FREE, &tls, sink().0).await.err().expect("refused");
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
}
