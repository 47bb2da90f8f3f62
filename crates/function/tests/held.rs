//! The functions that come with Pathcall, split, are what they are in one piece: in the interpreter, and as P4 read back.
//!
//! `SEEDS` says how many runs of each kind, `FIRST_SEED` where they begin.

use std::path::{Path, PathBuf};

use pathcall_function::interp::Interpreter;
use pathcall_function::ir::Program;
use pathcall_function_testing::held::{Faults, Function, Kind, Plan, Played, Reread, Sent, play};
use pcap_file::pcap::PcapReader;

/// Flows of a run.
const FLOWS: u64 = 24;

fn functions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions")
}

fn load(kind: Kind) -> Function {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    Function::load(kind, &functions(), &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// All, or the one that `KIND` names.
fn kinds() -> impl Iterator<Item = Kind> {
    let only = std::env::var("KIND").ok();
    Kind::ALL.into_iter().filter(move |kind| only.as_ref().is_none_or(|only| only == kind.name()))
}

fn interpreter(program: &Program) -> Interpreter {
    Interpreter::new(program).expect("well-typed")
}

/// Plays so many runs with these faults; what came of all.
fn campaign(kind: Kind, seeds: u64, faults: impl Fn(u64) -> Faults) -> Played {
    let function = load(kind);
    let mut all = Played::default();
    let first = number("FIRST_SEED", 1);
    for seed in first..first + number("SEEDS", seeds) {
        // A table that holds one entry is always full.
        let entries = [1, 3, 8, 64][seed as usize % 4];
        let plan = Plan::new(kind, seed, entries, FLOWS, faults(seed));
        match play(&function, &plan, &mut interpreter) {
            Ok(played) => all += played,
            Err(wrong) => panic!("{}: {wrong}", kind.name()),
        }
    }
    println!("{}: {all:?}", kind.name());
    all
}

#[test]
fn in_parts_as_in_one_piece() {
    for kind in kinds() {
        let all = campaign(kind, 8, |seed| Faults {
            changes: (seed % 2) as u32,
            routes: seed % 3 == 0,
            // Variables of a handler do not outlast silence and a change of the group.
            silence: match kind {
                Kind::Snat | Kind::Trd => seed == 3,
                Kind::Knock => seed == 2,
                Kind::Fib | Kind::Smooth => false,
            },
            ..Faults::default()
        });
        assert!(all.left > 0 && all.lost == 0 && all.anew == 0, "{}: {all:?}", kind.name());
        if kind != Kind::Smooth {
            assert!(all.placed > 0 && all.replaced > 0 && all.alone > 0, "{}: {all:?}", kind.name());
        }
        assert!(all.changes > 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn many_changes_of_the_group_move_no_flow() {
    for kind in kinds() {
        let all = campaign(kind, 4, |_| Faults { changes: 5, ..Faults::default() });
        assert!(all.changes > 2 && all.anew == 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn a_server_that_dies_takes_only_its_own_flows_state() {
    for kind in kinds() {
        let all = campaign(kind, 4, |seed| Faults { death: true, changes: (seed % 3) as u32, ..Faults::default() });
        assert!(all.lost > 0, "{}: {all:?}", kind.name());
        assert!(all.anew > 0 || kind == Kind::Fib, "{}: {all:?}", kind.name());
    }
}

#[test]
fn an_element_that_begins_anew_loses_no_packet() {
    for kind in kinds() {
        let all = campaign(kind, 4, |_| Faults { restart: true, ..Faults::default() });
        assert!(all.lost == 0 && all.anew == 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn emitted_p4_does_the_same() {
    for kind in kinds() {
        let function = load(kind);
        for seed in [1, 2] {
            let faults = Faults { changes: 1, routes: true, ..Faults::default() };
            let plan = Plan::new(kind, seed, 4, FLOWS, faults);
            let mut reread = |program: &Program| Reread::new(program).unwrap_or_else(|wrong| panic!("{wrong}"));
            let played = play(&function, &plan, &mut reread);
            let played = played.unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
            assert!(played.left > 0, "{}: {played:?}", kind.name());
        }
    }
}

/// What is inside in captures.
const INSIDE: (u32, u32) = (0x0a4d_0100, 0xffff_ff00);

fn capture(name: &str) -> Vec<Sent> {
    let file = std::fs::File::open(functions().join(name)).expect("a capture");
    let mut reader = PcapReader::new(file).expect("a capture");
    let (mut sent, mut first) = (Vec::new(), None);
    // Frames that were cut short when they were captured are, here too.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        let at_us = u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac);
        let first = *first.get_or_insert(at_us);
        sent.push(Sent::captured(at_us - first, INSIDE, packet.data.to_vec()));
    }
    sent
}

#[test]
fn captures_are_no_exception() {
    let sent = capture("tcp.pcap");
    for kind in kinds() {
        let function = load(kind);
        for (seed, entries) in [(1, 1), (2, 16)] {
            let faults = Faults { changes: 1, ..Faults::default() };
            let plan = Plan::of_capture(kind, seed, entries, sent.clone(), faults);
            let played = play(&function, &plan, &mut interpreter);
            let played = played.unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
            println!("{}: {played:?}", kind.name());
        }
    }
}
