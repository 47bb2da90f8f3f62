//! Tests of diagnostics: each file in `tests/bad` has its expected diagnostics beside it. A snippet is inserted at one
//! of the places `body`, `locals`, `top`, `states` and `headers` of a frame program, and the diagnostics are rendered
//! for the whole. `BLESS=1` rewrites the expected texts.

use pathcall_p4::{DiagnosticReport, Sources, compile};
use std::path::Path;

/// Program with holes for snippets.
const FRAME: &str = "#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; bit<16> c; }
header v_t { varbit<32> v; }
struct headers { h_t h; h_t[2] s; v_t v;@headers }
struct metadata { bit<8> x; bit<16> y; bool t; int<8> i; }
@top
parser P(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {@states
}
control V(inout headers hdr, inout metadata md) { apply { } }
control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {@locals
    apply {@body
    }
}
control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata md) { apply { } }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
";
const HOLES: [(&str, &str); 5] = [
    ("headers", ""),
    ("top", ""),
    ("states", "\n    state start { packet.extract(hdr.h); transition accept; }"),
    ("locals", ""),
    ("body", ""),
];

/// Function with holes, named with the prefix `f.`.
const FUNCTION: &str = "#include <inet.p4>
request {@f.request}
response { bit<8> verdict; }@f.top
void remote_handler(in request req, out response res) {@f.handler}
struct metadata { bit<16> port; }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {@f.locals
    apply {@f.before
        flight = hdr.udp.isValid();
    }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {
    apply {@f.behind
        sm.egress_spec = 1;
    }
}
#include <pipeline.p4>
";
const OF_FUNCTION: [(&str, &str); 6] = [
    ("f.request", " @flow bit<32> host; "),
    ("f.top", ""),
    ("f.handler", " res->verdict = 1; "),
    ("f.locals", ""),
    ("f.before", ""),
    ("f.behind", ""),
];

fn program(hole: &str, piece: &str) -> String {
    if hole.starts_with("f.") {
        return OF_FUNCTION.iter().fold(FUNCTION.to_owned(), |text, (name, usual)| {
            text.replace(&format!("@{name}"), if *name == hole { piece } else { usual })
        });
    }
    HOLES.iter().fold(FRAME.to_owned(), |text, (name, usual)| {
        text.replace(&format!("@{name}"), if *name == hole { piece } else { usual })
    })
}

fn told(name: &str, text: &str) -> String {
    let mut sources = Sources::new(Vec::new());
    match compile(&mut sources, (name, text)) {
        Ok(_) => "no diagnostics\n".to_owned(),
        Err(wrong) => DiagnosticReport(&wrong, &sources).to_string() + "\n",
    }
}

#[test]
fn frame_without_mistake_compiles() {
    assert_eq!(told("frame.p4", &program("", "")), "no diagnostics\n");
    assert_eq!(told("frame.p4c", &program("f.", "")), "no diagnostics\n");
}

/// A file consists of cases, each after a line `=== hole`; a case `=== whole` is a complete program.
#[test]
fn diagnostics_match_recorded_texts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == "p4"));
    files.sort();
    assert!(files.len() > 3, "{files:?}");
    let mut differ = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let mut found = String::new();
        for case in text.split("=== ").skip(1) {
            let (hole, piece) = case.split_once('\n').expect("a hole");
            let known = || HOLES.iter().chain(&OF_FUNCTION).any(|(name, _)| *name == hole);
            assert!(hole == "whole" || known(), "{hole}");
            let program =
                if hole == "whole" { piece.to_owned() } else { program(hole, &format!("\n{}", piece.trim_end())) };
            found += &format!("=== {hole}\n{piece}---\n{}\n", told("bad.p4", &program));
        }
        for case in found.split("=== ").filter(|case| case.contains("---\nno diagnostics")) {
            differ.push(format!("{}: no mistake in\n{case}", file.display()));
        }
        let golden = file.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &found).expect("written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if expected != found {
            differ.push(format!("{}:\n{found}", golden.display()));
        }
    }
    assert!(differ.is_empty(), "{}\nBLESS=1 records the new texts", differ.join("\n"));
}

#[test]
fn cyclic_include_is_reported() {
    let folder = std::env::temp_dir().join(format!("pathcall-function-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("a.p4"), "#include \"b.p4\"\n").expect("written");
    std::fs::write(folder.join("b.p4"), "#include \"a.p4\"\n").expect("written");
    let mut sources = Sources::new(Vec::new());
    let wrong = compile(&mut sources, folder.join("a.p4").as_path()).expect_err("cyclic includes");
    std::fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(wrong[0].message, "includes are nested more than 16 levels deep");
}

#[test]
fn missing_file_is_reported() {
    let mut sources = Sources::new(Vec::new());
    let wrong = compile(&mut sources, Path::new("/nowhere/at/all.p4")).expect_err("not there");
    assert!(wrong[0].message.starts_with("cannot read /nowhere/at/all.p4: "), "{}", wrong[0].message);
}
