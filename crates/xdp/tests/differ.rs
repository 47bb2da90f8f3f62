//! Differential tests of the kernel's program and the reference: equal frames out, equal registers.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure. `FRAMES=n` sets the number of frames.

use std::path::Path;

use crate::common::{Tested, config, loaded};
use pathcall_conformance::campaign;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::generate::{GeneratorOptions, SIZE};
use pathcall_xdp::{Config, KernelSwitch};

/// Default number of compared frames.
const FRAMES: u64 = 300_000;
/// Number of compared frames in inline mode, where the work is the same.
const INLINE_FRAMES: u64 = 100_000;

#[test]
fn program_matches_reference_on_random_frames() {
    let Some(kernel) = loaded(KernelSwitch::load(&config(SIZE))) else { return };
    let mut tested = Tested::of(kernel, SIZE);
    let frames = std::env::var("FRAMES").map_or(FRAMES, |frames| frames.parse().expect("a number"));
    let played =
        campaign(&mut pathcall_conformance::program(SIZE), &mut tested, 1, frames, GeneratorOptions::default());
    let played = played.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(played >= frames);
}

#[test]
fn inline_pipeline_matches_reference_on_random_frames() {
    let Some(kernel) = loaded(KernelSwitch::load(&Config { inlined: true, ..config(SIZE) })) else { return };
    let mut tested = Tested::inlined(kernel, SIZE);
    let played =
        campaign(&mut pathcall_conformance::program(SIZE), &mut tested, 1, INLINE_FRAMES, GeneratorOptions::default());
    let played = played.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(played >= INLINE_FRAMES);
}

#[test]
fn program_matches_reference_on_corpus() {
    the_corpus_is_done(false);
}

#[test]
fn inline_program_matches_reference_on_corpus() {
    the_corpus_is_done(true);
}

fn the_corpus_is_done(inlined: bool) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut files = 0;
    for entry in corpus.read_dir().expect("the corpus") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let case = Case::from_text(&text).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        // Frames with tokens are processed in user space.
        if case.has_tokens() {
            continue;
        }
        let Some(kernel) = loaded(KernelSwitch::load(&Config { inlined, ..config(case.memory) })) else { return };
        let mut tested = if inlined { Tested::inlined(kernel, case.memory) } else { Tested::of(kernel, case.memory) };
        case.replay(&mut tested).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", path.display()));
        files += 1;
    }
    assert!(files >= 8, "{files} files");
}
