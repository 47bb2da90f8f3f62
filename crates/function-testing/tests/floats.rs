//! Tests of floats: IEEE 754 bits in the element, floats in the handler (CLIP §IV-C). Special values return unchanged.

use std::path::Path;

use pathcall_netfn::handler::{CHandler, Config as Settings, HandlerStartError};
use pathcall_netfn::run::{Config, Oracle, System};
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::{SplitFunction, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};
use pathcall_sandbox::{GuestBuildError, SandboxKind};

pub mod bits;

use bits::{BITS, check, packet};

fn program() -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/floats.p4c");
    let mut sources = Sources::default();
    compile(&mut sources, path.as_path()).unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)))
}

fn start(program: &Program, kind: SandboxKind) -> Option<CHandler> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    let settings = Settings { kind: Some(kind), ..Settings::default() };
    match CHandler::start(program, &|_| None, &settings, &cache, 0) {
        Ok(handler) => Some(handler),
        Err(HandlerStartError::Build(GuestBuildError::MissingTools(lacking))) => {
            assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
            eprintln!("skipped: {kind:?}: {lacking}");
            None
        }
        Err(error) => panic!("{kind:?}: {error}"),
    }
}

fn through(split: &SplitFunction, element: impl Execution, handler: CHandler) {
    let mut system = System::new(split.clone(), element, vec![handler], 1, &Config::default(), |_| 10);
    system.advance(100_000, &mut |_| {});
    let mut before = 0;
    for (at, value) in BITS.into_iter().enumerate() {
        let mut left = Vec::new();
        let mut take = |output: Output<'_>| {
            if let Output::Packet { bytes, .. } = output {
                left.push(bytes.to_vec());
            }
        };
        system.process(101_000 + 100 * at as u64, 0, &packet(value), &mut take);
        system.finish(&mut take);
        check(value, before, &left);
        before = value;
    }
}

#[test]
fn floats_pass_split_function_in_every_sandbox() {
    let program = program();
    let split = split(&program, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("can be split");
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        let Some(handler) = start(&program, kind) else { continue };
        through(&split, Interpreter::new(&split.element).expect("runs"), handler);
    }
}

#[test]
fn floats_pass_unsplit_function() {
    let program = program();
    let handler = start(&program, SandboxKind::Wasm).or_else(|| start(&program, SandboxKind::Native));
    let Some(handler) = handler else { return };
    let mut whole = Oracle::new(&program, handler).expect("runs");
    let mut before = 0;
    for value in BITS {
        let mut left = Vec::new();
        whole.process(1000, 0, &packet(value), &mut |output| {
            if let Output::Packet { bytes, .. } = output {
                left.push(bytes.to_vec());
            }
        });
        check(value, before, &left);
        before = value;
    }
}
