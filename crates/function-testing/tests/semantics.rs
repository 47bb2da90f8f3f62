//! Tests of the language's semantics: compiled, run by the interpreter, and compared with the results of P4_16.

use pathcall_p4::emit::p4::emit;
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{Match, Program, TableEntry};
use pathcall_p4::{DiagnosticReport, Sources, compile};
use proptest::prelude::*;
use std::path::Path;

const FRAME: &str = "#include <inet.p4>
header h_t { bit<8> a; bit<8> b; bit<16> c; }
struct headers { h_t h; h_t[3] s; }
struct pair_t { bit<8> x; bit<8> y; }
struct metadata { pair_t p; bit<8> x; bool t; }
@top
parser P(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata md) { apply { } }
control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {
    @locals
    apply { @body }
}
control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

fn compiled(name: &str, text: &str) -> Program {
    let mut sources = Sources::new(Vec::new());
    compile(&mut sources, (name, text)).unwrap_or_else(|wrong| panic!("{text}\n{}", DiagnosticReport(&wrong, &sources)))
}

fn file(name: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/p4").join(name);
    compiled(name, &std::fs::read_to_string(path).expect("a program"))
}

/// Output packets with their ports.
fn run(interpreter: &mut Interpreter, port: u16, packet: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut left = Vec::new();
    interpreter.process(1, port, packet, &mut |output| {
        if let Output::Packet { port, bytes } = output {
            left.push((port, bytes.to_vec()));
        }
    });
    left
}

/// Output bytes; the same program emitted as P4 and read back must give the same.
fn bytes_after(top: &str, locals: &str, body: &str, packet: &[u8]) -> Vec<u8> {
    let text = FRAME.replace("@top", top).replace("@locals", locals).replace("@body", body);
    let program = compiled("body.p4", &text);
    let again = compiled("again.p4", &emit(&program).expect("P4 has words for it"));
    let [first, second] = [program, again].map(|program| {
        let left = run(&mut Interpreter::new(&program).expect("runs"), 1, packet);
        assert_eq!(left.len(), 1, "{body}");
        left[0].1.clone()
    });
    assert_eq!(first, second, "{body}: original and re-emitted program");
    first
}

