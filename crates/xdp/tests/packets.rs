//! What the program does with packets before it looks at frames: what is not for the element goes to
//! the kernel as it came, what is damaged goes no further.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure.

use std::net::Ipv4Addr;

use crate::common::{ELEMENT, SENDER, SLOW_PORT, checksum, frames, loaded};
use pathcall_xdp::{Kernel, Packet, Ran};

/// A packet that the program works on, with its checksums.
fn good(seq: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    let frame = frames::pairs(0, seq, &[(1, 5), (2, -7)]);
    Packet { from: SENDER, to: ELEMENT, congested: false }.emit(&frame, &mut packet);
    checksum::fill(&mut packet);
    packet
}

fn run(kernel: &Kernel, packet: &[u8]) -> (Ran, Vec<u8>) {
    let mut out = Vec::new();
    let ran = kernel.run(packet, &mut out).expect("the kernel runs it");
    (ran, out)
}

/// With its IP header changed, and the header's checksum right again.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = good(1);
    change(&mut packet);
    checksum::fill_ip(&mut packet);
    packet
}

/// Puts IP options into a packet, so many words of them that say nothing.
fn put_options(packet: &mut Vec<u8>, words: u8) {
    packet[14] = 0x45 + words;
    packet.splice(34..34, vec![1; usize::from(words) * 4]);
    let length = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&length.to_be_bytes());
}

#[test]
fn what_is_not_for_the_element_is_the_kernels() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let ours = [
        ("ARP", changed(|packet| packet[12..14].copy_from_slice(&[0x08, 0x06]))),
        ("IPv6, and so neighbour discovery", changed(|packet| packet[12..14].copy_from_slice(&[0x86, 0xdd]))),
        ("a VLAN's", changed(|packet| drop(packet.splice(12..12, [0x81, 0x00, 0x00, 0x05])))),
        ("with IP options", changed(|packet| put_options(packet, 1))),
        ("a first fragment", changed(|packet| packet[20] = 0x20)),
        ("a later fragment", changed(|packet| packet[20..22].copy_from_slice(&[0x00, 0x10]))),
        ("IP of another version", changed(|packet| packet[14] = 0x55)),
        ("TCP", changed(|packet| packet[23] = 6)),
        ("ICMP", changed(|packet| packet[23] = 1)),
        ("to another port", changed(|packet| packet[36..38].copy_from_slice(&53_u16.to_be_bytes()))),
        (
            "from the port of frames only",
            changed(|packet| {
                packet.copy_within(36..38, 34);
                packet[36..38].copy_from_slice(&53_u16.to_be_bytes());
            }),
        ),
        ("to another host", changed(|packet| packet[30..34].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 9).octets()))),
        ("longer than it says", changed(|packet| packet.extend([0; 6]))),
        ("shorter than it says", changed(|packet| packet.truncate(packet.len() - 6))),
        ("cut within its headers", changed(|packet| packet.truncate(38))),
    ];
    for (what, packet) in ours {
        let (ran, out) = run(&kernel, &packet);
        assert_eq!(ran, Ran::Passed, "{what}");
        assert_eq!(out, packet, "{what}: as it came");
    }
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.drop_checksum, element.slow), (0, 0, 0));
    assert!(matches!(run(&kernel, &good(1)).0, Ran::Out(..)), "and what is for it is worked on");
}

#[test]
fn a_damaged_packet_is_dropped_and_counted() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let mut damaged = 0;
    let packet = good(1);
    // The IP header from its type of service on; all of UDP but its length and its sum, which have tests
    // of their own; all of the frame.
    let bytes = (15..16).chain(18..20).chain(22..23).chain(24..30).chain(34..36).chain(42..packet.len());
    for at in bytes {
        for bit in [0x01, 0x80] {
            let mut packet = packet.clone();
            packet[at] ^= bit;
            assert_eq!(run(&kernel, &packet).0, Ran::Dropped, "bit {bit:#x} of byte {at}");
            damaged += 1;
        }
    }
    let element = kernel.counters().expect("read");
    assert_eq!((element.drop_checksum, element.counters.frames_in), (damaged, damaged));
    assert!(matches!(run(&kernel, &packet).0, Ran::Out(..)), "the packet itself is fine");
    assert_eq!(kernel.applications().expect("read")[0].2.admitted, 1);
}

#[test]
fn a_checksum_may_be_left_out_or_left_to_the_device() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let mut seq = 0;
    for sum in [checksum::pseudo, |_: &[u8]| 0] {
        seq += 1;
        let mut packet = good(seq);
        let sum = sum(&packet);
        packet[checksum::SUM].copy_from_slice(&sum.to_be_bytes());
        let (ran, out) = run(&kernel, &packet);
        assert!(matches!(ran, Ran::Out(..)), "{sum:#x}: {ran:?}");
        checksum::check(&out).expect("it leaves with all of it");
    }
}

#[test]
fn checksums_are_right_at_every_length() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let mut sent = 0;
    for lanes in 1..=32_u8 {
        for payload in 0..40 {
            sent += 1;
            let pairs: Vec<_> = (0..lanes).map(|lane: u8| (lane.into(), 0x0102_0304 * i32::from(lane))).collect();
            let frame = frames::with_payload(0, sent, &pairs, payload);
            let mut packet = Vec::new();
            Packet { from: SENDER, to: ELEMENT, congested: sent % 3 == 0 }.emit(&frame, &mut packet);
            checksum::fill(&mut packet);
            let (ran, out) = run(&kernel, &packet);
            assert!(matches!(ran, Ran::Out(..)), "{lanes} pairs and {payload} bytes: {ran:?}");
            checksum::check(&out).unwrap_or_else(|wrong| panic!("{lanes} pairs and {payload} bytes: {wrong}"));
        }
    }
    assert_eq!(kernel.counters().expect("read").drop_checksum, 0);
}

#[test]
fn nobody_else_may_say_what_the_program_says_to_user_space() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let to_slow_port = |change: &dyn Fn(&mut Vec<u8>)| {
        changed(|packet| {
            packet[36..38].copy_from_slice(&SLOW_PORT.to_be_bytes());
            checksum::fill(packet);
            change(packet);
        })
    };
    assert_eq!(run(&kernel, &to_slow_port(&|_| ())).0, Ran::Dropped);
    // The kernel would put these together.
    for words in 1..=10 {
        assert_eq!(
            run(&kernel, &to_slow_port(&|packet| put_options(packet, words))).0,
            Ran::Dropped,
            "{words} options"
        );
    }
    let first = |packet: &mut Vec<u8>| packet[20] = 0x20;
    assert_eq!(run(&kernel, &to_slow_port(&first)).0, Ran::Dropped, "a first fragment");
    let both = |packet: &mut Vec<u8>| {
        first(packet);
        put_options(packet, 10);
    };
    assert_eq!(run(&kernel, &to_slow_port(&both)).0, Ran::Dropped, "with options");
    // Of these none is a first one to the element.
    let passes = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        assert_eq!(run(&kernel, &to_slow_port(change)).0, Ran::Passed, "{what}");
    };
    passes("a later fragment", &|packet| packet[20..22].copy_from_slice(&[0x20, 0x10]));
    passes("options, cut within UDP", &|packet| {
        put_options(packet, 10);
        packet.truncate(80);
    });
    passes("options, to another host", &|packet| {
        put_options(packet, 1);
        packet[33] = 9;
    });
}
