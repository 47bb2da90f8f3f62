//! Tests of parser loops that are bounded by the packet's length, and of one that would not end.

use pathcall_function_testing::random::FunctionStep;
use pathcall_p4::{Input, Sources, compile};

/// Parser that reads pairs of bytes while the first is 1, and that does not end after a 2.
const TEXT: &str = "#include <core.p4>\n#include <v1model.p4>
header eth_t { bit<112> all; } header h_t { bit<8> kind; bit<8> left; }
header told_t { bit<16> error; bit<8> rounds; bit<8> kind; }
struct headers { eth_t eth; told_t told; h_t h; } struct metadata { bit<8> rounds; }
parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {
    state start { p.extract(hdr.eth); transition pair; }
    state pair {
        p.extract(hdr.h);
        md.rounds = md.rounds + 1;
        transition select(hdr.h.kind) { 1: pair; 2: spin; 3: odd; default: accept; }
    }
    state spin { transition select(hdr.h.left) { 0xff: accept; default: spin; } }
    state odd { p.advance(16); transition pair; }
}
control V(inout headers hdr, inout metadata md) { apply { } }
control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) { apply {
    hdr.told.setValid();
    bit<16> ended = sm.parser_error == error.ParserTimeout ? 16w5 : sm.parser_error == error.PacketTooShort ? 16w1 : 0;
    hdr.told = { ended, md.rounds, hdr.h.kind };
    sm.egress_spec = 2;
} }
control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata md) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.eth); p.emit(hdr.told); p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
";

#[test]
fn parser_loops_end_with_packet() {
    let mut sources = Sources::default();
    let program = compile(&mut sources, Input::Text { name: "round.p4".into(), text: TEXT.into() })
        .unwrap_or_else(|wrong| panic!("{}", pathcall_p4::DiagnosticReport(&wrong, &sources)));
    let packet = |pairs: usize, last: [u8; 2]| {
        let mut bytes = vec![7; 14];
        bytes.extend([1, 5].repeat(pairs));
        bytes.extend(last);
        bytes.extend([9; 6]);
        FunctionStep::Packet { now_us: 1, port: 1, bytes }
    };
    let mut steps = Vec::new();
    for pairs in [0, 1, 2, 63, 64, 65, 66, 500, 1500] {
        // Ends, does not end, too short, skips.
        for last in [[0, 0], [2, 3], [2, 0xff], [1, 1], [3, 3]] {
            steps.push(packet(pairs, last));
        }
    }
    super::differ::agree(&program, &steps);
}
