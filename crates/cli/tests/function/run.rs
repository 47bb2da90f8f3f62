//! Tests of `run` and `build` on valid functions.

use super::{folder, functions, packets, pathcall, printed, write};

/// The client of the captures is in the inside network.
const INSIDE: [&str; 4] = ["-D", "INSIDE=0x0A4D0100", "-D", "INSIDE_MASK=0xFFFFFF00"];

#[test]
fn captures_of_several_ports_are_merged_by_time() {
    if !super::compilers() {
        return;
    }
    let folder = folder("merged");
    let all = packets(functions("tcp.pcap").as_ref());
    let (from_client, from_server): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|(_, _, bytes)| bytes[28] == 1);
    assert!(!from_client.is_empty() && !from_server.is_empty());
    write(&folder.join("client.pcap"), &from_client);
    write(&folder.join("server.pcap"), &from_server);
    let (function, tcp) = (functions("snat.p4c"), functions("tcp.pcap"));
    let run = |more: &[&str]| printed(&folder, &[&["run", &function][..], &INSIDE, more].concat());

    let one = run(&["--pcap", &tcp, "--out", "one.pcap"]);
    // The order of captures and the port of unnamed ones make no difference.
    let two = run(&["--pcap", "1=server.pcap", "--pcap", "client.pcap", "--port", "0", "--out", "two.pcap"]);
    assert_eq!(packets(&folder.join("one.pcap")), packets(&folder.join("two.pcap")));
    assert!(one.contains("out      600 packets at port 1"), "{one}");
    let count = |port, of: usize| format!("out      {of} packets at port {port}\n");
    assert!(two.contains(&count(1, from_client.len())) && two.contains(&count(0, from_server.len())), "{two}");
    // Packets from the client are mapped; none is for the pool.
    assert!(two.contains(&format!("counted  {} in post.verdicts[1]\n", from_client.len())), "{two}");
}

#[test]
fn digests_are_json_lines() {
    if !super::compilers() {
        return;
    }
    let folder = folder("digests");
    let capture = functions("captures/loss-middle.pcap");
    let printed = printed(
        &folder,
        &["run", &functions("trd.p4c"), "--pcap", &capture, "--out", "out.pcap", "--digests", "found.json"],
    );
    let lines = std::fs::read_to_string(folder.join("found.json")).expect("already present");
    assert!(printed.contains(&format!("digests  {} segment_t\n", lines.lines().count())), "{printed}");
    assert!(lines.lines().count() > 0);
    let first = packets(capture.as_ref())[0].0;
    for line in lines.lines() {
        let digest: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let at: f64 = digest["at"].as_str().and_then(|at| at.parse().ok()).expect("seconds");
        assert!((at - f64::from(first)).abs() < 60.0, "the capture's time: {line}");
        assert_eq!((digest["name"].as_str(), digest["values"].as_array().map(Vec::len)), (Some("segment_t"), Some(6)));
    }
}

#[test]
fn native_handler_gives_same_result() {
    if !super::compilers() {
        return;
    }
    let folder = folder("native");
    let (function, tcp) = (functions("snat.p4c"), functions("tcp.pcap"));
    let run = |more: &[&str]| printed(&folder, &[&["run", &function][..], &INSIDE, &["--pcap", &tcp], more].concat());
    let contained = run(&["--out", "contained.pcap", "--servers", "2"]);
    let native = run(&["--out", "native.pcap", "--servers", "2", "--native"]);
    assert_eq!(contained, native);
    assert_eq!(packets(&folder.join("contained.pcap")), packets(&folder.join("native.pcap")));
}

#[test]
fn build_reports_written_and_generated_lines() {
    let folder = folder("build");
    for (name, handler) in [("snat", true), ("fib", true), ("trd", true)] {
        let printed = printed(&folder, &["build", &functions(&format!("{name}.p4c")), "-o", name]);
        let number = |line: &str| {
            let line =
                printed.lines().find(|found| found.contains(line)).unwrap_or_else(|| panic!("no {line:?}: {printed}"));
            line.split_whitespace().find_map(|word| word.parse::<usize>().ok()).expect("a number")
        };
        let (written, kernel, p4) = (number("written "), number("for XDP"), number("for P4"));
        assert!(written <= 150 && kernel > written && p4 > written, "{printed}");
        assert_eq!(folder.join(name).join("handler.c").exists(), handler);
    }
}

/// A program without a handler runs in the element as a whole.
#[test]
fn function_without_handler_runs() {
    let folder = folder("plain");
    let tcp = functions("tcp.pcap");
    std::fs::write(
        folder.join("wire.p4"),
        "#include <core.p4>\n#include <v1model.p4>\n\
         header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }\n\
         struct headers { ethernet_t ethernet; } struct metadata { }\n\
         parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {\n\
             state start { p.extract(hdr.ethernet); transition accept; } }\n\
         control V(inout headers hdr, inout metadata md) { apply { } }\n\
         control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {\n\
             counter(2, CounterType.packets) came;\n\
             apply { came.count((bit<32>)sm.ingress_port); sm.egress_spec = sm.ingress_port ^ 1; } }\n\
         control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) { apply { } }\n\
         control C(inout headers hdr, inout metadata md) { apply { } }\n\
         control D(packet_out p, in headers hdr) { apply { p.emit(hdr.ethernet); } }\n\
         V1Switch(P(), V(), I(), E(), C(), D()) main;\n",
    )
    .expect("written");
    let args = ["run", "wire.p4", "--pcap", &tcp, "--out", "out.pcap"];
    let text = printed(&folder, &args);
    assert!(text.contains("out      600 packets at port 1\n") && text.contains("counted  600 in "), "{text}");
    assert!(text.starts_with("in       600 packets, ") && text.contains(" of them truncated in the capture"), "{text}");
    for option in [&["--servers", "2"][..], &["--native"]] {
        let output = pathcall(&folder, &[&args[..], option].concat());
        let expected = format!("pathcall: wire has no handler and thus no servers: remove {}\n", option[0]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    }
}
