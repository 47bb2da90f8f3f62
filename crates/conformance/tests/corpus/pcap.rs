//! Capture of a case: all input and output frames, as UDP over IPv4 over Ethernet.

use etherparse::{Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use pathcall_conformance::corpus::{Case, CorpusLine};
use pathcall_conformance::{ProgramOutcome, ProgramStep, StepEffect};
use pathcall_wire::Base;
use pcap_file::pcap::{PcapHeader, PcapReader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness};

/// UDP port of frames.
const PORT: u16 = 7702;
/// Address of the element.
const ELEMENT: [u8; 4] = [10, 1, 0, 1];
/// Sender of malformed frames.
const NOBODY: [u8; 4] = [10, 1, 0, 2];
/// ECN codepoint of an ECN-capable packet.
const ECT: u8 = 0b10;
/// ECN codepoint of a packet that met congestion.
const CE: u8 = 0b11;

/// Capture: the frame of line n arrives at n ms, its output leaves 1 µs later.
pub fn write(case: &Case) -> Vec<u8> {
    let header = PcapHeader { datalink: DataLink::ETHERNET, endianness: Endianness::Little, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("a vector takes it");
    let mut put = |at_us: u32, packet: Vec<u8>| {
        let len = packet.len() as u32;
        let (ts_sec, ts_frac) = (at_us / 1_000_000, at_us % 1_000_000);
        let record = RawPcapPacket { ts_sec, ts_frac, incl_len: len, orig_len: len, data: packet.into() };
        writer.write_raw_packet(&record).expect("a vector takes it");
    };
    for (line, at_us) in case.lines.iter().zip((2..).map(|line| line * 1_000)) {
        let CorpusLine::Step { step: ProgramStep::Frame { bytes, congested }, effect: StepEffect::Frame(outcome) } =
            line
        else {
            continue;
        };
        let from = Base::new_checked(&bytes[..]).map_or(NOBODY, |base| address(base.src()));
        put(at_us, packet(from, ELEMENT, if *congested { CE } else { ECT }, bytes));
        let left: &[(u32, Vec<u8>)] = match outcome {
            ProgramOutcome::Forward(endpoint, frame) => &[(*endpoint, frame.clone())],
            ProgramOutcome::Copies(copies) => copies,
            ProgramOutcome::Drop(_) => &[],
        };
        for (endpoint, frame) in left {
            put(at_us + 1, packet(ELEMENT, address(*endpoint), ECT, frame));
        }
    }
    writer.into_writer()
}

/// Address of an endpoint: 10.0.x.y, where x and y are the low 16 bits of its number.
fn address(endpoint: u32) -> [u8; 4] {
    let [.., high, low] = endpoint.to_be_bytes();
    [10, 0, high, low]
}

fn packet(from: [u8; 4], to: [u8; 4], ecn: u8, frame: &[u8]) -> Vec<u8> {
    let mac = |[a, b, c, d]: [u8; 4]| [2, 0, a, b, c, d];
    let mut ip = Ipv4Header::new(8 + frame.len() as u16, 64, IpNumber::UDP, from, to).expect("fits a packet");
    ip.ecn = ecn.try_into().expect("two bits");
    ip.header_checksum = ip.calc_header_checksum();
    let udp = UdpHeader::with_ipv4_checksum(PORT, PORT, &ip, frame).expect("fits a packet");
    let ethernet = Ethernet2Header { source: mac(from), destination: mac(to), ether_type: etherparse::EtherType::IPV4 };
    [&ethernet.to_bytes()[..], &ip.to_bytes(), &udp.to_bytes(), frame].concat()
}

#[test]
fn capture_contains_frames_of_case() {
    for (name, case) in super::cases() {
        let file = std::fs::read(super::folder().join(format!("{name}.pcap"))).expect("a capture");
        let mut reader = PcapReader::new(&file[..]).expect("a capture");
        let mut captured = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a packet").data.into_owned();
            let headers = etherparse::PacketHeaders::from_ethernet_slice(&packet).expect("headers");
            let Some(etherparse::TransportHeader::Udp(udp)) = headers.transport else { panic!("no UDP") };
            let Some(etherparse::NetHeaders::Ipv4(ip, _)) = headers.net else { panic!("no IPv4") };
            let payload = headers.payload.slice().to_vec();
            assert_eq!(udp.calc_checksum_ipv4(&ip, &payload), Ok(udp.checksum));
            assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
            captured.push((ip.source == ELEMENT, payload));
        }
        let mut frames = Vec::new();
        for line in &case.lines {
            let CorpusLine::Step { step: ProgramStep::Frame { bytes, .. }, effect: StepEffect::Frame(outcome) } = line
            else {
                continue;
            };
            frames.push((false, bytes.clone()));
            match outcome {
                ProgramOutcome::Forward(_, frame) => frames.push((true, frame.clone())),
                ProgramOutcome::Copies(copies) => frames.extend(copies.iter().map(|(_, frame)| (true, frame.clone()))),
                ProgramOutcome::Drop(_) => {}
            }
        }
        assert!(captured == frames, "{name}: {} packets, {} frames", captured.len(), frames.len());
    }
}
