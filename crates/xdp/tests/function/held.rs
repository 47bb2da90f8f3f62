//! The functions that come with the project, split, their element in the kernel: what they are in one piece.
//!
//! `SEEDS` says how many runs of each, `FIRST_SEED` where they begin.

use std::path::{Path, PathBuf};

use pathcall_function::held::{Faults, Function, Kind, Plan, Sent, play};
use pathcall_function::ir::Program;
use pathcall_xdp::function::{Config, XdpFunction};
use pcap_file::pcap::PcapReader;

const TESTING: Config = Config { testing: true, local_port: None, storage: None };
/// Entries that the element has room for.
const ENTRIES: u32 = 4;
/// What is inside in the capture.
const INSIDE: (u32, u32) = (0x0a4d_0100, 0xffff_ff00);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions")
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

fn load(program: &Program) -> XdpFunction {
    XdpFunction::load(program, &TESTING).unwrap_or_else(|error| panic!("{error}"))
}

fn capture() -> Vec<Sent> {
    let file = std::fs::File::open(folder().join("tcp.pcap")).expect("a capture");
    let mut reader = PcapReader::new(file).expect("a capture");
    let mut sent = Vec::new();
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        sent.push((u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_frac), packet.data.to_vec()));
    }
    let first = sent[0].0;
    sent.into_iter().map(|(at_us, bytes)| Sent::captured(at_us - first, INSIDE, bytes)).collect()
}

#[test]
fn in_parts_as_in_one_piece() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    let first = number("FIRST_SEED", 1);
    for kind in Kind::ALL {
        let function =
            Function::load(kind, &folder(), &cache).unwrap_or_else(|wrong| panic!("{}: {wrong}", kind.name()));
        let plans = (first..first + number("SEEDS", 1)).map(|seed| {
            let faults =
                Faults { changes: 1, routes: true, restart: seed % 2 == 0, death: seed % 3 == 0, ..Faults::default() };
            Plan::new(kind, seed, ENTRIES, 30, faults)
        });
        // What TCP's own packets do most with.
        let captured = matches!(kind, Kind::Snat | Kind::Trd);
        let captured = captured.then(|| Plan::of_capture(kind, 1, ENTRIES, capture(), Faults::default()));
        for plan in plans.chain(captured) {
            let element = function.split(ENTRIES).expect("a function that can be split").element;
            let Some(kernel) = super::permitted(XdpFunction::load(&element, &TESTING)) else { return };
            let mut kernel = Some(kernel);
            match play(&function, &plan, &mut |program| kernel.take().unwrap_or_else(|| load(program))) {
                Ok(played) => println!("{}: {played:?}", kind.name()),
                Err(wrong) => panic!("{}: {wrong}", kind.name()),
            }
        }
    }
}
