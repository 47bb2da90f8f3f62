//! Tests that mutants of placement, the split and servers are found by each function that they affect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pathcall_function_testing::equivalence::{Function, FunctionKind, RunFaults, RunPlan, play};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_wire::{Mutant, mutant};

/// Number of runs of each function within which a mutant must be found.
const SEEDS: u64 = 16;

/// Mutants, and the functions that must find them.
const SHOWN: &[(Mutant, &[FunctionKind])] = &[
    (Mutant::FunctionOldGroupForgotten, &[FunctionKind::Trd]),
    (Mutant::FunctionTurnIgnored, &[FunctionKind::Trd]),
    (Mutant::FunctionTurnKept, &[FunctionKind::Trd]),
    (Mutant::FunctionOvertakes, &[FunctionKind::Fib]),
    (Mutant::FunctionValuesKept, &[FunctionKind::Trd]),
    (Mutant::FunctionPrefixUncleared, &[FunctionKind::Fib]),
    (Mutant::HeldUncounted, &[FunctionKind::Fib]),
    (Mutant::HeldUnremembered, &[FunctionKind::Trd, FunctionKind::Smooth]),
    (Mutant::HeldUnlistedForgotten, &[FunctionKind::Smooth]),
    (Mutant::HeldOtherCell, &[FunctionKind::Trd]),
];

fn load(kind: FunctionKind) -> Function {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    Function::load(kind, &folder, &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()))
}

/// Difference in the run of this seed.
fn wrong(function: &Function, planted: Option<Mutant>, seed: u64) -> Option<String> {
    let faults = RunFaults { changes: 1, routes: true, ..RunFaults::default() };
    let plan = RunPlan::new(function.kind, seed, [2, 8, 64][seed as usize % 3], 20, faults);
    mutant::plant(planted);
    let mut interpreter = |program: &Program| Interpreter::new(program).expect("well-typed");
    let played = catch_unwind(AssertUnwindSafe(|| play(function, &plan, &mut interpreter)));
    mutant::plant(None);
    match played {
        Ok(played) => played.err(),
        Err(_) => Some("a panic".to_owned()),
    }
}

#[test]
fn every_mutant_is_found_by_affected_functions() {
    let mut missed = Vec::new();
    for kind in FunctionKind::ALL {
        let function = load(kind);
        for (mistake, _) in SHOWN.iter().filter(|(_, kinds)| kinds.contains(&kind)) {
            let found = (1..=SEEDS).find_map(|seed| Some((seed, wrong(&function, Some(*mistake), seed)?)));
            match found {
                Some((seed, wrong)) => println!("{mistake:?}, {}: seed {seed}: {wrong:.200}", kind.name()),
                None => missed.push((mistake, kind)),
            }
        }
        for seed in 1..=SEEDS {
            assert_eq!(wrong(&function, None, seed), None, "{}, nothing planted", kind.name());
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} runs: {missed:?}");
    assert!(Mutant::HELD.iter().all(|mistake| SHOWN.iter().any(|(shown, _)| shown == mistake)));
}
