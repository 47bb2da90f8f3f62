//! Tests of hostile peers of shared memory: unproven addresses, corrupted memory, silence, large numbers.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::link::{Link, LinkOutbox, PollMode, RINGS_MAX};
use pathcall_shm::map::RING_BYTES;
use pathcall_shm::ring::RingMemory;
use pathcall_shm::{MemoryPeer, RingMap, RingSide, ring_pair};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::link::{Link as Message, LinkRepr};

use super::{LOCAL, element, frame, sharing_links};

/// Requests an offer for the address of a socket.
async fn offer_to(element: &mut Link, socket: &tokio::net::UdpSocket) -> LinkRepr {
    socket.send_to(&LinkRepr::hello(77).bytes(), element.local_addr()).await.unwrap();
    let mut bytes = [0; 100];
    let len = loop {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("a hello is not a frame")).unwrap();
        if let Ok(len) = socket.try_recv(&mut bytes) {
            break len;
        }
        // The runtime has to notice that the socket is readable.
        tokio::task::yield_now().await;
        if let Ok(len) = socket.try_recv(&mut bytes) {
            break len;
        }
    };
    Message::new_checked(&bytes[..len]).unwrap().repr()
}

/// Connects to the offered listener and sends a message with this memory.
fn connect(offer: LinkRepr, message: &[u8], memory: BorrowedFd<'_>) -> MemoryPeer {
    let peer = MemoryPeer::connect(format!("pathcall-{:032x}", offer.listener).as_bytes()).unwrap();
    peer.send_memory(message, memory).unwrap();
    peer
}

/// Asserts that the element has closed the connection, with or without unread data.
fn assert_closed(peer: &MemoryPeer) {
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    let kind = peer.receive_ready().unwrap_err().kind();
    assert!(matches!(kind, ConnectionReset | UnexpectedEof), "{kind}");
}

