//! Tests of the functions that come with Pathcall: their handlers compile for each sandbox kind and work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_netfn::handler::{CHandler, Config, HandlerStartError};
use pathcall_netfn::serve::{FunctionHandler as _, HandlerOutcome};
use pathcall_p4::ir::{Program, SourceSpan};
use pathcall_p4::source::Sources;
use pathcall_sandbox::{GuestBuildError, SandboxKind};

const FUNCTIONS: [&str; 5] = ["snat", "fib", "trd", "knock", "smooth"];

fn start(name: &str, kind: SandboxKind) -> Option<(Program, CHandler)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../functions/{name}.p4c"));
    let mut sources = Sources::new(Vec::new());
    let program = pathcall_p4::compile(&mut sources, file.as_path())
        .unwrap_or_else(|wrong| panic!("{name}: {}", pathcall_p4::diag::DiagnosticReport(&wrong, &sources)));
    let place = |at: SourceSpan| {
        let (line, column) = sources.position(at);
        Some((sources.name(at.file).to_owned(), line, column))
    };
    let handler = started(&program, &place, kind)?;
    Some((program, handler))
}

fn started(
    program: &Program,
    place: &dyn Fn(SourceSpan) -> Option<(String, usize, usize)>,
    kind: SandboxKind,
) -> Option<CHandler> {
    // A machine that stands still counts this time as the handler's.
    let config = Config { kind: Some(kind), limit: Duration::from_secs(60) };
    match CHandler::start(program, place, &config, &cache(), 0) {
        Ok(handler) => Some(handler),
        Err(HandlerStartError::Build(GuestBuildError::MissingTools(lacking))) => {
            assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
            eprintln!("skipped: {kind:?}: {lacking}");
            None
        }
        Err(error) => panic!("{kind:?}: {error}"),
    }
}

/// Constants of the file as the handler's C sees them, with sign and floating-point type.
const CONSTANTS: &str = "#include <inet.p4>
const int<16> LOW = -5;
const int<64> LEAST = -9223372036854775808;
const float SHARE = (float)32w0x3E000000;
const float ODD = (float)32w0x7FC00123;
const bit<48> WIDE = 0xffff00000001;
const bit<64> MOST = 0xffffffffffffffff;
request { @flow int<16> delta; }
response { bit<8> below; bit<8> least; bit<8> share; bit<32> odd; bit<8> wide; bit<8> most; }
void remote_handler(in request req, out response res) {
    res->below = req->delta < LOW;
    res->least = LEAST < 0 && LEAST + 1 == -9223372036854775807;
    res->share = SHARE * 8 == 1;
    float odd = ODD;
    __builtin_memcpy(&res->odd, &odd, 4);
    res->wide = WIDE == 281470681743361;
    res->most = MOST + 1 == 0;
}
struct metadata { }
control pre_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, out bool flight, out request req, out response res) {
    apply { flight = true; req.delta = (int<16>)hdr.ipv4.identification; }
}
control post_processing(inout inet_t hdr, inout metadata md, inout standard_metadata_t sm, in response res) { apply { } }
#include <pipeline.p4>
";

#[test]
fn constants_have_same_value_in_c() {
    let mut sources = Sources::new(Vec::new());
    let program = pathcall_p4::compile(&mut sources, ("constants.p4c", CONSTANTS.to_owned()))
        .unwrap_or_else(|wrong| panic!("{}", pathcall_p4::diag::DiagnosticReport(&wrong, &sources)));
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        let Some(mut handler) = started(&program, &|_| None, kind) else { continue };
        for (delta, below) in [(3, 0), (0xfffb, 0), (0xfffa, 1)] {
            let mut response = vec![0; 6];
            assert_eq!(handler.handle(0, &[delta], &[], &mut response), HandlerOutcome::Respond, "{kind:?}");
            assert_eq!(response, [below, 1, 1, 0x7fc0_0123, 1, 1], "{kind:?}, {delta}");
        }
    }
}

fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers")
}

