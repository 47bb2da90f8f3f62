//! Tests of inline mode: frames addressed to an endpoint are processed, and leave with the addresses that their sender
//! or addressee would have used; all other packets are forwarded unchanged.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::common::frames::{self, SERVER, WORKERS};
use crate::common::{ELEMENT, SLOW_PORT, address, checksum, loaded};
use pathcall_wire::{Base, Flags, FrameKind, MapFrame};
use pathcall_xdp::{KernelSwitch, Packet, RunResult, SLOW_MULTICAST};

/// Offset of the TTL in a packet.
const HOPS: usize = 22;
/// Offset of the frame in a packet.
const FRAME: usize = 42;

/// Packet between two endpoints, with checksums.
fn packet(from: u32, to: u32, frame: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    Packet { from: address(from), to: address(to), congested: false }.emit(frame, &mut packet);
    checksum::fill(&mut packet);
    packet
}

fn pairs(seq: u32) -> Vec<u8> {
    packet(WORKERS[0], SERVER, &frames::pairs(0, seq, &[(1, 5), (2, -7)]))
}

fn run(kernel: &KernelSwitch, packet: &[u8]) -> (RunResult, Vec<u8>) {
    let mut out = Vec::new();
    let ran = kernel.run(packet, &mut out).expect("the kernel runs it");
    (ran, out)
}

/// Addresses and frame of the packet that leaves.
fn out(kernel: &KernelSwitch, packet: &[u8]) -> (SocketAddrV4, SocketAddrV4, MapFrame<Vec<u8>>) {
    match run(kernel, packet) {
        (RunResult::Out(Packet { from, to, .. }, frame), whole) => {
            checksum::check(&whole).expect("output with checksums");
            (from, to, MapFrame::new_checked(frame).expect("a frame"))
        }
        (ran, _) => panic!("{ran:?}"),
    }
}

#[test]
fn inline_answer_has_source_of_addressed_peer() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let (from, to, answer) = out(&kernel, &pairs(1));
    assert_eq!((from, to), (address(SERVER), address(WORKERS[0])));
    assert_eq!(answer.kind(), FrameKind::MapAck);
    // The same frame, sent to the element (overlay mode).
    let mut overlay = Vec::new();
    Packet { from: address(WORKERS[0]), to: ELEMENT, congested: false }
        .emit(&frames::pairs(0, 1, &[(1, 5), (2, -7)]), &mut overlay);
    let (from, to, again) = out(&kernel, &overlay);
    assert_eq!((from, to), (ELEMENT, address(WORKERS[0])));
    assert_eq!(again.as_bytes(), answer.as_bytes(), "a repeat, in overlay or inline mode");
    let applied = kernel.applications().expect("read")[0].2;
    assert_eq!((applied.applied, applied.repeats), (1, 1));
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.passing), (2, 1));
}

#[test]
fn forwarded_packet_keeps_source_and_decrements_ttl() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let first = packet(WORKERS[0], SERVER, &frames::part(0, 1, 3, 1, &[5, -7, 9]));
    assert_eq!(run(&kernel, &first).0, RunResult::Dropped, "held: the other part is missing");
    let (from, to, held) = out(&kernel, &first);
    assert_eq!((from, to, held.kind()), (address(SERVER), address(WORKERS[0]), FrameKind::MapHeld));

    let mut second = packet(WORKERS[1], SERVER, &frames::part(1, 1, 3, 1, &[1, 1, 1]));
    second[HOPS] = 9;
    checksum::fill_ip(&mut second);
    let (ran, whole) = run(&kernel, &second);
    let RunResult::Out(Packet { from, to, .. }, sums) = ran else { panic!("{ran:?}") };
    checksum::check(&whole).expect("output with checksums");
    assert_eq!((from, to, whole[HOPS]), (address(WORKERS[1]), address(SERVER), 8));
    let sums = MapFrame::new_checked(sums).expect("a frame");
    assert_eq!([0, 1, 2].map(|lane| sums.linear(lane)), [Some(6), Some(-6), Some(10)]);
}

#[test]
fn inline_result_to_one_member_clears_and_is_multicast() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let result = packet(SERVER, WORKERS[0], &frames::result(3, 1));
    let (ran, whole) = run(&kernel, &result);
    // There is no group, so user space makes the copies, by the element's slow port.
    let RunResult::Slow(Packet { from, to, .. }, _) = ran else { panic!("{ran:?}") };
    assert_eq!((from.port(), to), (SLOW_MULTICAST, SocketAddrV4::new(*ELEMENT.ip(), SLOW_PORT)));
    checksum::check(&whole).expect("output with checksums");
    assert_eq!(kernel.read_row(3).expect("read").round, 2);
}