async fn wait_refused(element: &mut Link, refused: u64) {
    while element.stats().rings_refused < refused {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
}

#[tokio::test]
async fn unproven_address_gets_no_frames() {
    let mut element = element();
    let mine = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &mine).await;
    let victim = LinkRepr { port: offer.port ^ 1, ..offer };
    let (_map, memory) = RingMap::create().unwrap();
    let other = std::fs::File::open("/dev/zero").unwrap();
    let wrong: [(Vec<u8>, BorrowedFd<'_>); 6] = [
        (victim.join().bytes().to_vec(), memory.as_fd()),
        (LinkRepr { token: offer.token ^ 1, ..offer }.join().bytes().to_vec(), memory.as_fd()),
        (offer.bytes().to_vec(), memory.as_fd()),
        (offer.join().bytes()[1..].to_vec(), memory.as_fd()),
        (vec![0xff; 300], memory.as_fd()),
        // A valid message, with a descriptor that is not shared memory.
        (offer.join().bytes().to_vec(), other.as_fd()),
    ];
    for (number, (message, memory)) in wrong.iter().enumerate() {
        let peer = connect(offer, message, *memory);
        wait_refused(&mut element, number as u64 + 1).await;
        assert_closed(&peer);
    }
    assert_eq!(element.memory_peers().count(), 0);
    // The valid join succeeds.
    let peer = connect(offer, &offer.join().bytes(), memory.as_fd());
    while element.memory_peers().count() == 0 {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    peer.receive_ready().unwrap();
}

#[tokio::test]
async fn new_owner_of_address_gets_its_frames() {
    let mut element = element();
    // Early means within a second; on a machine that stood still the test starts again.
    let (first, _peer, _map) = loop {
        let began = Instant::now();
        let (first, peer, map) = hostile_peer_at(loopback::own(), &mut element).await;
        first.send_to(b"early", element.local_addr()).await.unwrap();
        answer(&mut element, b"early").await;
        if began.elapsed() < Duration::from_millis(900) {
            break (first, peer, map);
        }
        drop((peer, map));
        while element.memory_peers().count() > 0 {
            element.readable().await.unwrap();
            element.recv(|_, _, _| panic!("no frame")).unwrap();
        }
    };
    let address = first.local_addr().unwrap();
    // Frames that it sent by UDP before it learnt of its ring do not remove the ring.
    assert_eq!(element.memory_peers().collect::<Vec<_>>(), [address]);

    // The peer keeps its ring, and another process without shared memory takes its address.
    drop(first);
    let second = tokio::net::UdpSocket::bind(address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    second.send_to(b"late", element.local_addr()).await.unwrap();
    answer(&mut element, b"late").await;
    assert_eq!(element.memory_peers().count(), 0);
    let mut bytes = [0; 100];
    let came = tokio::time::timeout(HANG, second.recv(&mut bytes)).await.expect("an answer").unwrap();
    assert_eq!(bytes[..came], *b"late");
}

/// Lets the element return a frame in flight.
async fn answer(element: &mut Link, expected: &[u8]) {
    let mut frames = 0;
    while frames == 0 {
        element.readable().await.unwrap();
        let echo = |outbox: &mut LinkOutbox<'_>, from, _, frame: &mut [u8]| {
            assert_eq!(frame, expected);
            outbox.queue(from, frame);
        };
        frames = element.exchange(PollMode::IfReady, echo).unwrap();
        element.flush();
    }
}

/// A peer under the test's control, which writes arbitrary data.
async fn hostile_peer(element: &mut Link) -> (tokio::net::UdpSocket, MemoryPeer, RingMap) {
    hostile_peer_at(LOCAL, element).await
}

async fn hostile_peer_at(address: SocketAddr, element: &mut Link) -> (tokio::net::UdpSocket, MemoryPeer, RingMap) {
    let socket = tokio::net::UdpSocket::bind(address).await.unwrap();
    let offer = offer_to(element, &socket).await;
    let peers = element.memory_peers().count();
    let (map, memory) = RingMap::create().unwrap();
    let peer = connect(offer, &offer.join().bytes(), memory.as_fd());
    while element.memory_peers().count() == peers {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    peer.receive_ready().unwrap();
    (socket, peer, map)
}

#[tokio::test]
async fn corrupted_ring_harms_no_other_peer() {
    let (mut element, mut endpoint) = sharing_links().await;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..200 {
        let (_socket, peer, map) = hostile_peer(&mut element).await;
        // Some valid words, and then arbitrary writes.
        let (mut producer, _) = ring_pair(std::sync::Arc::new(map), RingSide::Creator);
        let _ = producer.push(&frame(round, 100));
        let _ = producer.publish();
        let map = hostile_map(producer);
        for _ in 0..1 + round % 7 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let words = map.words();
            // Positions of both rings, lengths of the first frames, and any other word.
            let places = [0, 16, 32, 64, 80, 96, 128, 128 + RING_BYTES / 8, state as usize % words.len()];
            let place = places[(state >> 32) as usize % places.len()];
            words[place].store(state.rotate_left(17) >> (state % 64), std::sync::atomic::Ordering::Relaxed);
        }
        // A few polls of the element, with a frame of the honest peer between them.
        endpoint.queue(element.local_addr(), &frame(round, 50));
        endpoint.flush();
        let mut honest = 0;
        while honest == 0 {
            element
                .exchange(PollMode::Always, |outbox, from, _, bytes| {
                    if from == endpoint.local_addr() {
                        assert_eq!(*bytes, frame(round, 50));
                        honest += 1;
                    } else {
                        outbox.queue(from, b"an answer");
                    }
                })
                .unwrap();
            element.flush();
        }
        drop((map, peer));
        while element.memory_peers().count() > 1 {
            element.readable().await.unwrap();
            element.recv(|_, _, _| ()).unwrap();
        }
    }
    assert!(element.stats().rings_broken > 20, "{}", element.stats().rings_broken);
    assert_eq!(element.memory_peers().collect::<Vec<_>>(), [endpoint.local_addr()]);
}

/// Memory of a producer that is no longer used.
fn hostile_map(producer: pathcall_shm::Producer<RingMap>) -> std::sync::Arc<RingMap> {
    producer.into_memory()
}

#[tokio::test]
async fn number_of_rings_is_bounded() {
    let mut element = element();
    let mut peers = Vec::new();
    for _ in 0..RINGS_MAX {
        peers.push(hostile_peer(&mut element).await);
    }
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &socket).await;
    let refused = element.stats().rings_refused;
    let (_map, memory) = RingMap::create().unwrap();
    let one_more = connect(offer, &offer.join().bytes(), memory.as_fd());
    wait_refused(&mut element, refused + 1).await;
    assert_closed(&one_more);
    // A peer with a ring may replace it, and a peer that leaves frees its ring.
    peers.pop();
    while element.memory_peers().count() == RINGS_MAX {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    hostile_peer(&mut element).await;
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let mut element = element();
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &socket).await;
    let name = format!("pathcall-{:032x}", offer.listener);
    let mut silent = Vec::new();
    for _ in 0..200 {
        if let Ok(peer) = MemoryPeer::connect(name.as_bytes()) {
            silent.push(peer);
        }
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    hostile_peer(&mut element).await;
    drop(silent);
}
