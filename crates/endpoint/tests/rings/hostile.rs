//! Peers that lie: about their address, in the memory, by saying nothing, by being many.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use pathcall_endpoint::driver::link::{Link, Looking, Outbox, RINGS_MAX};
use pathcall_shm::map::RING_BYTES;
use pathcall_shm::ring::Memory;
use pathcall_shm::{Map, Peer, Side, pair};
use pathcall_test_support::{HANG, loopback};
use pathcall_wire::link::{Link as Message, LinkRepr};

use super::{LOCAL, agreed, element, frame};

/// An offer for the address of a socket.
async fn offer_to(element: &mut Link, socket: &tokio::net::UdpSocket) -> LinkRepr {
    socket.send_to(&LinkRepr::hello(77).bytes(), element.local_addr()).await.unwrap();
    let mut bytes = [0; 100];
    let len = loop {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("a hello is no frame")).unwrap();
        if let Ok(len) = socket.try_recv(&mut bytes) {
            break len;
        }
        // The runtime has to see that the socket is readable.
        tokio::task::yield_now().await;
        if let Ok(len) = socket.try_recv(&mut bytes) {
            break len;
        }
    };
    Message::new_checked(&bytes[..len]).unwrap().repr()
}

/// Comes by a door and says something, with this memory.
fn knock(offer: LinkRepr, message: &[u8], memory: BorrowedFd<'_>) -> Peer {
    let peer = Peer::connect(format!("pathcall-{:032x}", offer.door).as_bytes()).unwrap();
    peer.give(message, memory).unwrap();
    peer
}

/// The element has closed the connection, with what it had not read or without.
fn assert_shut(peer: &Peer) {
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    let kind = peer.is_welcome().unwrap_err().kind();
    assert!(matches!(kind, ConnectionReset | UnexpectedEof), "{kind}");
}

async fn until_refused(element: &mut Link, refused: u64) {
    while element.stats().rings_refused < refused {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
}

#[tokio::test]
async fn nobody_gets_the_frames_of_an_address_that_is_not_theirs() {
    let mut element = element();
    let mine = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &mine).await;
    let victim = LinkRepr { port: offer.port ^ 1, ..offer };
    let (_map, memory) = Map::make().unwrap();
    let other = std::fs::File::open("/dev/zero").unwrap();
    let wrong: [(Vec<u8>, BorrowedFd<'_>); 6] = [
        (victim.join().bytes().to_vec(), memory.as_fd()),
        (LinkRepr { token: offer.token ^ 1, ..offer }.join().bytes().to_vec(), memory.as_fd()),
        (offer.bytes().to_vec(), memory.as_fd()),
        (offer.join().bytes()[1..].to_vec(), memory.as_fd()),
        (vec![0xff; 300], memory.as_fd()),
        // The right words, with something that is no memory.
        (offer.join().bytes().to_vec(), other.as_fd()),
    ];
    for (number, (message, memory)) in wrong.iter().enumerate() {
        let peer = knock(offer, message, *memory);
        until_refused(&mut element, number as u64 + 1).await;
        assert_shut(&peer);
    }
    assert_eq!(element.memory_peers().count(), 0);
    // The right one does get in.
    let peer = knock(offer, &offer.join().bytes(), memory.as_fd());
    while element.memory_peers().count() == 0 {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    peer.is_welcome().unwrap();
}

#[tokio::test]
async fn who_has_an_address_after_another_gets_the_frames_to_it() {
    let mut element = element();
    // Early is what comes within a second, on whatever machine: one that stood still begins again.
    let (first, _peer, _map) = loop {
        let began = Instant::now();
        let (first, peer, map) = hostile_at(loopback::own(), &mut element).await;
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
    // What it sent before it heard of its ring is no reason to take that away.
    assert_eq!(element.memory_peers().collect::<Vec<_>>(), [address]);

    // It keeps its ring, and leaves the address to somebody who wants no memory.
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

/// Has the element send back a frame that is on its way.
async fn answer(element: &mut Link, expected: &[u8]) {
    let mut frames = 0;
    while frames == 0 {
        element.readable().await.unwrap();
        let echo = |outbox: &mut Outbox<'_>, from, _, frame: &mut [u8]| {
            assert_eq!(frame, expected);
            outbox.queue(from, frame);
        };
        frames = element.exchange(Looking::IfReady, echo).unwrap();
        element.flush();
    }
}

/// A peer by hand: it writes what it likes.
async fn hostile(element: &mut Link) -> (tokio::net::UdpSocket, Peer, Map) {
    hostile_at(LOCAL, element).await
}

async fn hostile_at(address: SocketAddr, element: &mut Link) -> (tokio::net::UdpSocket, Peer, Map) {
    let socket = tokio::net::UdpSocket::bind(address).await.unwrap();
    let offer = offer_to(element, &socket).await;
    let peers = element.memory_peers().count();
    let (map, memory) = Map::make().unwrap();
    let peer = knock(offer, &offer.join().bytes(), memory.as_fd());
    while element.memory_peers().count() == peers {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    peer.is_welcome().unwrap();
    (socket, peer, map)
}

#[tokio::test]
async fn a_ring_that_its_peer_corrupts_harms_nobody_else() {
    let (mut element, mut endpoint) = agreed().await;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..200 {
        let (_socket, peer, map) = hostile(&mut element).await;
        // Some words that are right, and then anything anywhere.
        let (mut producer, _) = pair(std::sync::Arc::new(map), Side::Maker);
        let _ = producer.push(&frame(round, 100));
        let _ = producer.publish();
        let map = hostile_map(producer);
        for _ in 0..1 + round % 7 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let words = map.words();
            // Positions of both rings, lengths of the first frames, and anything else.
            let places = [0, 16, 32, 64, 80, 96, 128, 128 + RING_BYTES / 8, state as usize % words.len()];
            let place = places[(state >> 32) as usize % places.len()];
            words[place].store(state.rotate_left(17) >> (state % 64), std::sync::atomic::Ordering::Relaxed);
        }
        // A few looks of the element, and a frame of the honest one among them.
        endpoint.queue(element.local_addr(), &frame(round, 50));
        endpoint.flush();
        let mut honest = 0;
        while honest == 0 {
            element
                .exchange(Looking::Anyway, |outbox, from, _, bytes| {
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

/// The memory of a producer that is needed no more.
fn hostile_map(producer: pathcall_shm::Producer<Map>) -> std::sync::Arc<Map> {
    producer.into_memory()
}

#[tokio::test]
async fn there_are_so_many_rings_and_no_more() {
    let mut element = element();
    let mut peers = Vec::new();
    for _ in 0..RINGS_MAX {
        peers.push(hostile(&mut element).await);
    }
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &socket).await;
    let refused = element.stats().rings_refused;
    let (_map, memory) = Map::make().unwrap();
    let one_more = knock(offer, &offer.join().bytes(), memory.as_fd());
    until_refused(&mut element, refused + 1).await;
    assert_shut(&one_more);
    // Who has one may have it anew, and who leaves makes room.
    peers.pop();
    while element.memory_peers().count() == RINGS_MAX {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    hostile(&mut element).await;
}

#[tokio::test]
async fn those_that_come_and_say_nothing_keep_nobody_out() {
    let mut element = element();
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let offer = offer_to(&mut element, &socket).await;
    let name = format!("pathcall-{:032x}", offer.door);
    let mut silent = Vec::new();
    for _ in 0..200 {
        if let Ok(peer) = Peer::connect(name.as_bytes()) {
            silent.push(peer);
        }
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
    hostile(&mut element).await;
    drop(silent);
}
