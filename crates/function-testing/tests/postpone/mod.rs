//! Tests of postponed values (CLIP §IV-C): the values that travel, and unchanged packets.

mod runs;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use pathcall_function_testing::random::{Choices, FunctionEffect, FunctionStep, function, steps};
use pathcall_p4::ir::{Expr, Program, SlotId, Stmt, StmtKind, Ty};
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::report::PostponedPlace;
use pathcall_p4::split::{SplitError, SplitFunction, SplitTarget, build, split, split_postponing_all};
use pathcall_p4::{DiagnosticReport, Input, Sources, compile};
use runs::{packets, packets_of, play, unsplit_packets};

fn target(phv_bits: Option<u32>) -> SplitTarget {
    let sizes = Sizes { entries: 8, cells_log2: 6, flows_log2: 6, filter_log2: 6, ..Sizes::default() };
    SplitTarget { function: 3, sizes, phv_bits }
}

/// Function with `body` before the call and `behind` after it.
fn compiled(request: &str, metadata: &str, locals: &str, body: &str, behind: &str) -> Program {
    let text = format!(
        "#include <inet.p4>\nrequest {{ @flow bit<32> who; {request} }}\nresponse {{ bit<8> said; }}\n\
         void remote_handler(in request req, out response res) {{ }}\nstruct metadata {{ {metadata} }}\n\
         control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, \
         out request req, out response res) {{\n{locals}\napply {{\nreq.who = hdr.ipv4.srcAddr;\n{body}\n\
         flight = hdr.udp.isValid();\n}} }}\n\
         control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) {{\n\
         apply {{\nsm.egress_spec = 1;\n{behind}\n}} }}\n#include <pipeline.p4>\n"
    );
    let mut sources = Sources::default();
    compile(&mut sources, Input::Text { name: "f.p4c".into(), text })
        .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)))
}

/// Split with the smallest possible header vector, and split without a limit.
fn tightest(program: &Program) -> (SplitFunction, SplitFunction) {
    let whole = split(program, &target(None)).expect("can be split");
    match split(program, &target(Some(1))) {
        Err(SplitError::Phv { needed, .. }) => {
            (whole, split(program, &target(Some(needed))).expect("so much it needs"))
        }
        other => panic!("{other:?}"),
    }
}

/// Split with all candidates postponed.
fn all_postponed(program: &Program) -> SplitFunction {
    split_postponing_all(program, &target(None)).expect("can be split")
}

