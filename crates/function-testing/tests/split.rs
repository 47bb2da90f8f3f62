//! Tests of splits of small functions: refused ones, and sizes of the header vector.

use pathcall_function_testing::fixtures::empty_build;
use pathcall_p4::ir::{
    Expr, HeaderId, Keyset, ParserState, Program, SourceSpan, StateId, Stmt, StmtKind, Transition, Ty,
};
use pathcall_p4::split::build::{assign, stmt};
use pathcall_p4::split::vector::bits;
use pathcall_p4::split::{SplitError, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Input, Sources, compile};

/// Splits a function whose parser has these states after `InetParser`.
fn with(states: &str) -> Result<(), (String, usize)> {
    with_before(states, "")
}

/// Splits the same function with statements before the call.
fn with_before(states: &str, before: &str) -> Result<(), (String, usize)> {
    let (program, sources, first) = compiled(states, before);
    split(&program, &SplitTarget::default()).map(drop).map_err(|refused| {
        let at = refused.at().expect("a place");
        (refused.to_string(), sources.position(at).0 - first)
    })
}

/// The function, and the first line of the parser's own states.
fn compiled(states: &str, before: &str) -> (Program, Sources, usize) {
    let text = format!(
        "#define HEADERS headers\n#define PARSER Packets\n#include <inet.p4>\nheader h_t {{ bit<8> a; bit<8> b; }}\n\
        struct headers {{ inet_t inet; h_t h; h_t other; }}\nstruct metadata {{ h_t kept; bit<8> x; }}\n\
        request {{ bit<8> a; }} response {{ bit<8> b; }}\n\
        void remote_handler(in request req, out response res) {{ }}\n\
        parser Packets(packet_in packet, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{\n\
        InetParser() inet;\nstate start {{ inet.apply(packet, hdr.inet); packet.extract(hdr.h);\n{states} }} }}\n\
        control pre_processing(inout headers hdr, inout metadata md, inout standard_metadata_t sm, \
        out bool flight, out request req, out response res) {{ apply {{ flight = true; req.a = md.x; {before} }} }}\n\
        control post_processing(inout headers hdr, inout metadata md, inout standard_metadata_t sm, \
        in response res) {{ apply {{ sm.egress_spec = 1; }} }}\n#include <pipeline.p4>\n"
    );
    let mut sources = Sources::default();
    let program = compile(&mut sources, Input::Text { name: "f.p4c".into(), text: text.clone() })
        .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let first = text[..text.find(states).expect("there")].lines().count() + 1;
    (program, sources, first)
}

#[test]
fn parser_write_to_emitted_header_is_refused_with_line() {
    for (states, header, line) in [
        ("transition accept;", "", 0),
        // Headers that are not emitted, and invalid headers, may be written.
        ("md.x = hdr.h.a; md.kept.setValid(); md.kept.a = hdr.h.b; transition accept;", "", 0),
        ("hdr.other.setInvalid(); transition accept;", "", 0),
        ("md.x = 1;\nhdr.h.a = hdr.h.a - 1; transition accept;", "hdr.h", 1),
        ("hash(hdr.h.b, HashAlgorithm.crc16, 8w0, { md.x }, 8w3); transition accept;", "hdr.h", 0),
        ("\nhdr.h.setInvalid(); transition accept;", "hdr.h", 1),
        ("\n\nhdr.other.setValid(); transition accept;", "hdr.other", 2),
        ("transition more; }\nstate more { hdr.other = hdr.h; transition accept;", "hdr.other", 1),
    ] {
        let expected = if header.is_empty() {
            Ok(())
        } else {
            Err((SplitError::ParserWrites { header: header.into(), at: SourceSpan::default() }.to_string(), line))
        };
        assert_eq!(with(states), expected, "{states}");
    }
}

#[test]
fn write_before_call_to_parser_input_is_refused() {
    let states = "md.x = sm.ingress_port[7:0]; transition accept;";
    let refused =
        with_before(states, "if (md.x == 1) {\nsm.ingress_port = 3; }").expect_err("the parser reads the field");
    let field = "standard_metadata.ingress_port".to_owned();
    assert_eq!(refused, (SplitError::ParserReads { field, at: SourceSpan::default() }.to_string(), 2));
    for (states, before) in [(states, "sm.egress_spec = 3;"), ("transition accept;", "sm.ingress_port = 3;")] {
        assert_eq!(with_before(states, before), Ok(()), "{before}");
    }
}

#[test]
fn varbit_before_call_is_refused() {
    let (mut program, ..) = compiled("transition accept;", "");
    let options = program.headers.iter().position(|header| header.varbit_bits_max.is_some()).expect("options");
    let kind = StmtKind::SetValid { header: HeaderId(options as u32), valid: false };
    let branch = program.ingress.iter_mut().find_map(|stmt| match &mut stmt.kind {
        StmtKind::If { then, .. } if then.iter().any(|stmt| matches!(stmt.kind, StmtKind::Remote)) => Some(then),
        _ => None,
    });
    branch.expect("a branch with the call").insert(0, Stmt { kind, at: SourceSpan::default() });
    let refused = split(&program, &SplitTarget::default()).expect_err("options would be lost");
    assert!(matches!(refused, SplitError::Varbit { .. }), "{refused}");
}

#[test]
fn exclusive_headers_share_header_vector() {
    let mut b = empty_build("two");
    let bytes = |count: u16| vec![("all".to_owned(), Ty::Bit(8 * count))];
    let (first, fields) = b.header("hdr.first", &bytes(2));
    let (one, _) = b.header("hdr.one", &bytes(4));
    let (other, _) = b.header("hdr.other", &bytes(10));
    b.program.deparser = vec![first, one, other];
    let take = |name: &str, header, next| ParserState {
        name: name.into(),
        body: vec![stmt(StmtKind::Extract { header, varbits: None })],
        next,
    };
    let to = |state| Transition::To(StateId(state));
    let cases = vec![(vec![Keyset::Mask(1, 0xffff)], to(1)), (vec![Keyset::Any], to(2))];
    let select = Transition::Select { keys: vec![b.value(fields[0])], cases };
    let states =
        [take("start", first, select), take("one", one, Transition::Accept), take("other", other, Transition::Accept)];
    b.program.parser.states = states.to_vec();
    assert_eq!(bits(&b.program, None), 96, "the first header and the larger alternative");
    let (extra, sum) = (b.local("extra", Ty::Bit(7)), b.local("sum", Ty::Bit(7)));
    b.program.ingress = vec![assign(extra, Expr::constant(Ty::Bit(7), 1)), assign(sum, b.value(extra))];
    assert_eq!(bits(&b.program, None), 96, "an unused value is not counted");
    b.program.ingress.push(stmt(StmtKind::Digest { name: "d".into(), values: vec![b.value(sum)] }));
    assert_eq!(bits(&b.program, None), 103);
    b.program.parser.states[1].next = to(2);
    assert_eq!(bits(&b.program, None), 135, "a packet may have all headers");
}
