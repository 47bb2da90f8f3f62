=== body
        md.z = 1;
=== body
        mdd.x = 1;
=== body
        hdr.h.aa = 1;
=== body
        nothing();
=== body
        mark_to_dorp(sm);
=== body
        hdr.h.isvalid();
=== body
        if (hdr.h.isValid) { }
=== body
        undefined_t x;
=== body
        bit<8> q = 1;
        bit<8> q = 2;
=== body
        I = 3;
=== body
        md.x = error.Nothing;
=== body
        CloneType c = CloneType.E3E;
=== locals
    table t { key = { md.x: exact; } actions = { missing; } }
=== locals
    action a() { }
    table t { key = { md.x: exact; } actions = { NoAction; } default_action = a(); }
=== states
    state start { transition parse_h; }
    state parse_ha { transition accept; }
=== top
enum bit<8> bad_t { a = 1, b }
=== top
struct s_t { bit<8> a; bit<16> a; }
=== whole
parser P(packet_in packet, out headers hdr) { state start { transition accept; } }
=== whole
#include <core.p4>
control I(inout standard_metadata_t sm) { apply { } }
=== headers
 missing_t m;
