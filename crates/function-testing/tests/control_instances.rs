//! Tests of control instances: each instance has its own tables, registers and counters, once.

use pathcall_p4::{DiagnosticReport, Sources, compile};

/// Compiles a program whose ingress has these instances and this body.
fn compiled(instances: &str, body: &str) -> Result<usize, String> {
    let text = format!(
        "#include <core.p4>
#include <v1model.p4>
header h_t {{ bit<8> a; }}
struct headers {{ h_t h; }}
struct metadata {{ }}
parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{
    state start {{ p.extract(hdr.h); transition accept; }}
}}
control V(inout headers hdr, inout metadata md) {{ apply {{ }} }}
control Plain(inout headers hdr) {{ apply {{ hdr.h.a = hdr.h.a + 1; }} }}
control Counting(inout headers hdr) {{
    register<bit<32>>(4) seen;
    bit<32> value = 0;
    apply {{ seen.read(value, 0); seen.write(0, value + 1); }}
}}
control Outer(inout headers hdr) {{ Counting() counting; apply {{ counting.apply(hdr); }} }}
control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ {instances} apply {{ {body} }} }}
control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{ }} }}
control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"
    );
    let mut sources = Sources::new(Vec::new());
    let program = compile(&mut sources, ("instances.p4", text));
    program.map(|program| program.registers.len()).map_err(|wrong| DiagnosticReport(&wrong, &sources).to_string())
}

#[test]
fn each_control_instance_has_own_registers() {
    assert_eq!(compiled("Counting() a; Counting() b;", "a.apply(hdr); b.apply(hdr);"), Ok(2));
    assert_eq!(compiled("", "Counting.apply(hdr); Counting.apply(hdr);"), Ok(2));
    assert_eq!(compiled("Plain() a;", "a.apply(hdr); a.apply(hdr);"), Ok(0));
}

#[test]
fn stateful_control_applied_twice_is_refused() {
    for instances in ["Counting() a;", "Outer() a;"] {
        let wrong = compiled(instances, "if (hdr.h.isValid()) { a.apply(hdr); } else { a.apply(hdr); }");
        let wrong = wrong.expect_err("a duplicated register");
        assert!(
            wrong.contains("`a` has tables, registers or counters, and can be applied only once")
                && wrong.contains("apply it in one place"),
            "{wrong}"
        );
    }
}
