//! Tests of the program's packet checks: packets for others go to the kernel's stack unchanged, damaged packets are
//! dropped.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure.

use std::net::Ipv4Addr;

use crate::common::{ELEMENT, SENDER, SLOW_PORT, checksum, frames, loaded};
use pathcall_xdp::{KernelSwitch, Packet, RunResult};

/// Valid packet with checksums.
fn good(seq: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    let frame = frames::pairs(0, seq, &[(1, 5), (2, -7)]);
    Packet { from: SENDER, to: ELEMENT, congested: false }.emit(&frame, &mut packet);
    checksum::fill(&mut packet);
    packet
}

fn run(kernel: &KernelSwitch, packet: &[u8]) -> (RunResult, Vec<u8>) {
    let mut out = Vec::new();
    let ran = kernel.run(packet, &mut out).expect("the kernel runs it");
    (ran, out)
}

/// Valid packet with a changed IP header and a correct header checksum.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = good(1);
    change(&mut packet);
    checksum::fill_ip(&mut packet);
    packet
}

/// Inserts IP options (no-operation) of this many words into a packet.
fn put_options(packet: &mut Vec<u8>, words: u8) {
    packet[14] = 0x45 + words;
    packet.splice(34..34, vec![1; usize::from(words) * 4]);
    let length = (packet.len() - 14) as u16;
    packet[16..18].copy_from_slice(&length.to_be_bytes());
}

#[test]
fn packets_for_others_go_to_kernel_unchanged() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let packets = [
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
            "only the source port is that of frames",
            changed(|packet| {
                packet.copy_within(36..38, 34);
                packet[36..38].copy_from_slice(&53_u16.to_be_bytes());
            }),
        ),
        ("to another host", changed(|packet| packet[30..34].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 9).octets()))),
        ("longer than its length field", changed(|packet| packet.extend([0; 6]))),
        ("shorter than its length field", changed(|packet| packet.truncate(packet.len() - 6))),
        ("cut within its headers", changed(|packet| packet.truncate(38))),
    ];
    for (description, packet) in packets {
        let (ran, out) = run(&kernel, &packet);
        assert_eq!(ran, RunResult::Passed, "{description}");
        assert_eq!(out, packet, "{description}: unchanged");
    }
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.drop_checksum, element.slow), (0, 0, 0));
    assert!(matches!(run(&kernel, &good(1)).0, RunResult::Out(..)), "a valid packet for the element is processed");
}

#[test]
fn damaged_packet_is_dropped_and_counted() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let mut damaged = 0;
    let packet = good(1);
    // The IP header from its type of service on; the UDP header except length and checksum, which have their own tests;
    // the whole frame.
    let bytes = (15..16).chain(18..20).chain(22..23).chain(24..30).chain(34..36).chain(42..packet.len());
    for at in bytes {
        for bit in [0x01, 0x80] {
            let mut packet = packet.clone();
            packet[at] ^= bit;
            assert_eq!(run(&kernel, &packet).0, RunResult::Dropped, "bit {bit:#x} of byte {at}");
            damaged += 1;
        }
    }
    let element = kernel.counters().expect("read");
    assert_eq!((element.drop_checksum, element.counters.frames_in), (damaged, damaged));
    assert!(matches!(run(&kernel, &packet).0, RunResult::Out(..)), "the packet itself is fine");
    assert_eq!(kernel.applications().expect("read")[0].2.admitted, 1);
}

#[test]
fn missing_or_offloaded_checksum_is_accepted() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let mut seq = 0;
    for sum in [checksum::pseudo, |_: &[u8]| 0] {
        seq += 1;
        let mut packet = good(seq);
        let sum = sum(&packet);
        packet[checksum::SUM].copy_from_slice(&sum.to_be_bytes());
        let (ran, out) = run(&kernel, &packet);
        assert!(matches!(ran, RunResult::Out(..)), "{sum:#x}: {ran:?}");
        checksum::check(&out).expect("output with checksums");
    }
}

#[test]
fn checksums_are_correct_at_every_length() {
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
            assert!(matches!(ran, RunResult::Out(..)), "{lanes} pairs and {payload} bytes: {ran:?}");
            checksum::check(&out).unwrap_or_else(|wrong| panic!("{lanes} pairs and {payload} bytes: {wrong}"));
        }
    }
    assert_eq!(kernel.counters().expect("read").drop_checksum, 0);
}

#[test]
fn packets_from_others_to_slow_port_are_dropped() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let to_slow_port = |change: &dyn Fn(&mut Vec<u8>)| {
        changed(|packet| {
            packet[36..38].copy_from_slice(&SLOW_PORT.to_be_bytes());
            checksum::fill(packet);
            change(packet);
        })
    };
    assert_eq!(run(&kernel, &to_slow_port(&|_| ())).0, RunResult::Dropped);
    // The kernel would reassemble these fragments.
    for words in 1..=10 {
        assert_eq!(
            run(&kernel, &to_slow_port(&|packet| put_options(packet, words))).0,
            RunResult::Dropped,
            "{words} options"
        );
    }
    let first = |packet: &mut Vec<u8>| packet[20] = 0x20;
    assert_eq!(run(&kernel, &to_slow_port(&first)).0, RunResult::Dropped, "a first fragment");
    let both = |packet: &mut Vec<u8>| {
        first(packet);
        put_options(packet, 10);
    };
    assert_eq!(run(&kernel, &to_slow_port(&both)).0, RunResult::Dropped, "with options");
    // None of these is a first fragment to the element.
    let passes = |description: &str, change: &dyn Fn(&mut Vec<u8>)| {
        assert_eq!(run(&kernel, &to_slow_port(change)).0, RunResult::Passed, "{description}");
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
