//! Tests of emitted P4: the text is read back by our own front end, and behaves the same.

use std::path::Path;

use proptest::prelude::*;

use crate::floats::bits::{BITS, check, packet};
use pathcall_function_testing::equivalence::ReadBackProgram;
use pathcall_function_testing::fixtures::HandlerTables;
use pathcall_function_testing::random::{Choices, ProgramLimits, first_difference, program, steps};
use pathcall_netfn::run::{Config, System};
use pathcall_netfn::serve::HandlerOutcome;
use pathcall_p4::emit::p4::emit;
use pathcall_p4::exec::Output;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::split::{SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

const LIMITS: ProgramLimits = ProgramLimits { copies: true, generated: false };
/// Number of steps of a program.
const STEPS: usize = 60;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn emitted_p4_read_back_behaves_the_same(choices in prop::collection::vec(any::<u8>(), 0..1500)) {
        let (mut of_program, mut of_steps) = Choices::new(&choices).split(160);
        let program = program(&mut of_program, LIMITS);
        let steps = steps(&program, &mut of_steps, STEPS);
        let mut first = Interpreter::new(&program).expect("well-typed");
        let mut second = ReadBackProgram::new(&program).map_err(TestCaseError::fail)?;
        let found = first_difference(&program, &steps, &mut first, &mut second);
        prop_assert!(found.is_none(), "{}\n{}", found.unwrap_or_default(), emit(&program).expect("emitted before"));
    }
}

/// Special floats pass unchanged through P4 text that was read back (CLIP §IV-C).
#[test]
fn floats_pass_emitted_p4() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/floats.p4c");
    let mut sources = Sources::default();
    let whole =
        compile(&mut sources, Path::new(path)).unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let split = split(&whole, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("a function");
    let element = ReadBackProgram::new(&split.element).unwrap_or_else(|wrong| panic!("{wrong}"));
    let server = HandlerTables::new(&whole, |_, request, response| {
        let [_, value, second] = request else { unreachable!("three parameters") };
        let number = f32::from_bits(*value as u32);
        let kinds = [number.is_nan(), number.is_infinite(), number <= 0.0, number > 0.0];
        let kind = kinds.iter().rev().fold(0, |all, one| all << 1 | u128::from(*one));
        response.copy_from_slice(&[*value, (number * 2.0).to_bits().into(), *second, kind]);
        HandlerOutcome::Respond
    });
    let mut system = System::new(split, element, vec![server], 1, &Config::default(), |_| 10);
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
