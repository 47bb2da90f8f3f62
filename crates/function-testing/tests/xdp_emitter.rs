//! Tests of emitted XDP programs, and of unsupported constructs.

use pathcall_p4::emit::xdp::{EmitOptions, emit, unsupported};
use pathcall_p4::ir::Program;
use pathcall_p4::split::{SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Input, Sources, compile};

/// `count` headers; the parser extracts the first, writes to it, and extracts the last.
fn emitted(count: usize) -> String {
    let last = count - 1;
    let headers: String = (0..count).map(|n| format!("h_t h{n}; ")).collect();
    let text = format!(
        "#include <v1model.p4>\nheader h_t {{ bit<8> a; }} struct headers {{ {headers}}} struct metadata {{ }}
        parser P(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{
            state start {{
                packet.extract(hdr.h0); hdr.h0.a = 1; packet.extract(hdr.h{last}); transition accept;
            }}
        }}
        control V(inout headers hdr, inout metadata md) {{ apply {{ }} }}
        control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{
            apply {{ hdr.h0.setValid(); hdr.h{last}.setValid(); }}
        }}
        control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{ }} }}
        control D(packet_out packet, in headers hdr) {{ apply {{ packet.emit(hdr); }} }}
        V1Switch(P(), V(), I(), E(), V(), D()) main;"
    );
    let mut sources = Sources::default();
    let program = compile(&mut sources, Input::Text { name: "many.p4".into(), text })
        .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    emit(&program, EmitOptions::default()).expect("runs in the kernel").text
}

#[test]
fn shared_dirty_bit_is_not_cleared() {
    assert!(emitted(64).contains("dirty &= ~0x8000000000000000ULL"), "{}", emitted(64));
    let many = emitted(65);
    assert!(many.contains("dirty |= 0x1ULL") && !many.contains("dirty &="), "{many}");
}

#[test]
fn constructs_unsupported_by_kernel_are_listed_with_lines() {
    let text = "#include <inet.p4>\nstruct metadata { }\n\
        request { @flow bit<8> a; } response { bit<8> b; } void remote_handler(in request req, out response res) { }\n\
        control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, \
        out request req, out response res) { apply { } }\n\
        control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {\n\
        register<bit<16>>(1) groups;\n\
        apply {\nsm.mcast_grp = 3;\nclone(CloneType.I2E, 2);\nsm.mcast_grp = 0;\ngroups.read(sm.mcast_grp, 0);\n\
        hash(sm.mcast_grp, HashAlgorithm.crc16, 16w0, { hdr.ipv4.ttl }, 16w4);\n} }\n\
        #include <pipeline.p4>\n";
    let mut sources = Sources::default();
    let program = compile(&mut sources, Input::Text { name: "f.p4c".into(), text: text.into() })
        .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let told = |program: &Program| -> Vec<(String, usize)> {
        let all = unsupported(program).into_iter();
        all.map(|one| (one.construct, sources.position(one.at).0)).collect()
    };
    let names = |told: Vec<(String, usize)>| told.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let group = "standard_metadata.mcast_grp";
    assert_eq!(names(told(&program)), ["remote_handler", group, "clone", group, group]);
    let element = split(&program, &SplitTarget::default()).expect("can be split").element;
    let lines = text.lines().position(|line| line.starts_with("sm.mcast_grp = 3")).expect("a line") + 1;
    let expected = [(group, 0), ("clone", 1), (group, 3), (group, 4)];
    assert_eq!(told(&element), expected.map(|(name, line)| (name.to_owned(), lines + line)));
    assert!(emit(&element, EmitOptions::default()).is_err());
}
