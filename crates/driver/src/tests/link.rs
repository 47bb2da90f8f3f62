//! Tests of two links on loopback: all queued frames arrive, in order, in fewer calls than frames.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::link::{FRAME_BYTES_MAX, Link, OPEN_BATCHES_MAX, PollMode};
use pathcall_test_support::HANG;

/// Largest frame, `pathcall_wire::MAX_FRAME`: it fits a 1,400-byte MTU.
const MAX_FRAME: usize = 1372;

fn link() -> Link {
    Link::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

/// Frame with bytes that depend on its number.
fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(31) ^ i) as u8).collect()
}

/// Receives `count` frames.
async fn receive(link: &mut Link, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut frames = Vec::new();
    while frames.len() < count {
        link.readable().await.unwrap();
        link.recv(|from, ce, frame| {
            assert!(!ce);
            frames.push((from, frame.to_vec()));
        })
        .unwrap();
    }
    frames
}

#[tokio::test]
async fn frames_of_all_lengths_arrive_in_order() {
    let (mut a, mut b) = (link(), link());
    let lens = [MAX_FRAME, MAX_FRAME, 40, MAX_FRAME, 1, 1, 2, 2, 1, 44, 9000, 9000, 72, FRAME_BYTES_MAX, 500];
    for (i, len) in lens.into_iter().enumerate() {
        a.queue(b.local_addr(), &frame(i, len));
    }
    a.flush();
    let got = receive(&mut b, lens.len()).await;
    for (i, (from, bytes)) in got.iter().enumerate() {
        assert_eq!(*from, a.local_addr());
        assert!(*bytes == frame(i, lens[i]), "frame {i}");
    }
    assert_eq!(b.recv(|_, _, _| panic!("nothing more was sent")).unwrap(), 0);
    assert_eq!(a.stats().frames_out, lens.len() as u64);
    assert_eq!(a.stats().bytes_out, b.stats().bytes_in);
}

#[tokio::test]
async fn many_frames_leave_in_few_calls() {
    let (mut a, mut b) = (link(), link());
    const FRAMES: usize = 300;
    for i in 0..FRAMES {
        a.queue(b.local_addr(), &frame(i, 100));
    }
    a.flush();
    let got = receive(&mut b, FRAMES).await;
    assert!(got.iter().enumerate().all(|(i, (_, bytes))| *bytes == frame(i, 100)));
    let stats = a.stats();
    assert_eq!((stats.frames_out, stats.lost_full, stats.lost_error), (FRAMES as u64, 0, 0));
    assert_eq!(stats.calls_out, FRAMES.div_ceil(64) as u64, "64 frames a call");
    assert!(b.stats().calls_in < FRAMES as u64);
}

#[tokio::test]
async fn full_batch_is_sent_without_flush() {
    let (mut a, mut b) = (link(), link());
    for i in 0..65 {
        a.queue(b.local_addr(), &frame(i, 100));
    }
    assert_eq!(receive(&mut b, 64).await.len(), 64);
    assert_eq!(a.stats().frames_out, 64);
}

#[tokio::test]
async fn interleaved_destinations_leave_in_one_call_each() {
    let mut a = link();
    let mut members: Vec<Link> = (0..64).map(|_| link()).collect();
    const ROUNDS: usize = 8;
    for round in 0..ROUNDS {
        for member in &members {
            a.queue(member.local_addr(), &frame(round, 600));
        }
    }
    a.flush();
    for member in &mut members {
        let got = receive(member, ROUNDS).await;
        assert!(got.iter().enumerate().all(|(round, (_, bytes))| *bytes == frame(round, 600)));
    }
    assert_eq!(a.stats().calls_out, members.len() as u64);
}

#[tokio::test]
async fn excess_destinations_lose_no_frames() {
    let mut a = link();
    let mut members: Vec<Link> = (0..OPEN_BATCHES_MAX + 9).map(|_| link()).collect();
    const ROUNDS: usize = 3;
    for round in 0..ROUNDS {
        for member in &members {
            a.queue(member.local_addr(), &frame(round, 64));
        }
    }
    a.flush();
    for member in &mut members {
        let got = receive(member, ROUNDS).await;
        assert!(got.iter().enumerate().all(|(round, (_, bytes))| *bytes == frame(round, 64)));
    }
    assert_eq!(a.stats().frames_out, (members.len() * ROUNDS) as u64);
}

