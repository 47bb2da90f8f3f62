//! Flow of a packet: protocol, both addresses, both ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket};
use pcap_file::DataLink;

use crate::capture::Packet;

/// Protocols whose header begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// Bytes before the IP header: "cooked" captures have an EtherType at the end or the beginning of theirs.
const SLL_LEN: usize = 16;
const SLL2_LEN: usize = 20;
const NULL_LEN: usize = 4;

/// 5-tuple. Ports are 0 for other protocols and for fragments, of which only the first would have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Protocol field of the IP header.
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

impl Flow {
    /// Flow of a packet; `None` if it is not IP or too little was captured.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        let data = packet.data;
        let ether_type = |at: usize| Some(EtherType(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?])));
        let sliced = match packet.link {
            DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok()?,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(data).ok()?,
            DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(data.get(NULL_LEN..)?).ok()?,
            DataLink::LINUX_SLL => LaxSlicedPacket::from_ether_type(ether_type(SLL_LEN - 2)?, data.get(SLL_LEN..)?),
            DataLink::LINUX_SLL2 => LaxSlicedPacket::from_ether_type(ether_type(0)?, data.get(SLL2_LEN..)?),
            _ => return None,
        };
        let net = sliced.net?;
        let (source, destination): (IpAddr, IpAddr) = match &net {
            LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            LaxNetSlice::Arp(_) => return None,
        };
        let inner = net.ip_payload_ref()?;
        let protocol = inner.ip_number.0;
        // Read from the payload: a short capture may have the ports but not the whole transport header.
        let ports = inner.payload.first_chunk().filter(|_| WITH_PORTS.contains(&protocol) && !inner.fragmented);
        let [a, b, c, d] = ports.copied().unwrap_or_default();
        Some(Self {
            protocol,
            source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
            destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
        })
    }
}

/// `tcp 192.0.2.1:443 > 198.51.100.7:50123`
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match IpNumber(self.protocol) {
            IpNumber::TCP => f.write_str("tcp")?,
            IpNumber::UDP => f.write_str("udp")?,
            IpNumber(other) => write!(f, "ip-{other}")?,
        }
        write!(f, " {} > {}", self.source, self.destination)
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, VlanId};

    use super::*;

    fn flow(link: DataLink, data: &[u8]) -> Option<String> {
        Flow::of(&Packet { link, wire_len: data.len() as u32, data }).map(|flow| flow.to_string())
    }

    fn ethernet() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([192, 0, 2, 1], [198, 51, 100, 7], 64);
        let mut packet = Vec::new();
        builder.tcp(443, 50123, 1, 1).write(&mut packet, b"hello").unwrap();
        packet
    }

    const TCP: &str = "tcp 192.0.2.1:443 > 198.51.100.7:50123";

    #[test]
    fn packet_has_same_flow_on_every_link_layer() {
        let packet = ethernet();
        let ip = &packet[14..];
        let behind = |header: &[u8]| [header, ip].concat();
        assert_eq!(flow(DataLink::ETHERNET, &packet).unwrap(), TCP);
        assert_eq!(flow(DataLink::RAW, ip).unwrap(), TCP);
        assert_eq!(flow(DataLink::NULL, &behind(&[2, 0, 0, 0])).unwrap(), TCP);
        assert_eq!(flow(DataLink::LINUX_SLL, &behind(&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0])).unwrap(), TCP);
        let mut sll2 = [0; 20];
        sll2[0] = 8;
        assert_eq!(flow(DataLink::LINUX_SLL2, &behind(&sll2)).unwrap(), TCP);
        assert_eq!(flow(DataLink::IEEE802_11, &packet), None);
    }

    #[test]
    fn tags_ipv6_and_other_protocols_are_parsed() {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).single_vlan(VlanId::try_new(7).unwrap());
        let mut packet = Vec::new();
        builder.ipv6([1; 16], [2; 16], 64).udp(53, 5353).write(&mut packet, b"name").unwrap();
        let expected = "udp [101:101:101:101:101:101:101:101]:53 > [202:202:202:202:202:202:202:202]:5353";
        assert_eq!(flow(DataLink::ETHERNET, &packet).unwrap(), expected);

        let mut ping = Vec::new();
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        builder.icmpv4_echo_request(1, 1).write(&mut ping, &[]).unwrap();
        assert_eq!(flow(DataLink::RAW, &ping).unwrap(), "ip-1 10.0.0.1:0 > 10.0.0.2:0");
        // The same packet as a fragment of TCP.
        ping[9] = 6;
        ping[6] = 0x20;
        assert_eq!(flow(DataLink::RAW, &ping).unwrap(), "tcp 10.0.0.1:0 > 10.0.0.2:0");
    }

    #[test]
    fn truncated_packet_gives_partial_flow() {
        let packet = ethernet();
        for len in 0..packet.len() {
            let expected = match len {
                // Nothing after the IP header with both ports.
                34..38 => Some("tcp 192.0.2.1:0 > 198.51.100.7:0"),
                38.. => Some(TCP),
                _ => None,
            };
            assert_eq!(flow(DataLink::ETHERNET, &packet[..len]).as_deref(), expected, "{len}");
        }
    }
}
