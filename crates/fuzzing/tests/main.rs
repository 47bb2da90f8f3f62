//! Every fuzz target on mutated samples: a fixed number of inputs, equal in every run.
//!
//! Samples are valid inputs of the targets: frames of the conformance corpus, captures, filters, functions, models.
//! Each input consists of one or several samples with bytes changed, repeated, copied or removed.

use std::fs;
use std::path::{Path, PathBuf};

use pathcall_fuzzing::TARGETS;
use pcap_file::pcap::PcapReader;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Number of inputs per target.
const INPUTS: usize = 3_000;
/// Longest input, as in `fuzz/run`.
const LEN_MAX: usize = 4096;
/// Length of the Ethernet, IPv4 and UDP headers before a frame of a capture.
const HEADERS: usize = 14 + 20 + 8;
/// Maximum number of samples joined to an input: some targets read sequences of frames.
const JOINED_MAX: usize = 6;
/// Maximum number of changes to one input.
const CHANGES_MAX: usize = 8;
/// Boundary values, at which arithmetic errors are likely.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads the files of a folder with this ending.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of the tree");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.to_str().is_some_and(|path| path.ends_with(ending)));
    paths.sort();
    let read: Vec<_> = paths.iter().map(|path| fs::read(path).expect("a file")).collect();
    assert!(!read.is_empty(), "no {ending} in {folder}");
    read
}

/// Frames of the conformance corpus.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for capture in files("conformance", ".pcap") {
        let mut reader = PcapReader::new(&capture[..]).expect("a capture");
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a packet").data;
            frames.extend(packet.get(HEADERS..).map(<[u8]>::to_vec));
        }
    }
    assert!(frames.len() > 100, "{} frames in the corpus", frames.len());
    frames
}

/// Prefixes each frame with its length, as targets that read sequences expect.
fn prefix_lengths(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let prefix = |frame: &Vec<u8>| {
        let len = u16::try_from(frame.len()).expect("a frame");
        [&len.to_be_bytes()[..], frame].concat()
    };
    frames.iter().map(prefix).collect()
}

/// Valid inputs of a target.
fn samples(target: &str) -> Vec<Vec<u8>> {
    match target {
        "wire" => frames(),
        "program" | "endpoint" | "clone" | "delegate" => prefix_lengths(&frames()),
        "capture" => files("functions", ".pcap"),
        "filter" => files("crates/build/tests/fixtures", ".nf"),
        "function_parse" => files("functions", ".p4c"),
        // After a letter for the kind of model: hardware or application.
        "place_model" => [("h", "crates/place/models"), ("a", "crates/place/models/applications")]
            .into_iter()
            .flat_map(|(kind, folder)| {
                files(folder, ".yaml").into_iter().map(move |text| [kind.as_bytes(), &text].concat())
            })
            .collect(),
        // Bytes of any kind: messages, rings, packets.
        _ => vec![vec![0; 64], (0..=255).collect(), b"\x0a\x05hello\x12\x02\x08\x01".to_vec()],
    }
}

/// Creates an input from samples.
fn input(samples: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..random.random_range(1..=JOINED_MAX) {
        input.extend_from_slice(samples.choose(random).expect("samples"));
    }
    input.truncate(LEN_MAX);
    for _ in 0..random.random_range(0..=CHANGES_MAX) {
        change(&mut input, random);
    }
    input.truncate(LEN_MAX);
    input
}

fn change(input: &mut Vec<u8>, random: &mut StdRng) {
    if input.is_empty() {
        return input.push(random.random());
    }
    let at = random.random_range(0..input.len());
    let end = (at + random.random_range(1..=16)).min(input.len());
    match random.random_range(0..7) {
        0 => input[at] ^= 1 << random.random_range(0..8),
        1 => input[at] = random.random(),
        2 => input[at] = *EDGES.choose(random).expect("edges"),
        3 => drop(input.drain(at..end)),
        4 => {
            let again = input[at..end].to_vec();
            input.splice(at..at, again);
        }
        5 => {
            let to = random.random_range(0..input.len());
            let moved = input[at..end].to_vec();
            input.splice(to..to, moved);
        }
        _ => input.truncate(at),
    }
}

/// Runs a target on all inputs; a panic reports the input.
fn run_target(name: &str) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    let samples = samples(name);
    let mut random = StdRng::seed_from_u64(7702);
    for sample in &samples {
        target(&sample[..sample.len().min(LEN_MAX)]);
    }
    for nth in 0..INPUTS {
        let input = input(&samples, &mut random);
        let ran = std::panic::catch_unwind(|| target(&input));
        assert!(ran.is_ok(), "{name}: input {nth} of {} bytes: {input:?}", input.len());
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run_target(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_tested_and_has_libfuzzer_program() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), tested);
            let programs = files("fuzz/fuzz_targets", ".rs").len();
            assert_eq!(programs, tested.len());
            let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("the manifest");
            for name in tested {
                assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
            }
        }
    };
}

targets!(capture clone delegate endpoint filter function_parse message messages place_model program ring served wire);