#[test]
fn handlers_compile_for_each_sandbox_kind() {
    for name in FUNCTIONS {
        for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
            let Some((program, mut handler)) = start(name, kind) else { continue };
            let written = program.handler.as_ref().expect("a handler");
            let (request, mut response) = (vec![0; written.request.len()], vec![0; written.response.len()]);
            assert_eq!(handler.handle(0, &request, &[], &mut response), HandlerOutcome::Respond, "{name}, {kind:?}");
            assert_eq!(handler.take_trap_reports(), [], "{name}, {kind:?}");
        }
    }
}

#[test]
fn snat_allocates_own_ports_and_frees_them() {
    for kind in [SandboxKind::Wasm, SandboxKind::Process] {
        let Some((program, mut handler)) = start("snat", kind) else { continue };
        let table = |name: &str| {
            let id = program.tables.iter().position(|table| table.name.ends_with(name)).expect("a table");
            pathcall_p4::ir::TableId(id as u32)
        };
        handler.set_ranges(0, &[(2000, 2001)], 0);
        // addr, port, protocol, outward, error, flags, id, offset, more
        let ask = |handler: &mut CHandler, now_ms, addr: u128, port, outward| {
            let mut response = [0; 3];
            let request = [addr, port, 17, outward, 0, 0, 0, 0, 0];
            assert_eq!(handler.handle(now_ms, &request, &[], &mut response), HandlerOutcome::Respond);
            response
        };
        let (host, mapped, unknown, exhausted) = (0x0a00_0001, 1, 2, 3);
        let [first, port, verdict] = ask(&mut handler, 0, host, 5000, 1);
        assert!(first >> 4 == 0xc000_0200 >> 4 && (2000..=2001).contains(&port) && verdict == mapped);
        assert_eq!(ask(&mut handler, 1, host, 5000, 1), [first, port, mapped], "the same mapping again");
        let [second, other, verdict] = ask(&mut handler, 1, host, 5001, 1);
        assert!(second == first && other != port && verdict == mapped, "one host keeps one address");
        assert_eq!(ask(&mut handler, 1, host, 5002, 1), [0, 0, exhausted], "the server owns two ports only");
        assert_eq!(ask(&mut handler, 1, first, port, 0), [host, 5000, mapped], "reverse direction");
        assert_eq!(ask(&mut handler, 1, first, 2010, 0), [0, 0, unknown]);
        // After the idle time, entry and port are free.
        handler.expire(400_000);
        assert_eq!((entries(&handler, table("nat_out")), entries(&handler, table("nat_in"))), (0, 0));
        assert_eq!(ask(&mut handler, 400_000, host, 5002, 1)[2], mapped);
    }
}

#[test]
fn snat_keeps_opening_connection_when_other_protocol_shares_port() {
    for kind in [SandboxKind::Wasm, SandboxKind::Process] {
        let Some((_, mut handler)) = start("snat", kind) else { continue };
        handler.set_ranges(0, &[(2000, 2001)], 0);
        let (host, tcp, udp, syn, ack) = (0x0a00_0001, 6, 17, 0x02, 0x10);
        let ask = |handler: &mut CHandler, now_ms, addr: u128, port, protocol, outward, flags| {
            let mut response = [0; 3];
            let request = [addr, port, protocol, outward, 0, flags, 0, 0, 0];
            assert_eq!(handler.handle(now_ms, &request, &[], &mut response), HandlerOutcome::Respond);
            response
        };
        let [pool, port, mapped] = ask(&mut handler, 0, host, 5000, tcp, 1, syn);
        assert_eq!(ask(&mut handler, 1, host, 5000, udp, 1, 0), [pool, port, mapped], "each protocol has all ports");
        assert_eq!(ask(&mut handler, 2, pool, port, tcp, 0, syn | ack), [host, 5000, mapped]);
        // The flow is idle for longer than an unopened connection may be.
        handler.expire(1_000_000);
        assert_eq!(ask(&mut handler, 1_000_000, host, 5000, tcp, 1, ack), [pool, port, mapped]);
        assert_eq!(ask(&mut handler, 1_000_000, pool, port, tcp, 0, ack), [host, 5000, mapped]);
    }
}

fn entries(handler: &CHandler, table: pathcall_p4::ir::TableId) -> usize {
    let mut count = 0;
    handler.each_entry(table, &mut |_| count += 1);
    count
}
