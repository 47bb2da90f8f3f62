//! Tests of the shipped functions, split against unsplit: in the interpreter, and as emitted P4 that is read back.
//!
//! `SEEDS` sets the number of runs of each kind, `FIRST_SEED` the first seed.

use std::path::{Path, PathBuf};

use pathcall_function_testing::equivalence::{
    Function, FunctionKind, PlannedPacket, ReadBackProgram, RunFaults, RunPlan, RunStats, play,
};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pcap_file::pcap::PcapReader;

/// Number of flows of a run.
const FLOWS: u64 = 24;

fn functions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions")
}

fn load(kind: FunctionKind) -> Function {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    Function::load(kind, &functions(), &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// All functions, or the one that `KIND` names.
fn kinds() -> impl Iterator<Item = FunctionKind> {
    let only = std::env::var("KIND").ok();
    FunctionKind::ALL.into_iter().filter(move |kind| only.as_ref().is_none_or(|only| only == kind.name()))
}

fn interpreter(program: &Program) -> Interpreter {
    Interpreter::new(program).expect("well-typed")
}

/// Plays runs with these faults; returns the sum of their statistics.
fn campaign(kind: FunctionKind, seeds: u64, faults: impl Fn(u64) -> RunFaults) -> RunStats {
    let function = load(kind);
    let mut all = RunStats::default();
    let first = number("FIRST_SEED", 1);
    for seed in first..first + number("SEEDS", seeds) {
        // A table with room for one entry is always full.
        let entries = [1, 3, 8, 64][seed as usize % 4];
        let plan = RunPlan::new(kind, seed, entries, FLOWS, faults(seed));
        match play(&function, &plan, &mut interpreter) {
            Ok(played) => all += played,
            Err(wrong) => panic!("{}: {wrong}", kind.name()),
        }
    }
    println!("{}: {all:?}", kind.name());
    all
}

#[test]
fn split_functions_match_unsplit_ones() {
    for kind in kinds() {
        let all = campaign(kind, 8, |seed| RunFaults {
            changes: (seed % 2) as u32,
            routes: seed % 3 == 0,
            // Handler variables are lost on a pause with a change of the group.
            silence: match kind {
                FunctionKind::Snat | FunctionKind::Trd => seed == 3,
                FunctionKind::Knock => seed == 2,
                FunctionKind::Fib | FunctionKind::Smooth => false,
            },
            ..RunFaults::default()
        });
        assert!(all.left > 0 && all.lost == 0 && all.anew == 0, "{}: {all:?}", kind.name());
        if kind != FunctionKind::Smooth {
            assert!(all.placed > 0 && all.replaced > 0 && all.alone > 0, "{}: {all:?}", kind.name());
        }
        assert!(all.changes > 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn group_changes_move_no_flow() {
    for kind in kinds() {
        let all = campaign(kind, 4, |_| RunFaults { changes: 5, ..RunFaults::default() });
        assert!(all.changes > 2 && all.anew == 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn dead_server_loses_state_of_its_flows_only() {
    for kind in kinds() {
        let all =
            campaign(kind, 4, |seed| RunFaults { death: true, changes: (seed % 3) as u32, ..RunFaults::default() });
        assert!(all.lost > 0, "{}: {all:?}", kind.name());
        assert!(all.anew > 0 || kind == FunctionKind::Fib, "{}: {all:?}", kind.name());
    }
}

#[test]
fn restarted_element_loses_no_packet() {
    for kind in kinds() {
        let all = campaign(kind, 4, |_| RunFaults { restart: true, ..RunFaults::default() });
        assert!(all.lost == 0 && all.anew == 0, "{}: {all:?}", kind.name());
    }
}

#[test]
fn emitted_p4_matches_unsplit_function() {
    for kind in kinds() {
        let function = load(kind);
        for seed in [1, 2] {
            let faults = RunFaults { changes: 1, routes: true, ..RunFaults::default() };
            let plan = RunPlan::new(kind, seed, 4, FLOWS, faults);
            let mut reread =
                |program: &Program| ReadBackProgram::new(program).unwrap_or_else(|wrong| panic!("{wrong}"));
            let played = play(&function, &plan, &mut reread);
            let played = played.unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
            assert!(played.left > 0, "{}: {played:?}", kind.name());
        }
    }
}

/// Inside network of the captures.
const INSIDE: (u32, u32) = (0x0a4d_0100, 0xffff_ff00);

fn capture(name: &str) -> Vec<PlannedPacket> {
    let file = std::fs::File::open(functions().join(name)).expect("a capture");
    let mut reader = PcapReader::new(file).expect("a capture");
    let (mut sent, mut first) = (Vec::new(), None);
    // Frames that the capture truncated are used as they are.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        let at_us = u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac);
        let first = *first.get_or_insert(at_us);
        sent.push(PlannedPacket::captured(at_us - first, INSIDE, packet.data.to_vec()));
    }
    sent
}

#[test]
fn split_functions_match_unsplit_ones_on_captures() {
    let sent = capture("tcp.pcap");
    for kind in kinds() {
        let function = load(kind);
        for (seed, entries) in [(1, 1), (2, 16)] {
            let faults = RunFaults { changes: 1, ..RunFaults::default() };
            let plan = RunPlan::of_capture(kind, seed, entries, sent.clone(), faults);
            let played = play(&function, &plan, &mut interpreter);
            let played = played.unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
            println!("{}: {played:?}", kind.name());
        }
    }
}
