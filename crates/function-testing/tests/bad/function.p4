=== f.before
        req.hots = hdr.ipv4.srcAddr;
=== f.before
        req.host = hdr.ipv4.ttl;
=== f.before
        md.port = hdr.ipv4.dstAddr;
=== f.before
        hdr.ipv4.srcAdr = 1;
=== f.before
        hdr.tcpp.flags = 1;
=== f.before
        md.port = hdr.tcp.srcPort
        req.host = 1;
=== f.before
        req = { hdr.ipv4.srcAddr, md.port };
=== f.before
        res.verdict = 300;
=== f.before
        steer(ports, md.port);
=== f.before
        flight = 1;
=== f.before
        remote_handler(req, res);
=== f.before
        bit<16> sum = csum_replace16(hdr.ipv4.hdrChecksum, 1);
=== f.before
        float f = 1.5;
=== f.before
        req.host = hdr.ipv4.srcAddr * 1.5;
=== f.before
        md.port = hdr.ipv4.options;
=== f.before
        nat_out.apply();
=== f.before
        if (nat.apply().hit) { flight = true; }
=== f.behind
        req.host = 3;
=== f.behind
        res.verdict = 3;
=== f.behind
        mark_to_drop();
=== f.behind
        sm.egress_port = 1w1;
=== f.behind
        clone(CloneType.I2E, sm.ingress_port, 5);
=== f.request
 @flow bit<32> host; bit<32> host; 
=== f.request
 @flow bit<32> host; varbit<32> rest; 
=== f.request
 @flow bit<32> host; string name; 
=== f.request
 @flows bit<32> host; 
=== f.request
 @flow inet_t all; 
=== f.request
 @flow bit<200> host; 
=== f.request
 @flow double host; 
=== f.request
 @flow bit<32> host 
=== f.request
 @flow uint32_t host; 
=== f.top

response { bit<8> more; }
=== f.top

state { static int count;
=== f.top

state { static const char *name = "}; }
=== f.top

state { /* never closed }
=== f.top

partition bit<16> ports;
=== f.top

partition bit<16> ports = 0 .. 70000;
=== f.top

partition bit<128> addresses = 0 .. 70000;
=== f.top

partition bit<64> addresses = 0 .. 18446744073709551615;
=== f.top

partition bit<16> ports = 1 .. 2;
partition bit<16> ports = 3 .. 4;
=== f.top

struct metadata { bit<8> x; }
=== f.top

action flood() { sm.mcast_grp = 1; }
=== f.handler
 if (req->host) { res->verdict = 1; 
=== f.handler
 char c = '"; res->verdict = c; 
=== f.locals

    @mirrored table t { key = { hdr.ipv4.srcAddr: exact; } actions = { NoAction; } }
    @mirored table u { key = { hdr.ipv4.srcAddr: exact; } actions = { NoAction; } }
    apply { t.apply(); u.apply(); }
=== f.locals

    @mirrored counter(16, CounterType.packets) c;
=== f.locals

    table t { key = { hdr.ipv4.srcAddr: exact; } actions = { NoAction; } idle_timeout = soon; }
=== f.locals

    table t { key = { hdr.ipv4.srcAddr: range; } actions = { NoAction; } }
=== f.locals

    table t { actions = { NoAction; } size = 0; }
=== f.locals

    action one() { } action one() { }
=== f.locals

    action set(@idnex bit<32> index) { md.port = (bit<16>)index; }
    table t { key = { hdr.ipv4.srcAddr: exact; } actions = { set; } }
=== f.locals

    action a() { b(); }
    action b() { a(); }
=== f.locals

    extern Meter { Meter(); }
=== f.locals

    register<bit<32>>(16) cells
=== whole
#include <inet.p4>
response { bit<8> verdict; }
void remote_handler(in request req, out response res) { }
struct metadata { }
=== whole
#include <inet.p4>
request { bit<8> a; }
void remote_handler(in request req, out response res) { }
struct metadata { }
=== whole
#include <inet.p4>
request { bit<8> a; }
response { bit<8> b; }
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) { apply { } }
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
=== whole
#include <inet.p4>
request { bit<8> a; }
response { bit<8> b; }
void remote_handler(in request req, out response res) { }
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) { apply { } }
#include <pipeline.p4>
=== whole
#include <inet.p4>
request { bit<8> a; }
response { bit<8> b; }
void remote_handler(in request req, out response res) { }
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md) { apply { } }
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
=== whole
#include <inet.p4>
request { bit<8> a; }
response { bit<8> b; }
remote_handler(in request req, out response res) { }
=== whole
#include <inet.p4>
void remote_handler(in request req, out response res) { }
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
#include <pipeline.p4>
=== whole
=== whole
#include <inet.p4>
request { bit<8> a; }
response { bit<8> b; }
void remote_handler(in request req, out response res) { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) { apply { } }
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
=== whole
just some words
=== whole
{ "json": true }
