=== body
        md.x = 1
        md.y = 2;
=== body
        md.x = 1 }
=== body
        if (md.t { md.x = 1; }
        md.x = ;
        md.y = 3
    
=== body
        md.x += 1;
=== body
        for (bit<8> i = 0; i < 3; i = i + 1) { }
=== body
        table t { key = { md.x: exact; } }
=== body
        bit<8> table = 1;
=== body
        md.x = 8w0xfg;
=== body
        md.x = 0x1ffffffffffffffffffffffffffffffff;
=== body
        md.x = "abc;
=== body
        md.x = 1; /* never closed
=== top
struct s { bit<8> a }
=== top
bit<8> global = 3;
=== top
control nothing(inout headers hdr) { action a() { } }
=== top
extern thing { thing(); }
=== top
header_union u { h_t a; }
=== top
struct g<T> { T x; }
=== top
#if 1 +
#endif
=== top
#include <nowhere.p4>
=== top
#include "core.p4"
=== top
#else
=== top
#if 1
=== top
#define F(a, b) a + b
const bit<8> k = F(1);
=== top
#frobnicate
=== locals
    table t {
        key = { md.x: exact; }
        actions = { NoAction; }
        implementation = nothing;
    }
=== locals
    table t {
        key = { md.x: exact; }
        actions = { NoAction; }
        colour = 3;
    }
=== states
    state start {
        transition accept;
        packet.extract(hdr.h);
    }
=== states
    value_set<bit<8>>(4) pvs;
    state start { transition accept; }
=== body
        md.x = ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))));
