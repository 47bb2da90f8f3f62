// ECN marking (RFC 3168): packets are marked while a port sends more bytes in a time window than its limit. Registers
// hold the rates.
#include <inet.p4>

#ifndef BYTES_A_WINDOW
#define BYTES_A_WINDOW 131072
#endif
#define WINDOW_BITS 14 // of microseconds: 16 ms

enum bit<2> Ecn {
    none = 0,
    ect1 = 1,
    ect0 = 2,
    ce = 3
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata {
    bit<32> sent;
}

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers hdr, inout metadata meta) { apply { } }

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = standard_metadata.ingress_port ^ 1;
    }
}

// Bytes that a port has sent in this window, this packet included.
control Meter(in bit<9> port, in bit<48> now, in bit<32> bytes, out bit<32> sum)(bit<32> ports) {
    register<bit<32>>(ports) windows;
    register<bit<32>>(ports) sums;
    apply {
        bit<32> index = (bit<32>)port;
        bit<32> window = (bit<32>)(now >> WINDOW_BITS);
        bit<32> last;
        windows.read(last, index);
        if (last == window) {
            sums.read(sum, index);
        } else {
            sum = 0;
            windows.write(index, window);
        }
        sum = sum |+| bytes;
        sums.write(index, sum);
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    Meter(512) meter;

    action mark() {
        bit<16> before = hdr.ipv4.version ++ hdr.ipv4.ihl ++ hdr.ipv4.diffserv;
        hdr.ipv4.diffserv[1:0] = Ecn.ce;
        hdr.ipv4.hdrChecksum = csum_replace16(hdr.ipv4.hdrChecksum, before,
            hdr.ipv4.version ++ hdr.ipv4.ihl ++ hdr.ipv4.diffserv);
    }

    apply {
        meter.apply(standard_metadata.egress_port, standard_metadata.ingress_global_timestamp,
            standard_metadata.packet_length, meta.sent);
        if (meta.sent <= BYTES_A_WINDOW || !hdr.ipv4.isValid()) {
            return;
        }
        Ecn ecn = (Ecn)hdr.ipv4.diffserv[1:0];
        switch (ecn) {
            Ecn.none: { mark_to_drop(standard_metadata); }
            Ecn.ect0:
            Ecn.ect1: { mark(); }
        }
    }
}

control MyComputeChecksum(inout headers hdr, inout metadata meta) { apply { } }

control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
