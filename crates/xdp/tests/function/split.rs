//! Tests of the project's functions, split: the element's part passes the verifier, does the same as in the
//! interpreter, and has the number of instructions in `functions/cost.txt`.
//!
//! `UPDATE=1` writes the current counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use pathcall_function_testing::random::{Choices, first_difference, steps};
use pathcall_p4::emit::xdp::Storage;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::split::{SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};
use pathcall_wire::SplitMix64;
use pathcall_xdp::cost::COMPILER;
use pathcall_xdp::function::{Config, XdpFunction};

const FUNCTIONS: [&str; 5] = ["fib", "knock", "smooth", "snat", "trd"];
/// Compiler of the table; other compilers generate other code.
const CLANG: &str = "clang version 19.";
/// Growth that fails the test, in percent.
const PERCENT: u32 = 5;

const HEAD: &str = "\
# Instructions of functions in the kernel, of the element's part, as clang 19 compiles it (-O2, -mcpu=v3). The test
# `function` of crates/xdp fails where one has grown by more than 5 %;
# `UPDATE=1 cargo test -p pathcall-xdp --features kernel --test main function::split` writes what there is now.
";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(name)
}

/// Element's part of a function.
fn element(name: &str) -> Program {
    let mut sources = Sources::default();
    let whole = compile(&mut sources, path(&format!("{name}.p4c")).as_path());
    let whole = whole.unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    split(&whole, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("a function that can be split").element
}

#[test]
fn functions_pass_verifier_within_recorded_cost() {
    let mut counted = BTreeMap::new();
    for name in FUNCTIONS {
        let program = element(name);
        // The storage is fixed, so that values stay in variables.
        let config = Config { testing: true, local_port: None, storage: Some(Storage::of(&program)) };
        let Some(mut kernel) = super::permitted(XdpFunction::load(&program, &config)) else { return };
        let cost = kernel.cost().expect("line numbers");
        counted.insert(name.to_owned(), cost.iter().map(|(_, count)| count).sum::<u32>());
        let most: Vec<String> = cost.iter().take(4).map(|(what, count)| format!("{what} {count}")).collect();
        println!("{name}: {} instructions; {}", counted[name], most.join(", "));

        let mut random = SplitMix64::new(1);
        let bytes: Vec<u8> = (0..6_000).map(|_| random.bits() as u8).collect();
        let steps = steps(&program, &mut Choices::new(&bytes), 300);
        let mut reference = Interpreter::new(&program).expect("well-typed");
        let found = first_difference(&program, &steps, &mut reference, &mut kernel);
        assert_eq!(found, None, "{name}");
    }
    if !COMPILER.contains(CLANG) {
        println!("skipped: functions/cost.txt is of {CLANG}x, these were compiled by {COMPILER}");
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        let mut text = HEAD.to_owned();
        for (name, count) in &counted {
            let _ = writeln!(text, "{name:<10}{count:>6}");
        }
        fs::write(path("cost.txt"), text).expect("written");
        return;
    }
    let text = fs::read_to_string(path("cost.txt")).expect("the table");
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let table: BTreeMap<&str, u32> =
        lines.map(|(name, count)| (name, count.trim().parse().expect("a number"))).collect();
    let grown = |(name, count): (&String, &u32)| {
        let known = table.get(name.as_str()).copied().unwrap_or(0);
        (count * 100 > known * (100 + PERCENT)).then(|| format!("{name}: {count} instructions, were {known}"))
    };
    let grown: Vec<String> = counted.iter().filter_map(grown).collect();
    assert!(grown.is_empty(), "grown by more than {PERCENT} % (UPDATE=1 accepts it):\n{}", grown.join("\n"));
}
