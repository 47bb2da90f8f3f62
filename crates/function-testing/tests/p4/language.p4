// Language constructs that the other programs do not use.
#include <inet.p4>

#define TWICE(x) ((x) + (x))
#if defined(UNSET) || 2 + 3 > 7
#error "never read"
#elif TWICE(2) == 4
const int FOUR = TWICE(2);
#endif

error { TooManyTags, Odd }

type bit<16> group_t;
typedef tuple<bit<8>, bit<8>> pair_t;

enum Colour { red, green, blue }

header tag_t {
    bit<12> id;
    bit<4> colour;
    int<16> offset;
}

struct inner_t {
    bit<8> a;
    bit<8> b;
}

struct headers {
    ethernet_t ethernet;
    tag_t[3] tags;
    udp_t udp;
}

struct metadata {
    inner_t inner;
    group_t group;
    Colour colour;
    bit<4> tags;
    bool found;
    bit<32> sum;
}

// Sub-parser that returns the number of extracted tags.
parser Tags(packet_in packet, out tag_t[3] tags, out bit<4> count)(bit<12> last) {
    bit<4> seen = 0;
    state start {
        transition select(packet.lookahead<bit<4>>()) {
            0 &&& 0x8: tag;
            8 .. 11: done;
            default: reject;
        }
    }
    state tag {
        packet.extract(tags.next);
        seen = seen + 1;
        verify(tags.last.offset >= -5, error.Odd);
        transition select(tags.last.id, seen) {
            (last, _): done;
            (_, 3): done;
            default: start;
        }
    }
    state done {
        count = seen;
        transition accept;
    }
}

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    Tags(12w0xfff) tags;
    state start {
        packet.extract(hdr.ethernet);
        bit<16> type = hdr.ethernet.etherType;
        packet.advance(16);
        tags.apply(packet, hdr.tags, meta.tags);
        transition select(type, meta.tags > 0) {
            (TYPE_IPV4, true): udp;
            (TYPE_ARP, _): reject;
            (_, _): accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers hdr, inout metadata meta) { apply { } }

bit<32> larger(in bit<32> a, in bit<32> b) {
    if (a > b) {
        return a;
    }
    return b;
}

// Changes both arguments, which may be the same variable.
action swap(inout bit<8> a, inout bit<8> b) {
    bit<8> kept = a;
    a = b;
    b = kept;
}

control Look(in bit<16> port, inout metadata meta, out bool found) {
    action colour(Colour to) { meta.colour = to; }
    action group(out group_t group, bit<16> number) { group = (group_t)number; }
    table ports {
        key = {
            port: exact @name("port");
            meta.colour: exact;
            meta.found: exact;
        }
        actions = { colour; group(meta.group); }
        const entries = {
            (53, Colour.red, false): colour(Colour.green);
            (80, Colour.red, true): colour(Colour.blue);
        }
    }
    apply {
        found = ports.apply().hit;
        if (!found && (port == 7 || !ports.apply().miss)) {
            exit;
        }
    }
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    Look() first;
    Look() second;
    register<bit<32>>(16) sums;
    apply {
        first.apply(hdr.udp.srcPort, meta, meta.found);
        second.apply(hdr.udp.dstPort, meta, meta.found);
        pair_t pair = { 1, meta.inner.a };
        meta.inner = { b = meta.inner.a, a = meta.inner.b };
        swap(meta.inner.a, meta.inner.a);
        swap(meta.inner.a, meta.inner.b);
        bit<32> was;
        sums.read(was, (bit<32>)meta.tags);
        meta.sum = larger(was, (bit<32>)pair[1]) + (meta.found ? 32w1 : 0);
        sums.write((bit<32>)meta.tags, meta.sum);
        hash(meta.sum[15:0], HashAlgorithm.crc16, 16w0, { meta.inner, hdr.udp.srcPort, pair }, 32w1024);
        hdr.tags.push_front(1);
        hdr.tags[0] = { 1, 4w2, -FOUR };
        if (hdr.tags[1] == hdr.tags[2] || meta.inner != { 1, 2 }) {
            standard_metadata.egress_spec = (bit<9>)(bit<8>)(int<8>)(8s3 + (int<8>)meta.inner.a);
        }
        hdr.udp.dstPort[7:0] = hdr.udp.dstPort[15:8];
        clone(CloneType.I2E, 32w7);
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.instance_type == 1) {
            truncate(64);
            return;
        }
        hdr.udp.length_ = hdr.udp.length_ |-| 8;
    }
}

control MyComputeChecksum(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum_with_payload(hdr.udp.isValid(), { hdr.udp.srcPort, hdr.udp.dstPort, hdr.udp.length_ },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
