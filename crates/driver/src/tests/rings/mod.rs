//! Tests of two links of one host that share memory: agreement, frames, wake-ups, the end; and hostile peers.
#![cfg(target_os = "linux")]

mod hostile;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant as Clock;

use crate::link::{Link, PollMode, SharingRole};
use pathcall_shm::map::RING_BYTES;
use pathcall_test_support::loopback;
use pathcall_wire::Instant;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn sharing(address: SocketAddr, part: SharingRole) -> Link {
    let mut link = Link::bind(address).unwrap();
    link.share_memory(part).unwrap();
    link
}

/// Link of an element, at an address that can be bound again.
fn element() -> Link {
    sharing(loopback::own(), SharingRole::Offer)
}

fn endpoint() -> Link {
    sharing(LOCAL, SharingRole::Request)
}

fn now(origin: Clock) -> Instant {
    Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap())
}

/// Drives both links until a condition holds.
async fn until(a: &mut Link, b: &mut Link, condition: impl Fn(&Link, &Link) -> bool) {
    while !condition(a, b) {
        tokio::select! {
            ready = a.readable() => ready.unwrap(),
            ready = b.readable() => ready.unwrap(),
        }
        for link in [&mut *a, &mut *b] {
            link.recv(|_, _, _| panic!("no frame was sent")).unwrap();
        }
    }
}

/// Links of an element and an endpoint that share memory.
async fn sharing_links() -> (Link, Link) {
    let (mut element, mut endpoint) = (element(), endpoint());
    endpoint.request_memory(Instant(0), Some(element.local_addr()));
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
async fn ring_frames_pass_both_ways_in_order() {
    let (mut element, mut endpoint) = sharing_links().await;
    let calls = element.stats().calls_in + endpoint.stats().calls_in;
    let lengths = [1372, 40, 1, 7, 8, 9, 65_507, 9000, 72];
    for (number, len) in lengths.into_iter().enumerate() {
        endpoint.queue(element.local_addr(), &frame(number, len));
    }
    endpoint.flush();
    let mut got = 0;
    while got < lengths.len() {
        element.readable().await.unwrap();
        let received = element.exchange(PollMode::IfReady, |outbox, from, ce, bytes| {
            assert!(*bytes == frame(got, lengths[got]) && !ce);
            bytes[0] = !bytes[0];
            outbox.queue(from, bytes);
            got += 1;
        });
        assert!(received.unwrap() > 0 || got == 0);
        element.flush();
    }
    let mut back = 0;
    while back < lengths.len() {
        endpoint.readable().await.unwrap();
        endpoint
            .recv(|from, _, bytes| {
                assert_eq!(from, element.local_addr());
                bytes[0] = !bytes[0];
                assert!(*bytes == frame(back, lengths[back]));
                back += 1;
            })
            .unwrap();
    }
    assert_eq!(element.stats().calls_in + endpoint.stats().calls_in, calls);
    assert_eq!((element.stats().ring_frames_in, endpoint.stats().ring_frames_in), (9, 9));
    assert_eq!(element.stats().bytes_in, endpoint.stats().bytes_in);
}

/// Each side sleeps until the other answers: a lost wake-up would block the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_sides_wake_each_other() {
    const ROUNDS: usize = 2000;
    let (mut element, mut endpoint) = sharing_links().await;
    let reflector = tokio::spawn(async move {
        let mut seen = 0;
        while seen < ROUNDS {
            element.readable().await.unwrap();
            seen += element.exchange(PollMode::IfReady, |outbox, from, _, frame| outbox.queue(from, frame)).unwrap();
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
async fn full_ring_counts_losses_and_marks_congestion() {
    let (mut element, mut endpoint) = sharing_links().await;
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
            .exchange(PollMode::Always, |_, _, ce, bytes| {
                assert!(*bytes == frame(got, len));
                got += 1;
                marked += usize::from(ce);
            })
            .unwrap();
    }
    assert!((room / 2 - 2..room / 2 + 2).contains(&marked), "{marked} of {room}");
    endpoint.queue(element.local_addr(), &frame(0, len));
    assert_eq!(endpoint.stats().lost_full, 10, "the ring has space again");
}

#[tokio::test]
async fn frames_use_udp_before_and_after_shared_memory() {
    let (mut element, mut endpoint) = sharing_links().await;
    let address = element.local_addr();
    drop(endpoint);
    until(&mut element, &mut Link::bind(LOCAL).unwrap(), |element, _| element.memory_peers().count() == 0).await;

    // Another process on the same host, and the restarted element at its address.
    endpoint = self::endpoint();
    let origin = Clock::now();
    endpoint.request_memory(now(origin), Some(address));
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

    // The endpoint repeats its request, with pauses; an element without rings does not answer, and no frame results.
    let mut restarted = {
        drop(element);
        sharing(address, SharingRole::Offer)
    };
    let mut time = now(origin);
    while endpoint.memory_peers().count() == 0 {
        time = Instant(time.0 + 1_000_000_000);
        endpoint.request_memory(time, Some(address));
        for link in [&mut restarted, &mut endpoint] {
            tokio::task::yield_now().await;
            link.recv(|_, _, _| panic!("no frame")).unwrap();
        }
    }
}

#[tokio::test]
async fn frames_before_the_end_arrive() {
    let (mut element, mut endpoint) = sharing_links().await;
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
async fn element_without_rings_gets_frames_by_udp() {
    let (mut element, mut endpoint) = (Link::bind(LOCAL).unwrap(), endpoint());
    endpoint.request_memory(Instant(0), Some(element.local_addr()));
    endpoint.queue(element.local_addr(), b"frame");
    endpoint.flush();
    let mut got = 0;
    while got == 0 {
        element.readable().await.unwrap();
        got = element.recv(|_, _, frame| assert_eq!(frame, b"frame")).unwrap();
    }
    assert_eq!((got, endpoint.memory_peers().count()), (1, 0), "a hello is not a frame");
}

#[tokio::test]
async fn simultaneous_endpoints_all_join() {
    let (mut element, mut endpoints) = (element(), Vec::new());
    for _ in 0..30 {
        let mut endpoint = endpoint();
        endpoint.request_memory(Instant(0), Some(element.local_addr()));
        endpoints.push(endpoint);
    }
    // Each endpoint gets its offer, and all connect before the element accepts.
    let mut reached = 0;
    while reached < endpoints.len() {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
        reached = 0;
        for endpoint in &mut endpoints {
            endpoint.exchange(PollMode::Always, |_, _, _, _| panic!("no frame")).unwrap();
            reached += usize::from(endpoint.stats().bytes_in > 0);
        }
    }
    while element.memory_peers().count() < endpoints.len() {
        element.readable().await.unwrap();
        element.recv(|_, _, _| panic!("no frame")).unwrap();
    }
}
