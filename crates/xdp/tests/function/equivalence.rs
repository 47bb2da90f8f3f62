//! Model tests of the project's functions, split, with their element in the kernel, against the unsplit functions.
//!
//! `SEEDS` is the number of runs of each function, `FIRST_SEED` the first seed.

use std::path::Path;

use pathcall_function_testing::equivalence::{Function, FunctionKind, RunFaults, RunPlan, play};
use pathcall_p4::ir::Program;
use pathcall_xdp::function::{Config, XdpFunction};

const TESTING: Config = Config { testing: true, local_port: None, storage: None };

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

#[test]
fn split_functions_match_unsplit_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    let first = number("FIRST_SEED", 1);
    for kind in FunctionKind::ALL {
        let function = Function::load(kind, &folder, &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
        let element = function.split(4).expect("a function that can be split").element;
        if super::permitted(XdpFunction::load(&element, &TESTING)).is_none() {
            return;
        }
        for seed in first..first + number("SEEDS", 1) {
            let faults = RunFaults { changes: 1, routes: true, restart: seed % 2 == 0, ..RunFaults::default() };
            let plan = RunPlan::new(kind, seed, 4, 30, faults);
            let mut kernel =
                |program: &Program| XdpFunction::load(program, &TESTING).unwrap_or_else(|error| panic!("{error}"));
            match play(&function, &plan, &mut kernel) {
                Ok(played) => println!("{}: {played:?}", kind.name()),
                Err(wrong) => panic!("{}: {wrong}", kind.name()),
            }
        }
    }
}