/// Locals and statements, with the resulting value of the header, initially `05 07 12 34`.
const BODIES: &[(&str, &str, [u8; 4])] = &[
    ("", "", [5, 7, 0x12, 0x34]),
    ("", "hdr.h.a = hdr.h.a - 6;", [255, 7, 0x12, 0x34]),
    ("", "hdr.h.a = hdr.h.a |-| 6; hdr.h.b = hdr.h.b |+| 250;", [0, 255, 0x12, 0x34]),
    ("", "hdr.h.c = hdr.h.a ++ hdr.h.b;", [5, 7, 5, 7]),
    ("", "hdr.h.c[11:4] = 0xff;", [5, 7, 0x1f, 0xf4]),
    ("", "hdr.h.c[11:4][3:0] = 0;", [5, 7, 0x12, 0x04]),
    ("", "hdr.h.a = hdr.h.c[11:4];", [0x23, 7, 0x12, 0x34]),
    ("", "hdr.h.c = (bit<16>)(int<16>)(int<8>)(hdr.h.a - 6);", [5, 7, 0xff, 0xff]),
    ("", "hdr.h.a = (bit<8>)((int<8>)(hdr.h.a - 6) >> 1);", [255, 7, 0x12, 0x34]),
    ("", "hdr.h.a = 1 + 2 * 3 << 1 & 0xf;", [14, 7, 0x12, 0x34]),
    ("", "hdr.h.a = hdr.h.a & 4 == 4 ? 8w1 : 2;", [1, 7, 0x12, 0x34]),
    ("", "hdr.h = { hdr.h.b, hdr.h.a, 1 };", [7, 5, 0, 1]),
    ("", "hdr.h = { c = 3, b = hdr.h.a, a = hdr.h.b };", [7, 5, 0, 3]),
    ("", "tuple<bit<8>, bit<8>> t = { hdr.h.a, hdr.h.b }; hdr.h.a = t[1]; hdr.h.b = t[0];", [7, 5, 0x12, 0x34]),
    (
        "",
        "pair_t p = { 1, 2 }; md.p = p; p.x = 9; hdr.h.a = md.p.x; if (md.p != p) { hdr.h.b = p.x; }",
        [1, 9, 0x12, 0x34],
    ),
    // Assignments read all old values first: headers, fields and validity.
    (
        "",
        "two_t t; t.a = hdr.h; t.b.setValid(); t.b.a = 9; t = { t.b, t.a }; hdr.h.a = t.a.a; hdr.h.b = t.b.b + 1;",
        [9, 8, 0x12, 0x34],
    ),
    (
        "",
        "with_t t = { hdr.h, 1 }; h_t other; other.setValid(); other.a = 9; t = { other, t.h.a };
        hdr.h.a = t.h.a; hdr.h.b = t.f;",
        [9, 5, 0x12, 0x34],
    ),
    ("", "with_t t = { hdr.h, 1 }; h_t none; t = { none, t.h.a }; hdr.h.b = t.f;", [5, 5, 0x12, 0x34]),
    ("", "bits_t x; x = { (bit<1>)x.isValid(), 7w0 }; hdr.h.a = (bit<8>)x.v;", [0, 7, 0x12, 0x34]),
    // Arguments are copied in and out, in order (P4_16 §6.8).
    (
        "action swap(inout bit<8> a, inout bit<8> b) { bit<8> k = a; a = b; b = k; }",
        "swap(hdr.h.a, hdr.h.b);",
        [7, 5, 0x12, 0x34],
    ),
    (
        "action both(inout bit<8> a, inout bit<8> b) { a = 1; b = a + 10; }",
        "both(hdr.h.a, hdr.h.a);",
        [11, 7, 0x12, 0x34],
    ),
    ("action reached(inout bit<8> a) { a = 1; hdr.h.b = hdr.h.a; }", "reached(hdr.h.a);", [1, 5, 0x12, 0x34]),
    ("action kept(in bit<8> a) { hdr.h.a = 1; hdr.h.b = a; }", "kept(hdr.h.a);", [1, 5, 0x12, 0x34]),
    ("action cleared(out bit<8> a) { }", "cleared(hdr.h.a);", [0, 7, 0x12, 0x34]),
    // Inputs are copied before outputs are cleared.
    ("action less(out bit<8> r, in bit<8> a) { r = a - 1; }", "less(hdr.h.a, hdr.h.a);", [4, 7, 0x12, 0x34]),
    ("action set(out bit<8> r, in bit<8> a) { r = a; }", "set(hdr.h.a, hdr.h.a + 1);", [6, 7, 0x12, 0x34]),
    ("action anew(out h_t h, in bit<8> a) { h.setValid(); h.b = a; }", "anew(hdr.h, hdr.h.a);", [0, 5, 0, 0]),
    ("action bits(inout bit<8> a) { a = a + 1; }", "bits(hdr.h.c[11:4]);", [5, 7, 0x12, 0x44]),
    (
        "action named(in bit<8> a, in bit<8> b) { hdr.h.a = a; hdr.h.b = b; }",
        "named(b = 1, a = 2);",
        [2, 1, 0x12, 0x34],
    ),
    ("action leave(inout bit<8> a) { a = 1; exit; }", "leave(hdr.h.a); hdr.h.b = 9;", [1, 7, 0x12, 0x34]),
    (
        "action leave(inout bit<8> a) { a = 1; hdr.h.b = hdr.h.a; exit; }",
        "leave(hdr.h.a); hdr.h.b = 9;",
        [1, 5, 0x12, 0x34],
    ),
    (
        "action back(inout bit<8> a) { if (a == 5) { a = 1; return; } a = 2; }",
        "back(hdr.h.a); back(hdr.h.b);",
        [1, 2, 0x12, 0x34],
    ),
    // A call's side effect does not change operands evaluated before it.
    ("", "hdr.h.a = hdr.h.a + bump(hdr.h.a);", [11, 7, 0x12, 0x34]),
    ("", "hdr.h = { hdr.h.a, bump(hdr.h.a), 0 };", [5, 6, 0, 0]),
    ("", "hdr.h.b = second(hdr.h.a, bump(hdr.h.a)) + hdr.h.a;", [6, 11, 0x12, 0x34]),
    ("", "pair_t p = { x = hdr.h.a, y = bump(hdr.h.a) }; hdr.h.b = p.x;", [6, 5, 0x12, 0x34]),
    ("", "tuple<pair_t, bit<8>> t = { { hdr.h.a, 1 }, bump(hdr.h.a) }; hdr.h.b = t[0].x;", [6, 5, 0x12, 0x34]),
    ("", "tuple<h_t, bit<8>> t = { hdr.h, bump(hdr.h.a) }; hdr.h = t[0];", [5, 7, 0x12, 0x34]),
    (
        "register<bit<8>>(8) r;",
        "r.write((bit<32>)hdr.h.a, bump(hdr.h.a)); r.read(hdr.h.b, 5); r.read(hdr.h.a, 6);",
        [0, 6, 0x12, 0x34],
    ),
    (
        "",
        "hash(hdr.h.c, HashAlgorithm.crc32, (bit<16>)hdr.h.a, { bump(hdr.h.a) }, (bit<16>)(hdr.h.a - 5));",
        [6, 7, 0, 5],
    ),
    // Short-circuit evaluation.
    ("", "if (hdr.h.a == 5 || bump(hdr.h.b) == 0) { hdr.h.c = 0; }", [5, 7, 0, 0]),
    ("", "if (hdr.h.a == 4 && bump(hdr.h.b) == 8) { hdr.h.c = 0; }", [5, 7, 0x12, 0x34]),
    ("", "hdr.h.a = hdr.h.a == 4 ? bump(hdr.h.b) : 3;", [3, 7, 0x12, 0x34]),
    // Tables.
    (
        "action set(bit<8> v) { hdr.h.a = v; }
        table t { key = { hdr.h.a: exact; } actions = { set; NoAction; } const entries = { 5: set(9); } }",
        "if (t.apply().hit) { hdr.h.b = 1; } if (t.apply().miss) { hdr.h.c = 2; }",
        [9, 1, 0, 2],
    ),
    (
        "action add(in bit<8> v, bit<8> w) { hdr.h.a = v + w; }
        table t { key = { hdr.h.c: lpm; } actions = { add(hdr.h.b); NoAction; }
            const entries = { 0x1230 &&& 0xfff0: add(hdr.h.b, 3); 0x1200 &&& 0xff00: add(4); _: NoAction(); } }",
        "switch (t.apply().action_run) { NoAction: { hdr.h.b = 1; } add: { hdr.h.b = 2; } }",
        [10, 2, 0x12, 0x34],
    ),
    ("", "switch (hdr.h.a) { 1: 5: { hdr.h.b = 1; } default: { hdr.h.b = 2; } }", [5, 1, 0x12, 0x34]),
    ("", "switch (hdr.h.a) { 1: { hdr.h.b = 1; } 2: default: { hdr.h.b = 2; } }", [5, 2, 0x12, 0x34]),
    ("register<bit<8>>(4) r;", "r.write(1, hdr.h.b + 1); r.read(hdr.h.a, 1); r.read(hdr.h.b, 9);", [8, 0, 0x12, 0x34]),
    ("Sub(3) sub;", "sub.apply(hdr.h.a, hdr.h.b);", [15, 7, 0x12, 0x34]),
    // `exit` copies out for the control that it ends.
    ("", "Low.apply(hdr.h.a[3:0]); hdr.h.b = 9;", [6, 7, 0x12, 0x34]),
    (
        "",
        "if (hdr.h.b == 8) { Low.apply(hdr.h.a[3:0]); } High.apply(hdr.h.a[7:4]); hdr.h.b = 9;",
        [0x25, 7, 0x12, 0x34],
    ),
    ("", "if (hdr.h.b == 8) { Plain.apply(); } High.apply(hdr.h.a[7:4]); hdr.h.b = 9;", [0x25, 7, 0x12, 0x34]),
    // Each application has its own arguments and its own action.
    ("", "Bump.apply(hdr.h.a); Bump.apply(hdr.h.b); Bump.apply(hdr.h.a);", [7, 8, 0x12, 0x34]),
];

