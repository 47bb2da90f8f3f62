//! Tests of other packets: routed, or sent to the switch's processor.

use etherparse::PacketBuilder;
use pathcall_conformance::RandomChoice;
use pathcall_p4::exec::{DropReason, Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{Match, TableEntry};
use pathcall_wire::SplitMix64;

/// Port of the switch's processor (`PC_CPU_PORT`).
const CPU_PORT: u16 = 510;
/// Port and addresses of the route 10.2.0.0/16.
const ROUTE: (u16, [u8; 6], [u8; 6]) = (7, [2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 1]);

/// Program with one route.
fn router() -> Interpreter {
    let program = super::program();
    let mut router = Interpreter::new(&program).unwrap_or_else(|wrong| panic!("{wrong}"));
    let at = program.tables.iter().position(|table| table.name.ends_with("leave.routes")).expect("a table of routes");
    let action = program.tables[at].actions.iter().copied();
    let mut hops = action.filter(|action| program.actions[action.0 as usize].name.ends_with("hop"));
    let station = |bytes: [u8; 6]| bytes.iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
    let entry = TableEntry {
        keys: vec![Match { value: 0x0a02_0000, prefix_bits: 16 }],
        action: hops.next().expect("its action"),
        args: vec![ROUTE.0.into(), station(ROUTE.1), station(ROUTE.2)],
    };
    router.insert(pathcall_p4::ir::TableId(at as u32), &entry).unwrap_or_else(|wrong| panic!("{wrong}"));
    router
}

/// Egress port and bytes of a packet, or its drop reason.
fn routed(packet: &[u8]) -> Result<(u16, Vec<u8>), DropReason> {
    let mut came = Vec::new();
    router().process(1, 3, packet, &mut |output| match output {
        Output::Packet { port, bytes } => came.push(Ok((port, bytes.to_vec()))),
        Output::Dropped(reason) => came.push(Err(reason)),
        Output::Digest { .. } => {}
    });
    assert_eq!(came.len(), 1, "{came:?}");
    came.swap_remove(0)
}

/// UDP packet to a host, with this TTL and payload.
fn udp(to: [u8; 4], ttl: u8, bytes: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([9; 6], [2, 0, 0, 0, 0, 1]).ipv4([10, 3, 0, 1], to, ttl).udp(1000, 53);
    let mut packet = Vec::new();
    builder.write(&mut packet, bytes).expect("a packet");
    packet
}

#[test]
fn other_packets_are_routed() {
    let long = [0x50; 300];
    for bytes in [&[][..], b"short", &long] {
        let packet = udp([10, 2, 3, 4], 64, bytes);
        let (port, out) = routed(&packet).expect("the packet leaves");
        assert_eq!(port, ROUTE.0);
        let mut expected = packet;
        expected[..6].copy_from_slice(&ROUTE.1);
        expected[6..12].copy_from_slice(&ROUTE.2);
        expected[22] = 63;
        let ip = etherparse::Ipv4HeaderSlice::from_slice(&out[14..]).expect("a header");
        assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
        expected[24..26].copy_from_slice(&out[24..26]);
        assert_eq!(out, expected);
    }
}

#[test]
fn unroutable_packets_go_to_processor() {
    let mut optioned = udp([10, 2, 3, 4], 64, b"x");
    optioned[14] = 0x46;
    let mut arp = udp([10, 2, 3, 4], 64, b"x");
    arp[12..14].copy_from_slice(&[8, 6]);
    for packet in [udp([10, 9, 9, 9], 64, b"nobody's"), udp([10, 2, 3, 4], 1, b"at its end"), optioned, arp] {
        assert_eq!(routed(&packet), Ok((CPU_PORT, packet)));
    }
    let mut damaged = udp([10, 2, 3, 4], 64, b"x");
    damaged[25] ^= 1;
    assert_eq!(routed(&damaged), Err(DropReason::Program));
}

#[test]
fn random_packets_leave_or_are_dropped() {
    let (mut router, mut random) = (router(), SplitMix64::new(1));
    let (mut left, mut ended) = (0, 0);
    for _ in 0..100_000 {
        let mut packet = match random.below(3) {
            0 => (0..random.below(200)).map(|_| random.bits() as u8).collect(),
            _ => {
                let frame: Vec<u8> = (0..random.below(160)).map(|_| random.bits() as u8).collect();
                let mut packet = udp([10, 1 + random.below(2) as u8, 0, 1], random.below(3) as u8, &frame);
                if let Some(place) = packet.get_mut(42..46).filter(|_| random.percent(70)) {
                    place.copy_from_slice(&[0x50, 0x43, 1, random.below(40) as u8]);
                }
                packet
            }
        };
        if !packet.is_empty() && random.percent(50) {
            let at = random.index(packet.len());
            packet[at] ^= 1 << random.below(8);
            packet.truncate(1 + random.index(packet.len()));
        }
        let mut came = 0;
        router.process(1, 3, &packet, &mut |output| {
            came += 1;
            match output {
                Output::Packet { port, bytes } => {
                    assert!([ROUTE.0, CPU_PORT].contains(&port) && bytes.len() == packet.len(), "{packet:02x?}");
                    left += 1;
                }
                Output::Dropped(reason) => {
                    assert_eq!(reason, DropReason::Program, "{packet:02x?}");
                    ended += 1;
                }
                Output::Digest { .. } => panic!("no output for {packet:02x?}"),
            }
        });
        assert_eq!(came, 1, "{packet:02x?}");
    }
    assert!(left > 100 && ended > 100, "{left} left, {ended} ended");
}
