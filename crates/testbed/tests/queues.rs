//! Queues of links: what waits long is marked, and what finds no room is lost. Needs root.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{Faults, Node, Profile, Testbed, root_tests};

/// Ethernet, IPv4 and UDP.
const HEADERS_BYTES: usize = 14 + 20 + 8;
/// Reached only when frames are lost that are not to be.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn a_long_queue_marks_and_a_full_one_loses() {
    const FRAMES: u64 = 100;
    const FRAME: usize = 1514;
    if !root_tests("a_long_queue_marks_and_a_full_one_loses") {
        return;
    }
    // A frame takes three quarters of a second, so that few leave while they are sent, also where the machine stands still.
    let rate = Some("16kbit".parse().expect("a rate"));
    let slow = Profile { rate, queue_bytes: Some(40 * 1514), mark_bytes: Some(20 * 1500), ..Profile::default() };
    let bed = Testbed::builder().hosts(2).link(2, slow).up().expect("a bed");
    let two = socket(&bed.host(2).expect("a host"));
    socket2::SockRef::from(&two).set_tos_v4(2).expect("a mark");
    for _ in 0..FRAMES {
        two.send_to(&[7; FRAME - HEADERS_BYTES], (bed.host(1).expect("a host").address(), 9)).expect("sent");
    }
    let link = bed.link(2).expect("a link");
    let faults = || link.faults().expect("counters").expect("a wire").0;
    let began = Instant::now();
    while faults().passed < FRAMES {
        assert!(began.elapsed() < PATIENCE, "{:?}", faults());
    }
    // They were sent faster than the link takes them, but by a few: 20 wait unmarked, or 19; 40 wait, and 4 need not.
    let Faults { lost, marked, passed, .. } = faults();
    let (overflowed, back) = link.overflowed().expect("counters").expect("a wire");
    assert_eq!((lost, passed, back), (0, FRAMES, 0));
    assert!((60..=82).contains(&marked) && (40..=56).contains(&overflowed), "{marked} marked, {overflowed} lost");
    assert_eq!(bed.link(1).expect("a link").overflowed().expect("counters"), None, "a bare link");
}

/// A socket of a node's.
fn socket(node: &Node) -> UdpSocket {
    let node = node.clone();
    let bound = thread::spawn(move || {
        node.enter().expect("its namespace");
        UdpSocket::bind((node.address(), 0)).expect("its address")
    });
    bound.join().expect("a thread")
}
