//! Fuzz target of network functions: compiling text returns a program or diagnostics that can be rendered, without
//! panic. Text after `b` becomes the body of a complete function, with names and types to use.

use pathcall_p4::{Sources, compile};

const FRAME: [&str; 2] = [
    "#include <inet.p4>
struct metadata { bit<8> x; bit<16> y; bool t; int<8> i; }
request { @flow bit<32> a; float f; }
response { bit<16> b; float f; }
void remote_handler(in request req, out response res) { res->b = 1; }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight,
                       out request req, out response res) {
    register<bit<32>>(16) r;
    action a(bit<9> port) { sm.egress_spec = port; }
    @mirrored table t { key = { req.a: exact; } actions = { a; } }
    apply {
",
    "    }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {
    apply { }
}
#include <pipeline.p4>
",
];

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let whole = match text.strip_prefix('b') {
        Some(body) => [FRAME[0], body, FRAME[1]].concat(),
        None => text.to_owned(),
    };
    let mut sources = Sources::new(Vec::new());
    match compile(&mut sources, ("fuzz.p4c", whole)) {
        Ok(program) => assert!(!program.to_string().is_empty()),
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            diagnostics.iter().for_each(|diagnostic| assert!(diagnostic.render(&sources).starts_with("error: ")));
        }
    }
}
