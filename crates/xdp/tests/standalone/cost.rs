//! Cost tests of the program: instructions by file, compared with `bpf/cost.txt`, and the time of calls compared with
//! forwarding, which is printed.
//!
//! `UPDATE=1` writes the current counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::common::loaded;
use pathcall_xdp::TypicalFrame;
use pathcall_xdp::cost::{COMPILER, instructions};

/// Compiler of the table; other compilers generate other code.
const CLANG: &str = "clang version 19.";
/// Growth that fails the test, in percent, for files with more than [`FEW`] instructions.
const PERCENT: u32 = 5;
const FEW: u32 = 20;

const HEAD: &str = "\
# Instructions of the switch program in the kernel, by file of bpf/, as clang 19 compiles it (-O2,
# -mcpu=v3). The test `cost` of crates/xdp fails where one has grown by more than 5 %;
# `UPDATE=1 cargo test -p pathcall-xdp --features kernel --test alone cost` writes what there is now.
";

/// Number of turns, and frames per turn.
const TURNS: u32 = 5;
const RUNS: u32 = 200;

/// The goal is at most 1.25 times the time of forwarding, which holds on most processors. The time also depends on the
/// processor, so it is only printed; the number of instructions is checked.
#[test]
fn calls_and_forwarding_are_timed() {
    let _alone = crate::exclusive();
    for call in TypicalFrame::CALLS {
        let Some(ratio) = loaded(call.ratio(TypicalFrame::Crossing, TURNS, RUNS)) else { return };
        println!("{}: {ratio:.2} times {}", call.name(), TypicalFrame::Crossing.name());
        assert!(ratio > 0.0 && ratio.is_finite(), "{}: {ratio}", call.name());
    }
}

#[test]
fn program_instructions_match_recorded_cost() {
    let _alone = crate::exclusive();
    if !COMPILER.contains(CLANG) {
        println!("skipped: bpf/cost.txt is of {CLANG}x, this program was built by {COMPILER}");
        return;
    }
    let files = instructions().expect("lines");
    let total = ("total".to_owned(), files.iter().map(|(_, count)| count).sum());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bpf/cost.txt");
    if std::env::var_os("UPDATE").is_some() {
        let mut text = HEAD.to_owned();
        for (file, count) in files.iter().chain([&total]) {
            let _ = writeln!(text, "{file:<14}{count:>6}");
        }
        fs::write(&path, text).expect("written");
        return;
    }
    let text = fs::read_to_string(&path).expect("the table");
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let table: BTreeMap<&str, u32> =
        lines.map(|(file, count)| (file, count.trim().parse().expect("a number"))).collect();
    let grown: Vec<_> = files
        .iter()
        .chain([&total])
        .filter_map(|(file, count)| {
            let known = table.get(&file[..]).copied().unwrap_or(0);
            let much = count * 100 > known.max(FEW) * (100 + PERCENT);
            much.then(|| format!("{file}: {count} instructions, were {known}"))
        })
        .collect();
    assert!(grown.is_empty(), "grown by more than {PERCENT} % (UPDATE=1 accepts it):\n{}", grown.join("\n"));
}
