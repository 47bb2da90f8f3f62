//! The program in the kernel does what the reference does: the same frames out, the same registers.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure. `FRAMES=n` plays so many.

use std::path::Path;

use crate::common::{Tested, config, loaded};
use pathcall_conformance::campaign;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::generate::{Options, SIZE};
use pathcall_xdp::{Config, Kernel};

/// Frames that are compared if not told otherwise.
const FRAMES: u64 = 1_000_000;
/// Of those that pass by: all of the work is the same.
const INLINE_FRAMES: u64 = 300_000;

#[test]
fn a_million_random_frames_make_no_difference() {
    let Some(kernel) = loaded(Kernel::load(&config(SIZE))) else { return };
    let mut tested = Tested::of(kernel, SIZE);
    let frames = std::env::var("FRAMES").map_or(FRAMES, |frames| frames.parse().expect("a number"));
    let played = campaign(&mut pathcall_conformance::program(SIZE), &mut tested, 1, frames, Options::default());
    let played = played.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(played >= frames);
}

#[test]
fn nor_where_frames_pass_by_on_their_way_to_their_endpoints() {
    let Some(kernel) = loaded(Kernel::load(&Config { inlined: true, ..config(SIZE) })) else { return };
    let mut tested = Tested::inlined(kernel, SIZE);
    let played = campaign(&mut pathcall_conformance::program(SIZE), &mut tested, 1, INLINE_FRAMES, Options::default());
    let played = played.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(played >= INLINE_FRAMES);
}

#[test]
fn the_corpus_is_done_as_the_reference_did_it() {
    the_corpus_is_done(false);
}

#[test]
fn the_corpus_is_done_in_passing() {
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
        // Applications whose frames carry tokens are user space's.
        if case.has_tokens() {
            continue;
        }
        let Some(kernel) = loaded(Kernel::load(&Config { inlined, ..config(case.memory) })) else { return };
        let mut tested = if inlined { Tested::inlined(kernel, case.memory) } else { Tested::of(kernel, case.memory) };
        case.replay(&mut tested).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", path.display()));
        files += 1;
    }
    assert!(files >= 8, "{files} files");
}
