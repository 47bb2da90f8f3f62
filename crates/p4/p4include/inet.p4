// Internet headers, a parser for them, and common actions and functions: #include <inet.p4>
//
// Lengths are as on the wire: an IPv4 header's ihl and a TCP header's dataOffset count 32-bit words. Checksums are
// updated incrementally, so options and payload need not be parsed.
#ifndef INET_P4
#define INET_P4

#include <core.p4>
#include <v1model.p4>

// EtherTypes
const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_ARP = 0x0806;
const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_IPV6 = 0x86dd;

// Protocols of IPv4, next headers of IPv6
const bit<8> PROTO_ICMP = 1;
const bit<8> PROTO_TCP = 6;
const bit<8> PROTO_UDP = 17;
const bit<8> PROTO_ICMPV6 = 58;

// Types of ICMP messages
const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_UNREACHABLE = 3;
const bit<8> ICMP_ECHO = 8;
const bit<8> ICMP_TIME_EXCEEDED = 11;
const bit<8> ICMP_PARAMETER_PROBLEM = 12;

// Bits of tcp_t.flags
const bit<8> TCP_FIN = 0x01;
const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_RST = 0x04;
const bit<8> TCP_PSH = 0x08;
const bit<8> TCP_ACK = 0x10;
const bit<8> TCP_URG = 0x20;
const bit<8> TCP_ECE = 0x40;
const bit<8> TCP_CWR = 0x80;

header ethernet_t {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

// IEEE 802.1Q
header vlan_t {
    bit<3> pcp;
    bit<1> dei;
    bit<12> vid;
    bit<16> etherType;
}

// RFC 826, for Ethernet and IPv4
header arp_t {
    bit<16> hardwareType;
    bit<16> protocolType;
    bit<8> hardwareLen;
    bit<8> protocolLen;
    bit<16> operation;
    bit<48> senderHardware;
    bit<32> senderAddr;
    bit<48> targetHardware;
    bit<32> targetAddr;
}

// RFC 791; diffserv holds DSCP and ECN (RFC 2474, RFC 3168); options are in ipv4_options_t
header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragOffset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

header ipv4_options_t {
    varbit<320> options;
}

// RFC 8200
header ipv6_t {
    bit<4> version;
    bit<8> trafficClass;
    bit<20> flowLabel;
    bit<16> payloadLen;
    bit<8> nextHdr;
    bit<8> hopLimit;
    bit<128> srcAddr;
    bit<128> dstAddr;
}

// RFC 9293; options are in tcp_options_t
header tcp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> seqNo;
    bit<32> ackNo;
    bit<4> dataOffset;
    bit<4> res;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgentPtr;
}

header tcp_options_t {
    varbit<320> options;
}

// RFC 768
header udp_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length_;
    bit<16> checksum;
}

// RFC 792; the meaning of `rest` depends on the type: for an echo, identifier and sequence number
header icmp_t {
    bit<8> type;
    bit<8> code;
    bit<16> checksum;
    bit<32> rest;
}

// First 8 bytes after an IPv4 header, as an ICMP error quotes them: the ports of UDP and TCP, and 4 more bytes
header ports_t {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> rest;
}

// All headers, in the order of emission.
struct inet_t {
    ethernet_t ethernet;
    vlan_t vlan;
    arp_t arp;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
    tcp_t tcp;
    tcp_options_t tcp_options;
    udp_t udp;
    icmp_t icmp;
    ipv4_t inner;   // IPv4 header quoted by an ICMP error
    ports_t quoted; // the bytes after it
}

// Parses a packet up to its ports. The rest of later fragments stays payload, as well as the bytes after an extension
// header of IPv6, and the quotation of an ICMP error unless it is TCP or UDP after a header without options. A header
// whose length field is too small ends the parser with HeaderTooShort.
parser InetParser(packet_in packet, out inet_t hdr) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            TYPE_VLAN: vlan;
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.etherType) {
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.ihl >= 5, error.HeaderTooShort);
        transition select(hdr.ipv4.ihl) {
            5: ipv4_payload;
            default: ipv4_options;
        }
    }
    state ipv4_options {
        packet.extract(hdr.ipv4_options, (bit<32>)(hdr.ipv4.ihl - 5) << 5);
        transition ipv4_payload;
    }
    state ipv4_payload {
        transition select(hdr.ipv4.fragOffset, hdr.ipv4.protocol) {
            (0, PROTO_TCP): tcp;
            (0, PROTO_UDP): udp;
            (0, PROTO_ICMP): icmp;
            default: accept;
        }
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.nextHdr) {
            PROTO_TCP: tcp;
            PROTO_UDP: udp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        verify(hdr.tcp.dataOffset >= 5, error.HeaderTooShort);
        transition select(hdr.tcp.dataOffset) {
            5: accept;
            default: tcp_options;
        }
    }
    state tcp_options {
        packet.extract(hdr.tcp_options, (bit<32>)(hdr.tcp.dataOffset - 5) << 5);
        transition accept;
    }
    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            ICMP_UNREACHABLE: icmp_error;
            ICMP_TIME_EXCEEDED: icmp_error;
            ICMP_PARAMETER_PROBLEM: icmp_error;
            default: accept;
        }
    }
    state icmp_error {
        // Version and length, fragment offset, protocol: the quoted packet must have ports.
        transition select(packet.lookahead<ipv4_t>().version, packet.lookahead<ipv4_t>().ihl,
                          packet.lookahead<ipv4_t>().fragOffset, packet.lookahead<ipv4_t>().protocol) {
            (4, 5, 0, PROTO_TCP): icmp_quoted;
            (4, 5, 0, PROTO_UDP): icmp_quoted;
            (4, 5, 0, PROTO_ICMP): icmp_quoted;
            default: accept;
        }
    }
    state icmp_quoted {
        packet.extract(hdr.inner);
        packet.extract(hdr.quoted);
        transition accept;
    }
}

