=== body
        md.x = md.y;
=== body
        md.x = 256;
=== body
        md.t = md.x;
=== body
        md.x = md.t;
=== body
        if (md.x) { }
=== body
        md.y = md.x + md.y;
=== body
        md.x = !md.x;
=== body
        md.t = ~md.t;
=== body
        md.x = md.x / 3;
=== body
        md.x = md.y[15:9];
=== body
        md.x = md.y[3:8];
=== body
        md.x[8:1] = 1;
=== body
        md.i = (int<8>)md.y;
=== body
        md.y = (bit<16>)md.i;
=== body
        md.x = md.x << md.i;
=== body
        md.x = md.x << -1;
=== body
        md.x = 1 << 200;
=== body
        md.x = 0w1;
=== body
        bit<129> wide;
=== body
        bit<0> none;
=== body
        int x = 3;
=== body
        md.x = { 1, 2 };
=== body
        hdr.h = { 1, 2 };
=== body
        hdr.h = { a = 1, b = 2, d = 3 };
=== body
        hdr.v = hdr.v;
        hdr.v.v = 3;
=== body
        hdr.h = hdr.v;
=== body
        md.t = hdr.h == md.x;
=== body
        md.x = md.t ? 8w1 : 16w2;
=== body
        md.x = hdr.s[md.x].a;
=== body
        md.x = hdr.s[2].a;
=== body
        md.x = hdr.s.next.a;
=== body
        3 = md.x;
=== body
        sm.enq_qdepth = 1;
=== top
header odd_t { bit<7> a; }
=== top
header nested_t { metadata m; }
=== top
header later_t { varbit<8> v; bit<8> a; }
=== top
const bit<8> k = 300;
=== top
bit<8> f(in bit<8> a) { if (a == 1) { return 2; } }
=== top
bit<8> f(in bit<8> a) { a = 3; return a; }
=== top
void f(in bit<8> a) { return a; }
=== top
action unused(bit<8> a) { a = 1; undefined(); }
=== top
control Unused(in bit<8> a) { apply { a = 1; } }
