=== locals
    table t { key = { md.x: ternary; } actions = { NoAction; } }
=== locals
    table t { key = { md.x: lpm; md.y: lpm; } actions = { NoAction; } }
=== locals
    table t { key = { md.t: lpm; } actions = { NoAction; } }
=== locals
    table t { key = { md.x: fuzzy; } actions = { NoAction; } }
=== locals
    action a(bit<8> v) { md.x = v; }
    table t {
        key = { md.x: exact; md.y: lpm; }
        actions = { a; }
        default_action = a();
        const entries = {
            (1, 2): a(300);
            (1, 0xff00 &&& 0x00ff): a(1);
            (1 .. 2, _): a(1);
            1: a(1);
        }
    }
=== locals
    meter(16, MeterType.bytes) m;
=== locals
    direct_counter(CounterType.packets) c;
=== locals
    register<headers>(16) r;
=== locals
    register<bit<8>>(0) r;
=== locals
    counter(16) c;
=== locals
    register<bit<8>>(16) r;
    action a() { r.read(md.y, 0); }
    apply { a(); r.count(1); r.write(md.i, 1); }
=== locals
    action a() { t.apply(); }
    table t { key = { md.x: exact; } actions = { NoAction; } }
=== locals
    table t { key = { md.x: exact; } actions = { NoAction; } }
    action a() { t.apply(); }
    table u { key = { md.x: exact; } actions = { a; } }
=== body
        random(md.x, 0, 3);
=== body
        resubmit_preserving_field_list(0);
=== body
        clone(CloneType.E2E, 32w1);
=== body
        update_checksum(true, { md.x }, md.y, HashAlgorithm.csum16);
=== body
        hash(md.y, HashAlgorithm.crc32_custom, 16w0, { md.x }, 32w8);
=== body
        hash(md.t, HashAlgorithm.crc32, 16w0, { md.x }, 32w8);
=== body
        hash(md.y, HashAlgorithm.crc32, { md.x });
=== body
        steer(md.y);
=== body
        verify(md.t, error.NoMatch);
=== body
        log_msg("here");
=== body
        switch (md.x) { 1: { } default: { } 2: { } }
=== body
        remote_handler(md, md);
=== states
    state start {
        if (packet.lookahead<bit<8>>() == 1) { packet.extract(hdr.s.next); }
        transition accept;
    }
=== states
    state start { packet.extract(hdr.v); transition accept; }
=== states
    state start { packet.extract(hdr.h, 8); transition accept; }
=== states
    state start { packet.extract(hdr); packet.extract(md.x); transition accept; }
=== states
    state start { exit; }
=== states
    state start { transition select(md.x, md.y) { 1: accept; (1, 2): accept; (5 .. 3, _): accept; } }
=== states
    state start { md.x = packet.length(); transition accept; }
=== top
parser Again(packet_in packet, out h_t h) { state start { Again.apply(packet, h); transition accept; } }
=== top
control Again(inout h_t h) { apply { Again.apply(h); } }
=== top
bit<8> again(in bit<8> a) { return again(a); }
=== whole
#include <inet.p4>
struct metadata { }
control D(packet_out packet, in inet_t hdr) { apply { packet.emit(hdr.ipv4.ttl); } }
control I(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
control C(inout inet_t hdr, inout metadata md) { apply { } }
parser P(packet_in packet, out inet_t hdr, inout metadata md, inout standard_metadata_t sm) {
    state start { transition accept; }
}
V1Switch(P(), C(), I(), C(), I(), D()) main;
=== whole
#include <inet.p4>
request { bit<8> a; }
response { inet_t all; }
state { int x; }
