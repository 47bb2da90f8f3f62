//! Two links of one host that share memory: agreement, frames, wake-ups, the end, and hostile peers.
#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant as Clock;

use pathcall_endpoint::driver::link::{Link, Looking, RINGS_MAX, Sharing};
use pathcall_shm::map::RING_BYTES;
use pathcall_shm::ring::Memory;
use pathcall_shm::{Map, Peer, Side, pair};
use pathcall_wire::Instant;
use pathcall_wire::link::{Link as Message, LinkRepr};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn sharing(address: SocketAddr, part: Sharing) -> Link {
    let mut link = Link::bind(address).unwrap();
    link.share_memory(part).unwrap();
    link
}

fn element() -> Link {
    sharing(LOCAL, Sharing::Offer)
}

fn endpoint() -> Link {
    sharing(LOCAL, Sharing::Seek)
}

fn now(origin: Clock) -> Instant {
    Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap())
}

/// Has both links work until something is so.
async fn until(a: &mut Link, b: &mut Link, what: impl Fn(&Link, &Link) -> bool) {
    while !what(a, b) {
        tokio::select! {
            ready = a.readable() => ready.unwrap(),
            ready = b.readable() => ready.unwrap(),
        }
        for link in [&mut *a, &mut *b] {
            link.recv(|_, _, _| panic!("nobody sends frames")).unwrap();
        }
    }
}

/// An element's link and an endpoint's that share memory.
async fn agreed() -> (Link, Link) {
    let (mut element, mut endpoint) = (element(), endpoint());
    endpoint.seek(Instant(0), Some(element.local_addr()));
    until(&mut element, &mut endpoint, |element, endpoint| {
        element.memory_peers().count() == 1 && endpoint.memory_peers().count() == 1
    })
    .await;
    assert_eq!(element.memory_peers().next(), Some(endpoint.local_addr()));
    assert_eq!(endpoint.memory_peers().next(), Some(element.local_addr()));
    (element, endpoint)
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(31) ^ i) as u8).collect()
}

#[tokio::test]
async fn frames_go_both_ways_in_order_and_by_no_socket() {
    let (mut element, mut endpoint) = agreed().await;
    let calls = element.stats().calls_in + endpoint.stats().calls_in;
    let lens = [1372, 40, 1, 7, 8, 9, 65_507, 9000, 72];
    for (number, len) in lens.into_iter().enumerate() {
        endpoint.queue(element.local_addr(), &frame(number, len));
    }
    endpoint.flush();
    let mut got = 0;
    while got < lens.len() {
        element.readable().await.unwrap();
        let received = element.exchange(Looking::IfReady, |outbox, from, ce, bytes| {
            assert!(*bytes == frame(got, lens[got]) && !ce);
            bytes[0] = !bytes[0];
            outbox.queue(from, bytes);
            got += 1;
        });
        assert!(received.unwrap() > 0 || got == 0);
        element.flush();
    }
    let mut back = 0;
    while back < lens.len() {
        endpoint.readable().await.unwrap();
        endpoint
            .recv(|from, _, bytes| {
                assert_eq!(from, element.local_addr());
                bytes[0] = !bytes[0];
                assert!(*bytes == frame(back, lens[back]));
                back += 1;
            })
            .unwrap();
    }
    assert_eq!(element.stats().calls_in + endpoint.stats().calls_in, calls);
    assert_eq!((element.stats().ring_frames_in, endpoint.stats().ring_frames_in), (9, 9));
    assert_eq!(element.stats().bytes_in, endpoint.stats().bytes_in);
}

/// Each side sleeps until the other answers: a wake-up that is lost would be the end of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleepers_wake_each_other() {
    const ROUNDS: usize = 2000;
    let (mut element, mut endpoint) = agreed().await;
    let reflector = tokio::spawn(async move {
        let mut seen = 0;
        while seen < ROUNDS {
            element.readable().await.unwrap();
            seen += element.exchange(Looking::IfReady, |outbox, from, _, frame| outbox.queue(from, frame)).unwrap();
            element.flush();
        }
        element
    });
    let to = endpoint.memory_peers().next().unwrap();
    for round in 0..ROUNDS {
        endpoint.queue(to, &frame(round, 100));
        endpoint.flush();
        let mut back = false;
        while !back {
            endpoint.readable().await.unwrap();
            endpoint
                .recv(|_, _, got| {
                    assert_eq!(got, frame(round, 100));
                    back = true;
                })
                .unwrap();
        }
    }
    let element = reflector.await.unwrap();
    assert_eq!(element.stats().ring_frames_in, ROUNDS as u64);
}

