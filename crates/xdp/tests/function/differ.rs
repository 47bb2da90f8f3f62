//! Random programs, in the kernel and in the interpreter.

use pathcall_function::emit::xdp::Storage;
use pathcall_function::interp::Interpreter;
use pathcall_function::random::{Choices, Limits, first_difference, program, steps};
use pathcall_xdp::function::{Config, Error, XdpFunction};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, FileFailurePersistence, TestCaseError, TestRunner};

/// Steps that a program is put through.
const STEPS: usize = 60;
const LIMITS: Limits = Limits { copies: false, generated: true };

/// What differs, if anything, of the program by these choices.
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
    // Nothing to be tested where nothing is permitted.
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

#[test]
fn random_programs_agree() {
    campaign(40, None);
}

#[test]
fn values_in_a_map_are_the_same() {
    campaign(20, Some(Storage::Scratch));
}
