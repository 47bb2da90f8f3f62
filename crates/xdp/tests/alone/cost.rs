//! The program does not grow unnoticed: instructions by file beside those in `bpf/cost.txt`; and what calls take beside
//! forwarding, by the kernel's clock, is printed.
//!
//! `UPDATE=1` writes what there is now.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::common::loaded;
use pathcall_xdp::Typical;
use pathcall_xdp::cost::{COMPILER, instructions};

/// The compiler that the table is of: others write other code.
const CLANG: &str = "clang version 19.";
/// Growth that is noticed, in percent, of files that have more than so few instructions.
const PERCENT: u32 = 5;
const FEW: u32 = 20;

const HEAD: &str = "\
# Instructions of the switch program in the kernel, by file of bpf/, as clang 19 compiles it (-O2,
# -mcpu=v3). The test `cost` of crates/xdp fails where one has grown by more than 5 %;
# `UPDATE=1 cargo test -p pathcall-xdp --features kernel --test alone cost` writes what there is now.
";

/// Turns, and frames of each turn.
const TURNS: u32 = 5;
const RUNS: u32 = 200;

/// Asked is 1.25 times what forwarding takes, which holds on most processors. How long a frame takes is no property of the
/// program alone, so it is printed; how many instructions there are is.
#[test]
fn calls_and_forwarding_are_timed_side_by_side() {
    let _alone = crate::alone();
    for call in Typical::CALLS {
        let Some(ratio) = loaded(call.ratio(Typical::Crossing, TURNS, RUNS)) else { return };
        println!("{}: {ratio:.2} times {}", call.name(), Typical::Crossing.name());
        assert!(ratio > 0.0 && ratio.is_finite(), "{}: {ratio}", call.name());
    }
}

#[test]
fn the_program_does_not_grow_unnoticed() {
    let _alone = crate::alone();
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
