//! Generator of captures from a seed: flows with Zipf frequencies over IPv4 and IPv6, TCP and UDP, each packet
//! truncated as with `tcpdump -s`.

use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use etherparse::PacketBuilder;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};

/// Number of flows.
const FLOWS: usize = 4000;
/// Captured bytes of a packet.
const SNAPLEN: u32 = 96;
/// Longest payload.
const PAYLOAD_MAX: u64 = 1400;
/// Time between packets.
const STEP: Duration = Duration::from_micros(50);
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Generates the capture as a pcap file.
pub fn capture(seed: u64, packets: usize) -> Result<Vec<u8>> {
    let header = PcapHeader { snaplen: SNAPLEN, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).context("cannot write the capture")?;
    let mut random = Random(seed);
    let payload = [0; PAYLOAD_MAX as usize];
    let mut packet = Vec::new();
    for n in 0..packets {
        // Inverse of the harmonic distribution: rank r with probability about 1/r.
        let rank = (FLOWS as f64).powf(random.unit()) as u64;
        let len = random.below(PAYLOAD_MAX + 1) as usize;
        packet.clear();
        write(&mut packet, seed, rank, &payload[..len])?;
        let at = STEP * n as u32;
        let kept = packet.len().min(SNAPLEN as usize);
        let record = RawPcapPacket {
            ts_sec: at.as_secs() as u32,
            ts_frac: at.subsec_micros(),
            incl_len: kept as u32,
            orig_len: packet.len() as u32,
            data: packet[..kept].into(),
        };
        writer.write_raw_packet(&record).context("cannot write the capture")?;
    }
    Ok(writer.into_writer())
}

/// Writes a packet of the flow with this rank.
fn write(packet: &mut Vec<u8>, seed: u64, rank: u64, payload: &[u8]) -> Result<()> {
    // A flow depends only on its rank.
    let mut random = Random(seed ^ rank.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (tcp, v6) = (random.below(4) > 0, random.below(4) == 0);
    let [a, b] = [random.next() as u16, random.next() as u16];
    let ports = (1024 + (random.below(60_000) as u16), [443, 80, 53, 22][random.below(4) as usize]);
    let link = PacketBuilder::ethernet2(MAC[0], MAC[1]);
    let ip = if v6 {
        let address = |host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).octets();
        link.ipv6(address(a), address(b), 64)
    } else {
        let [a, b] = [a, b].map(u16::to_be_bytes);
        link.ipv4([10, 1, a[0], a[1]], [10, 2, b[0], b[1]], 64)
    };
    if tcp {
        ip.tcp(ports.0, ports.1, 1, u16::MAX).write(packet, payload)?;
    } else {
        ip.udp(ports.0, ports.1).write(packet, payload)?;
    }
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Random number in 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