const TOP: &str = "struct two_t { h_t a; h_t b; }
struct with_t { h_t h; bit<8> f; }
header bits_t { bit<1> v; bit<7> r; }
action leave() { exit; }
control Low(inout bit<4> v) {
    table t { actions = { leave; } default_action = leave(); }
    apply { v = 6; t.apply(); }
}
control High(inout bit<4> v) {
    table t { actions = { leave; } default_action = leave(); }
    apply { v = 2; t.apply(); }
}
control Plain() {
    table t { actions = { leave; } default_action = leave(); }
    apply { t.apply(); }
}
bit<8> bump(inout bit<8> a) { a = a + 1; return a; }
bit<8> second(in bit<8> a, in bit<8> b) { return a; }
control Sub(inout bit<8> a, in bit<8> b)(bit<8> times) {
    action twice() { a = a + b; }
    apply { a = a + times; if (b == 7) { twice(); return; } a = 0; }
}
control Bump(inout bit<8> a) {
    action more() { a = a + 1; }
    table t { key = { a: exact; } actions = { more; } default_action = more(); }
    apply { t.apply(); }
}";

#[test]
fn statements_have_p4_semantics() {
    for (locals, body, expected) in BODIES {
        let found = bytes_after(TOP, locals, body, &[5, 7, 0x12, 0x34]);
        assert_eq!(found, expected, "{locals} {body}");
    }
}