control InetDeparser(packet_out packet, in inet_t hdr) {
    apply { packet.emit(hdr); }
}

// One's complement sum of two numbers (RFC 1071).
bit<16> ones_add(in bit<16> a, in bit<16> b) {
    bit<17> sum = (bit<17>)a + (bit<17>)b;
    return sum[15:0] + (bit<16>)sum[16:16];
}

// Checksum after a covered word has changed from `old` to `new` (RFC 1624, equation 3).
bit<16> csum_replace16(in bit<16> sum, in bit<16> old, in bit<16> new) {
    return ~ones_add(ones_add(~sum, ~old), new);
}

// Checksum after two covered words, such as an IPv4 address, have changed; carries are added once.
bit<16> csum_replace32(in bit<16> sum, in bit<32> old, in bit<32> new) {
    bit<19> all = (bit<19>)~sum + (bit<19>)~old[31:16] + (bit<19>)~old[15:0] + (bit<19>)new[31:16] + (bit<19>)new[15:0];
    bit<17> carried = (bit<17>)all[15:0] + (bit<17>)all[18:16];
    return ~(carried[15:0] + (bit<16>)carried[16:16]);
}

// Decrements the TTL.
void ipv4_decrement_ttl(inout ipv4_t ipv4) {
    bit<16> old = ipv4.ttl ++ ipv4.protocol;
    ipv4.ttl = ipv4.ttl - 1;
    ipv4.hdrChecksum = csum_replace16(ipv4.hdrChecksum, old, ipv4.ttl ++ ipv4.protocol);
}

// Turns a packet into an ICMP error about itself, sent by `source` (RFC 792); its IPv4 header and 8 more bytes are
// quoted. For IPv4 without options, followed by TCP, UDP or an unknown protocol. The rest of the packet still follows
// those 8 bytes: `truncate` to 14 + 20 + 8 + 20 + 8 bytes, and 4 more with a VLAN tag.
void icmp_answer(inout inet_t hdr, in bit<8> type, in bit<8> code, in bit<32> source) {
    hdr.inner = hdr.ipv4;
    hdr.quoted.setValid();
    if (hdr.tcp.isValid()) {
        hdr.quoted.srcPort = hdr.tcp.srcPort;
        hdr.quoted.dstPort = hdr.tcp.dstPort;
        hdr.quoted.rest = hdr.tcp.seqNo;
    } else if (hdr.udp.isValid()) {
        hdr.quoted.srcPort = hdr.udp.srcPort;
        hdr.quoted.dstPort = hdr.udp.dstPort;
        hdr.quoted.rest = hdr.udp.length_ ++ hdr.udp.checksum;
    } else {
        hdr.quoted.setInvalid();
    }
    hdr.tcp.setInvalid();
    hdr.tcp_options.setInvalid();
    hdr.udp.setInvalid();

    hdr.icmp.setValid();
    hdr.icmp.type = type;
    hdr.icmp.code = code;
    hdr.icmp.checksum = 0;
    hdr.icmp.rest = 0;
    // The sum over a header and its checksum is 0, so the quoted IPv4 header adds nothing.
    hash(hdr.icmp.checksum, HashAlgorithm.csum16, 16w0,
        { type, code, hdr.quoted.srcPort, hdr.quoted.dstPort, hdr.quoted.rest }, 17w0x10000);

    bit<48> mac = hdr.ethernet.srcAddr;
    hdr.ethernet.srcAddr = hdr.ethernet.dstAddr;
    hdr.ethernet.dstAddr = mac;
    hdr.ipv4.dstAddr = hdr.inner.srcAddr;
    hdr.ipv4.srcAddr = source;
    hdr.ipv4.diffserv = 0;
    hdr.ipv4.identification = 0;
    hdr.ipv4.flags = 0;
    hdr.ipv4.fragOffset = 0;
    hdr.ipv4.ttl = 64;
    hdr.ipv4.protocol = PROTO_ICMP;
    hdr.ipv4.totalLen = hdr.quoted.isValid() ? 16w56 : 48;
    hash(hdr.ipv4.hdrChecksum, HashAlgorithm.csum16, 16w0,
        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification,
          hdr.ipv4.flags, hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr },
        17w0x10000);
}

#endif