#[tokio::test]
async fn frames_are_changed_and_returned_within_a_batch() {
    let (mut a, mut b) = (link(), link());
    const FRAMES: usize = 100;
    for i in 0..FRAMES {
        a.queue(b.local_addr(), &frame(i, MAX_FRAME));
    }
    a.flush();
    let mut reflected = 0;
    while reflected < FRAMES {
        b.readable().await.unwrap();
        let frames = b.exchange(PollMode::IfReady, |outbox, from, _, frame| {
            assert!(outbox.backlog() >= frame.len());
            frame[0] = !frame[0];
            outbox.queue(from, frame);
        });
        reflected += frames.unwrap();
        b.flush();
    }
    for (i, (_, bytes)) in receive(&mut a, FRAMES).await.into_iter().enumerate() {
        let mut expected = frame(i, MAX_FRAME);
        expected[0] = !expected[0];
        assert!(bytes == expected, "frame {i}");
    }
}

#[tokio::test]
async fn datagrams_of_many_senders_are_distinguished() {
    let mut b = link();
    let mut senders: Vec<Link> = (0..5).map(|_| link()).collect();
    for (i, a) in senders.iter_mut().enumerate() {
        for _ in 0..=i {
            a.queue(b.local_addr(), &frame(i, 50 + i));
        }
        a.flush();
    }
    let mut counts = HashMap::new();
    for (from, bytes) in receive(&mut b, 15).await {
        let i = senders.iter().position(|a| a.local_addr() == from).unwrap();
        assert_eq!(bytes, frame(i, 50 + i));
        *counts.entry(i).or_insert(0) += 1;
    }
    assert_eq!((0..5).map(|i| counts[&i]).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn empty_datagram_is_a_frame() {
    let mut b = link();
    let plain = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    plain.send_to(&[], b.local_addr()).await.unwrap();
    plain.send_to(b"next", b.local_addr()).await.unwrap();
    let got = receive(&mut b, 2).await;
    assert_eq!((got[0].1.as_slice(), got[1].1.as_slice()), (&b""[..], &b"next"[..]));
}

#[tokio::test]
async fn unsendable_frames_are_counted() {
    let (mut a, mut b) = (link(), link());
    a.queue(b.local_addr(), &[]);
    a.queue(b.local_addr(), &vec![0; FRAME_BYTES_MAX + 1]);
    a.queue(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), b"no port");
    a.queue(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7)), b"no address");
    a.queue(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 7)), b"not from loopback");
    a.queue(SocketAddr::from((Ipv6Addr::LOCALHOST, 7)), b"another family");
    for i in 0..10 {
        a.queue(b.local_addr(), &frame(i, 10));
    }
    a.flush();
    assert_eq!(receive(&mut b, 10).await.len(), 10);
    assert_eq!((a.stats().lost_error, a.stats().calls_out), (6, 1), "offload is still used");
}

#[tokio::test]
async fn dual_stack_link_reaches_both_families() {
    let Ok(mut b) = Link::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))) else {
        return; // a system without IPv6
    };
    let mut a = link();
    let port = b.local_addr().port();
    a.queue(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), b"over IPv4");
    a.flush();
    let got = receive(&mut b, 1).await;
    assert_eq!(got[0].0, a.local_addr(), "in the form in which it can be answered");
    b.queue(got[0].0, b"answer");
    b.flush();
    assert_eq!(receive(&mut a, 1).await[0].1, b"answer");
}

#[tokio::test]
async fn backlog_counts_waiting_bytes() {
    let (mut a, mut b) = (link(), link());
    // A busy system may deliver some frames later than others.
    let all_at_once = async {
        while b.backlog() != 20_000 {
            for _ in 0..20 {
                a.queue(b.local_addr(), &[7; 1000]);
            }
            a.flush();
            receive(&mut b, 20).await;
        }
    };
    tokio::time::timeout(HANG, all_at_once).await.expect("all of them wait");
    a.queue(b.local_addr(), &[7; 10]);
    a.flush();
    receive(&mut b, 1).await;
    assert_eq!(b.backlog(), 10, "drained in between");
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let a = link();
    assert_eq!(Link::bind(a.local_addr()).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

/// The error of a send into a blackhole is also that of missing offload.
#[test]
fn unreachable_destination_keeps_offload_for_others() {
    if !pathcall_testbed::root_tests("unreachable_destination_keeps_offload_for_others") {
        return;
    }
    let bed = pathcall_testbed::Testbed::builder().hosts(2).up().unwrap();
    let (host, other) = (bed.host(1).unwrap(), bed.host(2).unwrap());
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1));
    let route = host.command("ip").args(["route", "add", "blackhole", "192.0.2.1"]).status().unwrap();
    assert!(route.success());
    let sent = std::thread::spawn(move || {
        host.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let mut link = Link::bind(SocketAddr::from((host.address(), 0))).unwrap();
        for to in [nowhere, SocketAddr::from((other.address(), 9))] {
            (0..10).for_each(|i| link.queue(to, &frame(i, 100)));
            link.flush();
        }
        link.stats()
    });
    let stats = sent.join().unwrap();
    assert_eq!((stats.lost_error, stats.frames_out, stats.calls_out), (10, 10, 1), "{stats:?}");
}