#[test]
fn header_stack_push_and_pop_move_elements() {
    let body = "hdr.s[0] = hdr.h; hdr.s.push_front(1); hdr.s[0].setValid(); hdr.s[0].a = 1; hdr.h.setInvalid();";
    assert_eq!(bytes_after("", "", body, &[5, 7, 0, 9, 8]), [1, 0, 0, 0, 5, 7, 0, 9, 8]);
    let body = "hdr.s[2] = hdr.h; hdr.s.pop_front(2); if (hdr.s[0] == hdr.h && !hdr.s[2].isValid()) { hdr.h.a = 0; }";
    assert_eq!(bytes_after("", "", body, &[5, 7, 0, 9]), [0, 7, 0, 9, 5, 7, 0, 9]);
}

/// Internet checksum over big-endian words (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

proptest! {
    #[test]
    fn incremental_checksum_matches_full_checksum(words in prop::array::uniform4(1..=u16::MAX), new in any::<u32>()) {
        let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let body = "bit<32> old = hdr.s[0].c ++ hdr.s[1].c; bit<32> new = hdr.h.c ++ hdr.s[2].c;
            hdr.h.c = csum_replace32(hdr.h.a ++ hdr.h.b, old, new);";
        let text = FRAME.replace("@top", "").replace("@locals", "").replace("@body", body).replace(
            "packet.extract(hdr.h);",
            "packet.extract(hdr.h); packet.extract(hdr.s.next); packet.extract(hdr.s.next); packet.extract(hdr.s.next);",
        );
        let mut interpreter = Interpreter::new(&compiled("checksum.p4", &text)).expect("runs");
        let before = checksum(&bytes(&words));
        let new = [(new >> 16) as u16, new as u16];
        let packet = bytes(&[before, new[0], 0, words[0], 0, words[1], 0, new[1]]);
        let left = run(&mut interpreter, 0, &packet);
        let after = u16::from_be_bytes([left[0].1[2], left[0].1[3]]);
        prop_assert_eq!(after, checksum(&bytes(&[new[0], new[1], words[2], words[3]])));
    }
}