#[test]
fn not_admitted_flag_is_removed_in_inline_mode_only() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let marked = |gaid: Option<u32>, epoch: Option<u32>| {
        let mut frame = frames::pairs(0, 1, &[(1, 5)]);
        let mut base = Base::new_checked(&mut frame[..]).expect("our own");
        let flags = base.flags() | Flags::NOT_ADMITTED | Flags::CROSS;
        base.set_flags(flags);
        gaid.into_iter().for_each(|gaid| base.set_gaid(gaid));
        epoch.into_iter().for_each(|epoch| base.set_epoch(epoch));
        packet(WORKERS[0], SERVER, &frame)
    };
    let (from, to, crossed) = out(&kernel, &marked(None, None));
    assert_eq!((from, to), (address(WORKERS[0]), address(SERVER)));
    assert!(!crossed.base().has(Flags::NOT_ADMITTED), "the element removes the flag");
    let (.., old) = out(&kernel, &marked(None, Some(99)));
    assert!(old.base().has(Flags::NOT_ADMITTED), "an element of another epoch keeps the flag");
    let other = marked(Some(99), None);
    assert_eq!(
        run(&kernel, &other),
        (RunResult::Passed, other.clone()),
        "an element without the application forwards the frame"
    );
}

#[test]
fn other_packets_are_forwarded_unchanged() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = pairs(1);
        change(&mut packet);
        checksum::fill_ip(&mut packet);
        packet
    };
    let with_options = |packet: &mut Vec<u8>| {
        packet[14] = 0x46;
        packet.splice(34..34, [1, 1, 1, 1]);
        let length = (packet.len() - 14) as u16;
        packet[16..18].copy_from_slice(&length.to_be_bytes());
    };
    let put = |packet: &mut Vec<u8>, at: usize, bytes: &[u8]| packet[at..at + bytes.len()].copy_from_slice(bytes);
    let others = [
        ("ARP", changed(&|packet| put(packet, 12, &[0x08, 0x06]))),
        ("IPv6, and so neighbour discovery", changed(&|packet| put(packet, 12, &[0x86, 0xdd]))),
        ("a VLAN's", changed(&|packet| drop(packet.splice(12..12, [0x81, 0x00, 0x00, 0x05])))),
        ("link-layer broadcast", changed(&|packet| put(packet, 0, &[0xff; 6]))),
        ("with IP options", changed(&with_options)),
        ("a first fragment", changed(&|packet| packet[20] = 0x20)),
        ("a later fragment", changed(&|packet| put(packet, 20, &[0x00, 0x10]))),
        ("TCP", changed(&|packet| packet[23] = 6)),
        ("ICMP", changed(&|packet| packet[23] = 1)),
        ("TTL expires here", changed(&|packet| packet[HOPS] = 1)),
        ("to another port of the server", changed(&|packet| put(packet, 36, &53_u16.to_be_bytes()))),
        ("to another host", changed(&|packet| put(packet, 30, &Ipv4Addr::new(10, 0, 0, 9).octets()))),
        ("to the other worker's address", changed(&|packet| put(packet, 30, &WORKERS[1].to_be_bytes()))),
        ("not a frame", changed(&|packet| packet[FRAME] ^= 1)),
        ("unknown application", changed(&|packet| put(packet, FRAME + 8, &99_u32.to_be_bytes()))),
        ("unknown endpoint", changed(&|packet| put(packet, FRAME + 24, &99_u32.to_be_bytes()))),
        ("longer than its length field", changed(&|packet| packet.extend([0; 6]))),
        ("shorter than its length field", changed(&|packet| packet.truncate(packet.len() - 6))),
        ("cut within its header", changed(&|packet| packet.truncate(FRAME + 20))),
    ];
    for (what, packet) in others {
        let (ran, out) = run(&kernel, &packet);
        assert_eq!(ran, RunResult::Passed, "{what}");
        assert_eq!(out, packet, "{what}: unchanged");
    }
    let element = kernel.counters().expect("read");
    assert_eq!((element.counters.frames_in, element.drop_checksum, element.slow), (0, 0, 0));
    assert!(matches!(run(&kernel, &pairs(1)).0, RunResult::Out(..)), "a valid frame is processed");
}

#[test]
fn overlay_element_forwards_all_packets_of_others() {
    let Some(kernel) = loaded(frames::kernel()) else { return };
    let packet = pairs(1);
    assert_eq!(run(&kernel, &packet), (RunResult::Passed, packet.clone()));
    assert_eq!(kernel.counters().expect("read").counters.frames_in, 0);
}

#[test]
fn damaged_frame_is_dropped_in_inline_mode() {
    let Some(kernel) = loaded(frames::inlined()) else { return };
    let mut packet = pairs(1);
    let last = packet.len() - 1;
    packet[last] ^= 1;
    assert_eq!(run(&kernel, &packet).0, RunResult::Dropped);
    let element = kernel.counters().expect("read");
    assert_eq!((element.drop_checksum, kernel.applications().expect("read")[0].2.admitted), (1, 0));
}