fn postponed(split: &SplitFunction) -> Vec<(&str, PostponedPlace)> {
    let mut all: Vec<_> = split.report.postponed.iter().map(|value| (value.name.as_str(), value.to)).collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

const HASH: &str = "bit<16> port = hdr.tcp.isValid() ? hdr.tcp.srcPort : hdr.udp.srcPort;\n\
                    hash(md.hop, HashAlgorithm.crc32, (bit<16>)0, { hdr.ipv4.srcAddr, hdr.ipv4.dstAddr, port }, 32w100);";

/// Example of the paper: the index of the next hop is a hash that only the part after the call reads.
#[test]
fn hash_for_later_part_is_postponed() {
    let program = compiled("", "bit<16> hop;", "", HASH, "if (md.hop > 50) { sm.egress_spec = 2; }");
    let (whole, tight) = tightest(&program);
    assert_eq!(whole.report.carried.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["hdr.hop"].map(|_| "md.hop"));
    assert_eq!(whole.report.postponed, []);
    assert_eq!(postponed(&tight), [("md.hop", PostponedPlace::After)]);
    assert_eq!((tight.report.carried.len(), tight.report.postponed[0].at.len()), (0, 1));
    assert!(tight.report.phv_bits.1 + 16 <= tight.report.phv_bits.0, "{:?}", tight.report.phv_bits);
    assert!(tight.layout.length < whole.layout.length);
    let hashes = tight.element.to_string().matches("md.hop = 0 + Crc32(").count();
    assert_eq!(hashes, 2, "in both branches after the call, not before it");
}

#[test]
fn value_read_before_call_is_computed_twice() {
    let body = format!("{HASH}\nif (md.hop == 7) {{ req.who = 7; }}");
    let (_, tight) = tightest(&compiled("", "bit<16> hop;", "", &body, "if (md.hop > 50) { sm.egress_spec = 2; }"));
    assert_eq!(postponed(&tight), [("md.hop", PostponedPlace::AgainAfter)]);
}

#[test]
fn handler_only_parameter_is_computed_on_server() {
    let body = "req.all = hdr.ipv4.srcAddr ++ hdr.ipv4.dstAddr; req.length = sm.packet_length;";
    let (whole, tight) = tightest(&compiled("bit<64> all; bit<32> length;", "", "", body, ""));
    assert_eq!(postponed(&tight), [("req.all", PostponedPlace::Server), ("req.length", PostponedPlace::Server)]);
    assert_eq!((whole.layout.request.len(), tight.layout.request.len()), (3, 1));
    assert!(tight.layout.length + 12 <= whole.layout.length);
    assert_eq!(tight.handler.request.len(), 3, "the handler's request is complete");
}

#[test]
fn results_of_tables_registers_and_clock_are_carried() {
    let locals = "register<bit<32>>(4) cells; action set(bit<32> to) { md.of_table = to; }\n\
                  table t { key = { hdr.ipv4.dstAddr: exact; } actions = { set; } }";
    let body = "t.apply(); bit<32> cell; cells.read(cell, 1); md.of_register = cell + 1;\n\
                md.of_clock = (bit<32>)sm.ingress_global_timestamp;\n\
                if (md.of_table == 4) { md.under = (bit<32>)hdr.ipv4.ttl; } else { md.under = 8; }";
    let metadata = "bit<32> of_table; bit<32> of_register; bit<32> of_clock; bit<32> under;";
    let behind = "hdr.ipv4.dstAddr = md.of_table ^ md.of_register ^ md.of_clock ^ md.under;";
    let (_, tight) = tightest(&compiled("", metadata, locals, body, behind));
    assert_eq!(postponed(&tight), []);
}

#[test]
fn oversized_header_vector_is_refused_with_sizes() {
    let program = compiled("", "bit<16> hop;", "", HASH, "if (md.hop > 50) { sm.egress_spec = 2; }");
    let refused = split(&program, &target(Some(40 * 8))).expect_err("40 B are too few");
    let text = refused.to_string();
    assert!(text.contains("B without postponement of 1 values") && text.contains("hdr.ipv6, 40 B"), "{text}");
}

/// Each case fails if one of the rules of postponement is broken.
#[test]
fn postponement_respects_intervening_statements() {
    let register = "register<bit<32>>(4) cells;";
    let cases = [
        // A `return` skips the assignment.
        ("", "bit<8> a;", "", "if (hdr.ipv4.ttl == 1) { return; } md.a = 5;", "hdr.ipv4.diffserv = md.a;"),
        // A header that is valid only temporarily.
        (
            "bit<8> plain;",
            "bit<12> a;",
            "",
            "hdr.vlan.setValid(); hdr.vlan.vid = 7; md.a = hdr.vlan.vid; hdr.vlan.setInvalid(); req.plain = hdr.ipv4.ttl;",
            "hdr.ipv4.identification = (bit<16>)md.a;",
        ),
        // A header field that is changed later, and read by the value.
        (
            "",
            "bit<8> a;",
            register,
            "md.a = hdr.ipv4.ttl; hdr.ipv4.ttl = 9; cells.write(0, (bit<32>)hdr.ipv4.ttl);",
            "hdr.ipv4.diffserv = md.a;",
        ),
        // An operand that is overwritten, and carried.
        (
            "",
            "bit<32> a; bit<32> b;",
            register,
            "md.b = (bit<32>)hdr.ipv4.ttl; md.a = md.b + 1; cells.read(md.b, 0); cells.write(0, md.b + 3);",
            "hdr.ipv4.dstAddr = md.a; hdr.ipv4.srcAddr = md.b;",
        ),
        // An operand that is overwritten by a value that is computed from the packet.
        (
            "",
            "bit<32> a; bit<32> b;",
            register,
            "md.b = (bit<32>)hdr.ipv4.ttl; md.a = md.b + 1; md.b = md.a << 3; cells.write(0, md.b);",
            "hdr.ipv4.dstAddr = md.a; hdr.ipv4.srcAddr = md.b;",
        ),
        // A server does not know the ingress port.
        ("bit<16> port; bit<8> plain;", "", "", "req.port = (bit<16>)sm.ingress_port; req.plain = hdr.ipv4.ttl;", ""),
        // Nor a value from a branch that depends on a register.
        (
            "bit<16> port; bit<8> plain;",
            "",
            register,
            "bit<32> c; cells.read(c, 1); cells.write(1, c + 1); req.plain = hdr.ipv4.ttl;\n\
             if (c[0:0] == 1) { req.port = 4; } else { req.port = (bit<16>)hdr.ipv4.ttl; }",
            "",
        ),
        // A parameter that the part before the call reads as well.
        (
            "bit<32> twice;",
            "bit<32> a;",
            register,
            "req.twice = hdr.ipv4.srcAddr << 1; md.a = req.twice + 1; if (req.twice[4:4] == 1) { cells.write(2, md.a); }",
            "hdr.ipv4.dstAddr = md.a;",
        ),
    ];
    for (request, metadata, locals, body, behind) in cases {
        let behind = format!("{behind} hdr.ethernet.srcAddr[7:0] = res.said;");
        let program = compiled(request, metadata, locals, body, &behind);
        let whole = split(&program, &target(None)).expect("can be split");
        let tight = all_postponed(&program);
        assert!(!tight.report.postponed.is_empty(), "{body}");
        let (expected, found) = (play(&program, &whole, &packets()), play(&program, &tight, &packets()));
        assert!(expected.len() >= 35, "{expected:?}");
        assert_eq!(expected, found, "{body}: {:?}", tight.report.postponed);
    }
}

/// Packets leave the same with or without a server, when the part before the call adds and removes headers.
#[test]
fn header_changes_before_call_survive_postponement() {
    let add = "hdr.vlan.setValid(); hdr.vlan.vid = 5;";
    let cases = [
        // A read field of a header that is not emitted.
        (add, "sm.egress_spec = hdr.vlan.vid[8:0]; hdr.vlan.setInvalid();"),
        // A header that is already valid.
        (
            "hdr.vlan.setValid(); hdr.vlan.vid = 5; hdr.vlan.etherType = hdr.ethernet.etherType; \
             hdr.ethernet.etherType = TYPE_VLAN;",
            "hdr.vlan.setValid(); hdr.vlan.pcp = 3;",
        ),
        // A write to an invalid header has no effect.
        ("hdr.ipv4.setInvalid();", "hdr.ipv4.ttl = 3; sm.egress_spec = (bit<9>)hdr.ipv4.ttl; hdr.ipv4.setValid();"),
    ];
    for (body, behind) in cases {
        let program = compiled("", "", "", body, behind);
        let expected = unsplit_packets(&program, &packets());
        assert!(expected.len() >= 35, "{expected:?}");
        for split in [split(&program, &target(None)).expect("can be split"), all_postponed(&program)] {
            assert_eq!(expected, packets_of(play(&program, &split, &packets())), "{body} {behind}");
        }
    }
}

/// Packets leave the same with or without a server, when operands of postponed values are overwritten or read
/// elsewhere.
#[test]
fn operand_changes_before_call_survive_postponement() {
    let cases = [
        // A `return` skips an `exit`, and keeps a value of the clock.
        (
            "",
            "action early() { md.a = (bit<16>)sm.ingress_global_timestamp; if (hdr.ipv4.ttl != 9) { return; } exit; }",
            "early();",
            "",
            "hdr.ipv4.identification = md.a;",
        ),
        // The result of a register is overwritten before it is read.
        (
            "",
            "register<bit<16>>(4) cells;",
            "cells.read(md.a, 0); md.a = hdr.ipv4.identification; req.who = (bit<32>)md.a;",
            "",
            "hdr.ipv4.diffserv = md.a[7:0];",
        ),
        // The same for a packet that leaves early.
        (
            "",
            "register<bit<32>>(4) cells;",
            "cells.read(hdr.ipv4.dstAddr, 0); hdr.ipv4.dstAddr = hdr.ipv4.srcAddr; \
             if (hdr.ipv4.ttl == 1) { sm.egress_spec = 2; exit; }",
            "",
            "",
        ),
        // A parameter that is read where no handler is called.
        ("bit<32> twice;", "", "req.twice = hdr.ipv4.srcAddr << 1;", "req.twice", ""),
        // The ingress port is overwritten, first by a value that can be recomputed.
        (
            "",
            "register<bit<9>>(4) ports;",
            "sm.ingress_port = 3; md.a = (bit<16>)sm.ingress_port + 1; ports.read(sm.ingress_port, 0);",
            "",
            "hdr.ipv4.identification = md.a; hdr.ipv4.diffserv = sm.ingress_port[7:0];",
        ),
    ];
    for (request, locals, body, looked_at, behind) in cases {
        let behind = format!("{behind} hdr.ethernet.srcAddr[7:0] = res.said;");
        let mut program = compiled(request, "bit<16> a;", locals, body, &behind);
        otherwise(&mut program, looked_at);
        let expected = unsplit_packets(&program, &packets());
        assert!(expected.len() >= 30, "{expected:?}");
        for split in [split(&program, &target(None)).expect("can be split"), all_postponed(&program)] {
            let told = &split.report.postponed;
            assert_eq!(expected, packets_of(play(&program, &split, &packets())), "{body} {behind}: {told:?}");
        }
    }
}

/// Adds a branch without a handler that copies a parameter to the destination address.
fn otherwise(program: &mut Program, parameter: &str) {
    let slot = |name: &str| program.slots.iter().position(|slot| slot.name == name).map(|at| SlotId(at as u32));
    let (Some(of), Some(to)) = (slot(parameter), slot("hdr.ipv4.dstAddr")) else { return };
    let value = Expr::slot(Ty::Bit(32), of);
    for stmt in &mut program.ingress {
        match &mut stmt.kind {
            StmtKind::If { then, otherwise, .. }
                if matches!(then.last(), Some(Stmt { kind: StmtKind::Remote, .. })) =>
            {
                *otherwise = vec![build::assign(to, value.clone())];
            }
            _ => {}
        }
    }
}

/// Compares a function without a limit with decreasing limits; returns the numbers of postponed values and of output
/// packets.
fn differs(choices: &[u8]) -> Result<[usize; 2], String> {
    let (mut of_program, mut of_steps) = Choices::new(choices).split(180);
    let program = function(&mut of_program);
    let once = steps(&program, &mut of_steps, 60);
    let steps: Vec<FunctionStep> = once.iter().chain(&once).cloned().collect();
    let whole = match split(&program, &target(None)) {
        Ok(whole) => whole,
        Err(refused) => return Err(refused.to_string()),
    };
    let expected = play(&program, &whole, &steps);
    let left = expected.iter().filter(|effect| matches!(effect, FunctionEffect::Packet(..))).count();
    let (mut budget, mut moved) = (whole.report.phv_bits.1, 0);
    // All candidates first; then limits: one bit less, some in between, the smallest.
    for step in [0, 1, 24, 120, 1] {
        budget = budget.saturating_sub(step);
        let tight = match split(&program, &target(Some(budget))) {
            _ if step == 0 => all_postponed(&program),
            Ok(tight) => tight,
            Err(SplitError::Phv { needed, .. }) => split(&program, &target(Some(needed))).map_err(|e| e.to_string())?,
            Err(other) => return Err(other.to_string()),
        };
        moved = moved.max(tight.report.postponed.len());
        let found = play(&program, &tight, &steps);
        if let Some(at) = expected.iter().zip(&found).position(|(one, other)| one != other) {
            let told = &tight.report.postponed;
            return Err(format!(
                "effect {at}, {told:?}:\nexpected {:?}\ngot      {:?}\n{program}\n{}",
                expected[at],
                found[at],
                tight.element.block(&tight.element.ingress)
            ));
        }
        if expected.len() != found.len() {
            return Err(format!("{} effects instead of {}", found.len(), expected.len()));
        }
        if step > 0 && tight.report.phv_bits.1 > budget {
            break;
        }
    }
    Ok([moved, left])
}

#[test]
fn shrinking_budgets_change_no_packet() {
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200);
    let (moved, left) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = Cases { cases, failure_persistence: None, ..Cases::default() };
    let run = TestRunner::new(config).run(&prop::collection::vec(any::<u8>(), 400..2500), |choices| {
        let [more, packets] = differs(&choices).map_err(TestCaseError::fail)?;
        moved.set(moved.get() + more);
        left.set(left.get() + packets);
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    println!("{} values postponed, {} packets left", moved.get(), left.get());
    assert!(
        moved.get() as u32 > cases / 2 && left.get() as u32 > cases,
        "{} values, {} packets",
        moved.get(),
        left.get()
    );
}
