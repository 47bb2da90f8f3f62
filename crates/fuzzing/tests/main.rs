//! Damaged samples through every fuzz target: a bounded number, the same ones in every run.
//!
//! Samples are what the targets read in earnest: frames of the conformance corpus, captures, filters, functions, models.
//! Each input is a sample, or several, with bytes changed, repeated, moved, cut out, or put in.

use std::fs;
use std::path::{Path, PathBuf};

use pathcall_fuzzing::TARGETS;
use pcap_file::pcap::PcapReader;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Inputs of each target.
const INPUTS: usize = 3_000;
/// Longest input, as in `fuzz/run`.
const LEN_MAX: usize = 4096;
/// Ethernet, IPv4 and UDP before a frame of a capture.
const HEADERS: usize = 14 + 20 + 8;
/// Samples that an input begins with, at most: sequences of frames are longer than frames.
const JOINED_MAX: usize = 6;
/// Changes to one input, at most.
const CHANGES_MAX: usize = 8;
/// Values at which arithmetic goes wrong.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files with this ending in a folder, as they are.
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

/// Each after its length, as targets that take sequences read them.
fn counted(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let counted = |frame: &Vec<u8>| {
        let len = u16::try_from(frame.len()).expect("a frame");
        [&len.to_be_bytes()[..], frame].concat()
    };
    frames.iter().map(counted).collect()
}

/// What a target reads in earnest.
fn samples(target: &str) -> Vec<Vec<u8>> {
    match target {
        "wire" => frames(),
        "program" | "endpoint" | "clone" | "delegate" => counted(&frames()),
        "capture" => files("functions", ".pcap"),
        "filter" => files("crates/build/tests/fixtures", ".nf"),
        "function_parse" => files("functions", ".p4c"),
        // Behind a letter that says which kind of model it is.
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

/// An input made of samples.
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

/// Runs a target; a panic names the input.
fn play(name: &str) {
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
                play(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_played_and_is_a_program_of_libfuzzer() {
            let played = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), played);
            let programs = files("fuzz/fuzz_targets", ".rs").len();
            assert_eq!(programs, played.len());
            let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("the manifest");
            for name in played {
                assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
            }
        }
    };
}

targets!(capture clone delegate endpoint filter function_parse message messages place_model program ring served wire);