#[test]
fn p4_source_routing_pops_one_port_per_hop() {
    let mut interpreter = Interpreter::new(&file("source_routing.p4")).expect("runs");
    let mut packet = vec![0; 12];
    packet.extend([0x12, 0x34, 0, 2, 0, 3, 0x80, 1, 0xaa]);
    for port in [2, 3, 1] {
        let left = run(&mut interpreter, 7, &packet);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].0, port);
        packet = left[0].1.clone();
    }
    assert_eq!(packet[12..], [8, 0, 0xaa]);
    let mut long = vec![0; 12];
    long.extend([0x12, 0x34, 0, 2, 0, 2, 0, 2, 0, 2, 0x80, 1]);
    assert_eq!(run(&mut interpreter, 7, &long), [], "more hops than the stack holds");
}

#[test]
fn router_decrements_ttl_and_drops_bad_checksum() {
    let program = file("l3_router.p4");
    let mut interpreter = Interpreter::new(&program).expect("runs");
    let action = program.tables[0].actions[0];
    let key = Match { value: 0x0a01_0000, prefix_bits: 16 };
    let entry = TableEntry { keys: vec![key], action, args: vec![0x0200_0000_0099, 5] };
    interpreter.insert(pathcall_p4::ir::TableId(0), &entry).expect("fits");
    let packet = udp();
    let left = run(&mut interpreter, 1, &packet);
    assert_eq!((left.len(), left[0].0), (1, 5));
    let leaves = &left[0].1;
    assert_eq!(leaves[..6], [2, 0, 0, 0, 0, 0x99]);
    assert_eq!((leaves[22], checksum(&leaves[14..34])), (63, 0));
    let mut wrong = packet.clone();
    wrong[24] ^= 1;
    assert_eq!(run(&mut interpreter, 1, &wrong), []);
    let mut last = packet;
    last[22] = 1;
    assert_eq!(run(&mut interpreter, 1, &last), []);
}

/// Ethernet, IPv4 from 10.1.0.1 to 10.1.0.2, UDP, 4 bytes of payload.
fn udp() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2];
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    packet.extend(ip);
    packet.extend([0x30, 0x39, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

#[test]
fn expired_packet_is_answered_with_icmp_error() {
    let text = "#include <inet.p4>
struct metadata { }
parser P(packet_in packet, out inet_t hdr, inout metadata md, inout standard_metadata_t sm) {
    InetParser() inet;
    state start { inet.apply(packet, hdr); transition accept; }
}
control V(inout inet_t hdr, inout metadata md) { apply { } }
control I(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm) {
    apply { icmp_answer(hdr, 3, 13, 0x0a0100fe); truncate(14 + 20 + 8 + 20 + 8); sm.egress_spec = sm.ingress_port; }
}
control E(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
V1Switch(P(), V(), I(), E(), V(), InetDeparser()) main;";
    let mut interpreter = Interpreter::new(&compiled("answer.p4", text)).expect("runs");
    let asked = udp();
    let left = run(&mut interpreter, 4, &asked);
    assert_eq!((left.len(), left[0].0), (1, 4));
    let answer = &left[0].1;
    assert_eq!(answer[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!(answer[14..26], [0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, answer[24], answer[25]]);
    assert_eq!(answer[26..34], [10, 1, 0, 254, 10, 1, 0, 1]);
    assert_eq!((checksum(&answer[14..34]), checksum(&answer[34..70])), (0, 0), "{answer:02x?}");
    assert_eq!(answer[34..36], [3, 13]);
    assert_eq!(answer[42..70], asked[14..42], "the header and 8 bytes of the quoted packet");
}
