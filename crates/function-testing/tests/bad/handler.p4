=== whole
#include <inet.p4>
struct metadata { bit<32> bits; }
request { float f; bit<32> b; }
response { float f; }
void remote_handler(in request req, out response res) { res->f = req->f; }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply {
        req.f = md.bits;
        req.b = req.f;
        req.f = req.f + req.f;
        res.f = (float)md.bits;
    }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {
    apply { res.f = res.f; }
}
#include <pipeline.p4>
=== whole
#include <inet.p4>
struct metadata { }
request { bit<8> a; }
response { bit<8> b; }
void remote_handler(in request req, out response res) { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply { if (hdr.ipv4.isValid()) { remote_handler(req, res); } }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
=== whole
#include <inet.p4>
struct metadata { }
request { bit<8> a; }
response { bit<8> b; }
void remote_handler(out response res) { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply { }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
=== top
state { int a; }
=== top
request { bit<8> a; h_t h; }
partition bit<16> ports = 10 .. 5;
partition bool ports2 = 0 .. 1;
=== top
void remote_handler(in request req, out response res) { if (1) { } // }
=== top
void remote_handler(in request req, out response res) { }
void remote_handler(in request req, out response res) { }
request { } response { }
