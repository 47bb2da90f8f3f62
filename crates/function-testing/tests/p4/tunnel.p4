// IPv4 tunnel: the first switch adds a header with the tunnel's id before the IPv4 header, switches forward by the id,
// and the last switch removes the header.
#include <inet.p4>

const bit<16> TYPE_TUNNEL = 0x1212;

typedef bit<9> port_t;

header tunnel_t {
    bit<16> protocol;
    bit<16> id;
}

struct headers {
    ethernet_t ethernet;
    tunnel_t tunnel;
    ipv4_t ipv4;
}

struct metadata { }

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            TYPE_TUNNEL: parse_tunnel;
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_tunnel {
        packet.extract(hdr.tunnel);
        transition select(hdr.tunnel.protocol) {
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
    counter(1 << 16, CounterType.packets_and_bytes) begun;
    counter(1 << 16, CounterType.packets_and_bytes) ended;

    action drop() { mark_to_drop(standard_metadata); }

    action begin(bit<16> id) {
        hdr.tunnel.setValid();
        hdr.tunnel.id = id;
        hdr.tunnel.protocol = hdr.ethernet.etherType;
        hdr.ethernet.etherType = TYPE_TUNNEL;
        begun.count((bit<32>)hdr.tunnel.id);
    }
    table entrance {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { begin; drop; NoAction; }
        size = 1024;
        default_action = NoAction();
    }

    action forward(port_t port) { standard_metadata.egress_spec = port; }
    action end(bit<48> mac, port_t port) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.dstAddr = mac;
        hdr.ethernet.etherType = hdr.tunnel.protocol;
        hdr.tunnel.setInvalid();
        ended.count((bit<32>)hdr.tunnel.id);
    }
    table way {
        key = { hdr.tunnel.id: exact; }
        actions = { forward; end; drop; }
        size = 1024;
        default_action = drop();
    }

    apply {
        if (hdr.ipv4.isValid() && !hdr.tunnel.isValid()) {
            entrance.apply();
        }
        if (hdr.tunnel.isValid()) {
            switch (way.apply().action_run) {
                drop: { return; }
                end:
                forward: { }
                default: { drop(); }
            }
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }

control MyComputeChecksum(inout headers hdr, inout metadata meta) { apply { } }

control MyDeparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.tunnel);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
