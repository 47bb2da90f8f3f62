//! The program in the kernel does what the reference does: the same frames out, the same registers.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure. `FRAMES=n` plays so many.

mod common;

use std::path::Path;

use common::Tested;
use pathcall_conformance::campaign;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::generate::{Options, SIZE};
use pathcall_program::Program;
use pathcall_xdp::Error;

/// Frames that are compared if not told otherwise.
const FRAMES: u64 = 1_000_000;

/// What was loaded; nothing, said aloud, where that is not permitted.
fn loaded<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::Permission) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {}", Error::Permission);
            None
        }
        result => Some(result.unwrap_or_else(|error| panic!("{error}"))),
    }
}

#[test]
fn a_million_random_frames_make_no_difference() {
    let Some(mut tested) = loaded(Tested::new(SIZE)) else { return };
    let frames = std::env::var("FRAMES").map_or(FRAMES, |frames| frames.parse().expect("a number"));
    let played = campaign(&mut Program::new(SIZE), &mut tested, 1, frames, Options::default());
    let played = played.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(played >= frames);
}

#[test]
fn the_corpus_is_done_as_the_reference_did_it() {
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
        let Some(mut tested) = loaded(Tested::new(case.memory)) else { return };
        case.replay(&mut tested).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", path.display()));
        files += 1;
    }
    assert!(files >= 8, "{files} files");
}
