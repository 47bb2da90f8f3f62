//! Tests of queues on links: marks at a long queue, drops at a full one. Need root.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_testbed::{LinkFaults, LinkProfile, Testbed, TestbedNode, root_tests};

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: usize = 14 + 20 + 8;
/// Time limit, reached only if frames are lost by mistake.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn long_queue_marks_and_full_queue_drops() {
    const FRAMES: u64 = 100;
    const FRAME: usize = 1514;
    if !root_tests("long_queue_marks_and_full_queue_drops") {
        return;
    }
    // A frame takes three quarters of a second, so that few leave during sending, also where the machine stands still.
    let rate = Some("16kbit".parse().expect("a rate"));
    let slow =
        LinkProfile { rate, queue_bytes: Some(40 * 1514), mark_bytes: Some(20 * 1500), ..LinkProfile::default() };
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
        assert!(began.elapsed() < DATAGRAM_TIMEOUT, "{:?}", faults());
    }
    // Frames are sent faster than the link transmits them: 19 or 20 queue unmarked, 40 queue in all, and up to 4 were
    // transmitted.
    let LinkFaults { lost, marked, passed, .. } = faults();
    let (overflowed, back) = link.overflowed().expect("counters").expect("a wire");
    assert_eq!((lost, passed, back), (0, FRAMES, 0));
    assert!((60..=82).contains(&marked) && (40..=56).contains(&overflowed), "{marked} marked, {overflowed} lost");
    assert_eq!(bed.link(1).expect("a link").overflowed().expect("counters"), None, "a bare link");
}

/// Socket of a node.
fn socket(node: &TestbedNode) -> UdpSocket {
    let node = node.clone();
    let bound = thread::spawn(move || {
        node.enter().expect("the node's namespace");
        UdpSocket::bind((node.address(), 0)).expect("the node's address")
    });
    bound.join().expect("a thread")
}
