//! Differential tests of random programs, in the kernel and in the interpreter.

use pathcall_function_testing::random::{Choices, FunctionStep, ProgramLimits, first_difference, program, steps};
use pathcall_p4::emit::xdp::Storage;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, Match, Program, TableEntry, TableId};
use pathcall_p4::{Input, Sources, compile};
use pathcall_xdp::function::{Config, Error, XdpFunction};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, FileFailurePersistence, TestCaseError, TestRunner};

/// Steps of each program.
const STEPS: usize = 60;
const LIMITS: ProgramLimits = ProgramLimits { copies: false, generated: true };

/// Difference between kernel and interpreter for the program of these choices, if there is one.
fn differs(choices: &[u8], storage: Option<Storage>) -> Result<Option<String>, Error> {
    let (mut of_program, mut of_steps) = Choices::new(choices).split(160);
    let program = program(&mut of_program, LIMITS);
    let steps = steps(&program, &mut of_steps, STEPS);
    let config = Config { testing: true, local_port: None, storage };
    let mut kernel = XdpFunction::load(&program, &config)?;
    let mut reference = Interpreter::new(&program).expect("well-typed");
    let found = first_difference(&program, &steps, &mut reference, &mut kernel);
    Ok(found.map(|found| format!("{found}\n{:#?}\n{}", program.ingress, kernel.emitted().text)))
}

fn campaign(cases: u32, storage: Option<Storage>) {
    // Without permission there is nothing to test.
    if super::permitted(differs(&[], storage)).is_none() {
        return;
    }
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    let failure_persistence = Some(Box::new(FileFailurePersistence::Off) as _);
    let config = Cases { cases, failure_persistence, max_shrink_iters: 80, ..Cases::default() };
    let run = TestRunner::new(config).run(&prop::collection::vec(any::<u8>(), 0..1500), |choices| {
        match differs(&choices, storage) {
            Ok(None) => Ok(()),
            Ok(Some(difference)) => Err(TestCaseError::fail(difference)),
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}

/// v1model program with one header, from these pieces of text.
fn compiled(header: &str, tables: &str, apply: &str) -> Program {
    let text = format!(
        "#include <core.p4>\n#include <v1model.p4>\n\
         header h_t {{ {header} }} struct headers {{ h_t h; }} struct metadata {{ }}\n\
         parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{\n\
             state start {{ p.extract(hdr.h); transition accept; }} }}\n\
         control V(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ {tables}\n\
             apply {{ {apply} }} }}\n\
         control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{ }} }}\n\
         control C(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr.h); }} }}\n\
         V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
    );
    let mut sources = Sources::default();
    compile(&mut sources, Input::Text { name: "text.p4".into(), text }).expect("a program")
}

/// Plays the steps in the kernel and in the interpreter, and compares the results.
pub(super) fn agree(program: &Program, steps: &[FunctionStep]) {
    for storage in [None, Some(Storage::Scratch)] {
        let config = Config { testing: true, local_port: None, storage };
        let Some(mut kernel) = super::permitted(XdpFunction::load(program, &config)) else { return };
        let mut reference = Interpreter::new(program).expect("well-typed");
        assert_eq!(first_difference(program, steps, &mut reference, &mut kernel), None);
    }
}

/// The compiler would turn a repeated sum into a product, which does not exist for 128 bits here.
#[test]
fn repeated_wide_sum_is_not_compiled_to_product() {
    let apply = "hdr.h.a = hdr.h.a + hdr.h.a + hdr.h.a + hdr.h.a + hdr.h.a;\n\
                 hdr.h.b = (hdr.h.b << 3) + hdr.h.b;\n\
                 hdr.h.c = -hdr.h.c - hdr.h.c - hdr.h.c;\n\
                 hdr.h.d = (hdr.h.d |+| hdr.h.d) - hdr.h.d - hdr.h.d - hdr.h.d - hdr.h.d;\n\
                 sm.egress_spec = 1;";
    let program = compiled("bit<128> a; bit<128> b; bit<72> c; int<100> d; bit<4> rest;", "", apply);
    let random: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    agree(&program, &steps(&program, &mut Choices::new(&random), STEPS));
}

#[test]
fn modified_entry_keeps_hit_mark() {
    let table = "action to(bit<9> port) { sm.egress_spec = port; }\n\
                 table t { key = { hdr.h.a: exact; } actions = { to; } }";
    let program = compiled("bit<8> a; bit<120> rest;", table, "t.apply();");
    let action = program.actions.iter().position(|action| action.name.ends_with("to")).expect("an action");
    let entry = |port| TableEntry {
        keys: vec![Match { value: 7, prefix_bits: 8 }],
        action: ActionId(action as u32),
        args: vec![port],
    };
    let table = TableId(0);
    let packet = FunctionStep::Packet { now_us: 1, port: 1, bytes: vec![7; 16] };
    let steps = [
        FunctionStep::Insert(table, entry(1)),
        packet,
        FunctionStep::Modify(table, entry(2)),
        FunctionStep::Used(table),
        FunctionStep::Modify(table, entry(3)),
        FunctionStep::Used(table),
    ];
    agree(&program, &steps);
}

#[test]
fn random_programs_match_interpreter() {
    campaign(40, None);
}

#[test]
fn random_programs_with_map_storage_match_interpreter() {
    campaign(20, Some(Storage::Scratch));
}