#[tokio::test]
async fn a_full_ring_loses_and_counts_and_a_fuller_one_is_congestion() {
    let (mut element, mut endpoint) = agreed().await;
    let (len, words) = (1000, 126);
    let room = RING_BYTES / 8 / words;
    for number in 0..room + 10 {
        endpoint.queue(element.local_addr(), &frame(number, len));
    }
    endpoint.flush();
    assert_eq!((endpoint.stats().ring_frames_out, endpoint.stats().lost_full), (room as u64, 10));
    let (mut got, mut marked) = (0, 0);
    while got < room {
        element
            .exchange(Looking::Anyway, |_, _, ce, bytes| {
                assert!(*bytes == frame(got, len));
                got += 1;
                marked += usize::from(ce);
            })
            .unwrap();
    }
    assert!((room / 2 - 2..room / 2 + 2).contains(&marked), "{marked} of {room}");
    endpoint.queue(element.local_addr(), &frame(0, len));
    assert_eq!(endpoint.stats().lost_full, 10, "there is room again");
}

#[tokio::test]
async fn frames_go_by_udp_while_there_is_no_memory_and_again_when_it_ends() {
    let (mut element, mut endpoint) = agreed().await;
    let address = element.local_addr();
    drop(endpoint);
    until(&mut element, &mut Link::bind(LOCAL).unwrap(), |element, _| element.memory_peers().count() == 0).await;

    // Another process on the same host, and the same element started anew at its address.
    endpoint = self::endpoint();
    let origin = Clock::now();
    endpoint.seek(now(origin), Some(address));
    until(&mut element, &mut endpoint, |_, endpoint| endpoint.memory_peers().count() == 1).await;
    drop(element);
    element = Link::bind(address).unwrap();
    until(&mut element, &mut endpoint, |_, endpoint| endpoint.memory_peers().count() == 0).await;
    endpoint.queue(address, b"by UDP");
    endpoint.flush();
    let mut got = 0;
    while got == 0 {
        element.readable().await.unwrap();
        got = element.recv(|_, _, frame| assert_eq!(frame, b"by UDP")).unwrap();
    }
    assert_eq!(element.stats().ring_frames_in, 0);

    // It asks again, with pauses; an element without memory says nothing, and no frame comes of it.
    let mut restarted = {
        drop(element);
        sharing(address, Sharing::Offer)
    };
    let mut time = now(origin);
    while endpoint.memory_peers().count() == 0 {
        time = Instant(time.0 + 1_000_000_000);
        endpoint.seek(time, Some(address));
        for link in [&mut restarted, &mut endpoint] {
            tokio::task::yield_now().await;
            link.recv(|_, _, _| panic!("no frame")).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_sent_before_the_end_arrives() {
    let (mut element, mut endpoint) = agreed().await;
    for number in 0..200 {
        element.queue(endpoint.local_addr(), &frame(number, 300));
    }
    element.flush();
    drop(element);
    let mut got = 0;
    while endpoint.memory_peers().count() > 0 {
        endpoint.readable().await.unwrap();
        endpoint
            .recv(|_, _, bytes| {
                assert_eq!(*bytes, frame(got, 300));
                got += 1;
            })
            .unwrap();
    }
    assert_eq!(got, 200);
}

#[tokio::test]
async fn an_element_without_memory_is_sent_frames_by_udp() {
    let (mut element, mut endpoint) = (Link::bind(LOCAL).unwrap(), endpoint());
    endpoint.seek(Instant(0), Some(element.local_addr()));
    endpoint.queue(element.local_addr(), b"frame");
    endpoint.flush();
    let mut got = 0;
    while got == 0 {
        element.readable().await.unwrap();
        got = element.recv(|_, _, frame| assert_eq!(frame, b"frame")).unwrap();
    }
    assert_eq!((got, endpoint.memory_peers().count()), (1, 0), "a hello is no frame");
}

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

/// A peer by hand: it writes what it likes.
async fn hostile(element: &mut Link) -> (tokio::net::UdpSocket, Peer, Map) {
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
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
async fn all_that_come_at_once_get_in() {
    let (mut element, mut endpoints) = (element(), Vec::new());
    for _ in 0..30 {
        let mut endpoint = endpoint();
        endpoint.seek(Instant(0), Some(element.local_addr()));
        endpoints.push(endpoint);
    }
    // Each hears its offer, and all stand before the door.
    let mut knocked = 0;
    while knocked < endpoints.len() {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
        knocked = 0;
        for endpoint in &mut endpoints {
            endpoint.exchange(Looking::Anyway, |_, _, _, _| panic!("no frame")).unwrap();
            knocked += usize::from(endpoint.stats().bytes_in > 0);
        }
    }
    while element.memory_peers().count() < endpoints.len() {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
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
