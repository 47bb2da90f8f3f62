//! Mistakes planted in placement, the split and servers, one at a time: the functions show each, and not only snat.p4c.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pathcall_function::interp::Interpreter;
use pathcall_function::ir::Program;
use pathcall_function_testing::held::{Faults, Function, Kind, Plan, play};
use pathcall_wire::{Mutant, mutant};

/// Runs of each function within which a mistake has to show.
const SEEDS: u64 = 16;

/// Mistakes, and the functions that show them.
const SHOWN: &[(Mutant, &[Kind])] = &[
    (Mutant::FunctionOldGroupForgotten, &[Kind::Trd]),
    (Mutant::FunctionTurnIgnored, &[Kind::Trd]),
    (Mutant::FunctionTurnKept, &[Kind::Trd]),
    (Mutant::FunctionOvertakes, &[Kind::Fib]),
    (Mutant::FunctionValuesKept, &[Kind::Trd]),
    (Mutant::FunctionPrefixUncleared, &[Kind::Fib]),
    (Mutant::HeldUncounted, &[Kind::Fib]),
    (Mutant::HeldUnremembered, &[Kind::Trd, Kind::Smooth]),
    (Mutant::HeldUnlistedForgotten, &[Kind::Smooth]),
    (Mutant::HeldOtherCell, &[Kind::Trd]),
];

fn load(kind: Kind) -> Function {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    Function::load(kind, &folder, &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()))
}

/// What is wrong in the run of this seed.
fn wrong(function: &Function, planted: Option<Mutant>, seed: u64) -> Option<String> {
    let faults = Faults { changes: 1, routes: true, ..Faults::default() };
    let plan = Plan::new(function.kind, seed, [2, 8, 64][seed as usize % 3], 20, faults);
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
fn every_mistake_is_found_by_what_it_spoils() {
    let mut missed = Vec::new();
    for kind in Kind::ALL {
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
