//! Corpus in `conformance/`: generated from the reference, and compared with the files. `UPDATE=1 cargo test -p
//! pathcall-conformance` rewrites the files.

mod arrays;
mod ballots;
mod calls;
mod case_recorder;
mod hostile;
mod keys;
mod locks;
mod pcap;

use std::path::{Path, PathBuf};
use std::sync::Once;

use pathcall_conformance::corpus::{Case, CorpusError, CorpusLine};
use pathcall_conformance::{ProgramOutcome, ProgramStep, StepEffect};
use pathcall_program::Size;

/// Largest total size of the files, bytes.
const BYTES_MAX: u64 = 1_500_000;

/// Corpus cases by file name.
fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("rounds", arrays::rounds()),
        ("shadow", arrays::shadow()),
        ("multicast", arrays::multicast()),
        ("keyed", keys::keyed()),
        ("generations", keys::generations()),
        ("locks", locks::locks()),
        ("ballots", ballots::ballots()),
        ("calls", calls::calls()),
        ("refusals", hostile::refusals()),
        ("hostile", hostile::hostile()),
        ("tables", hostile::tables()),
        ("tokens", hostile::tokens()),
        ("random", hostile::random()),
    ]
}

/// Directory of the files, rewritten first if requested.
fn folder() -> PathBuf {
    static WRITTEN: Once = Once::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    WRITTEN.call_once(|| {
        if std::env::var_os("UPDATE").is_some() {
            files().iter().for_each(|(file, bytes)| std::fs::write(folder.join(file), bytes).expect("written"));
        }
    });
    folder
}

/// Content of each file, generated from the reference.
fn files() -> Vec<(String, Vec<u8>)> {
    let both = |(name, case): &(&str, Case)| {
        [(format!("{name}.jsonl"), case.to_text().into_bytes()), (format!("{name}.pcap"), pcap::write(case))]
    };
    cases().iter().flat_map(both).collect()
}

fn read(name: &str) -> Case {
    let text = std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    Case::from_text(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names of the files with this extension.
fn names(ending: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the corpus").map(|file| file.expect("a file").file_name());
    let mut names: Vec<_> = files.filter_map(|name| name.into_string().ok()).filter(|n| n.ends_with(ending)).collect();
    names.sort();
    names
}

#[test]
fn corpus_files_match_the_reference() {
    for (file, bytes) in files() {
        let there = std::fs::read(folder().join(&file)).unwrap_or_default();
        assert!(there == bytes, "conformance/{file} differs from the reference; UPDATE=1 rewrites it");
    }
}

#[test]
fn corpus_has_no_other_files_and_is_small() {
    let names: Vec<_> = names("").into_iter().filter(|name| name != "README.md").collect();
    let mut expected: Vec<_> = files().into_iter().map(|(file, _)| file).collect();
    expected.sort();
    assert_eq!(names, expected);
    let size = |name: &String| std::fs::metadata(folder().join(name)).expect("a file").len();
    let bytes: u64 = names.iter().map(size).sum();
    assert!(bytes < BYTES_MAX, "{bytes} bytes, at most {BYTES_MAX}");
}

#[test]
fn corpus_files_round_trip_and_replay_on_the_reference() {
    for name in names(".jsonl") {
        let case = read(&name);
        let text = std::fs::read_to_string(folder().join(&name)).expect("read before");
        assert_eq!(case.to_text(), text, "{name}");
        case.replay(&mut pathcall_conformance::program(case.memory)).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        assert!(matches!(case.lines.last(), Some(CorpusLine::State(_))), "{name} ends with registers");
        assert_eq!(case.has_tokens(), name == "tokens.jsonl", "{name}");
    }
}

#[test]
fn replay_reports_line_of_difference() {
    let case = read("rounds.jsonl");
    // A change of a single effect in the file.
    let changed = |change: &dyn Fn(&mut StepEffect) -> bool| {
        let mut case = case.clone();
        let effects = case.lines.iter_mut().enumerate().filter_map(|(at, line)| match line {
            CorpusLine::Step { effect, .. } => Some((at, effect)),
            _ => None,
        });
        let at = effects.into_iter().find_map(|(at, effect)| change(effect).then_some(at)).expect("one to change");
        let mismatch = case.replay(&mut pathcall_conformance::program(case.memory)).expect_err("changed");
        assert_eq!(mismatch.line, at + 2, "{mismatch}");
        mismatch.to_string()
    };
    let text = changed(&|effect| match effect {
        StepEffect::Frame(ProgramOutcome::Forward(_, frame)) => frame.last_mut().map(|byte| *byte ^= 1).is_some(),
        _ => false,
    });
    assert!(text.contains("rounds, line") && text.contains("MapData") && text.contains("expected to"), "{text}");
    changed(&|effect| match effect {
        StepEffect::Frame(ProgramOutcome::Copies(copies)) => copies.pop().is_some(),
        _ => false,
    });
    changed(&|effect| match effect {
        StepEffect::Frame(outcome @ ProgramOutcome::Drop(_)) => {
            *outcome = ProgramOutcome::Drop(None);
            true
        }
        _ => false,
    });
}

#[test]
fn replay_detects_different_registers() {
    let mut case = read("keyed.jsonl");
    // Without the last frame that changes registers, only the comparison of registers can fail.
    let last =
        case.lines.iter().rposition(|line| matches!(line, CorpusLine::Step { step: ProgramStep::Frame { .. }, .. }));
    case.lines.remove(last.expect("a frame"));
    let mismatch = case.replay(&mut pathcall_conformance::program(case.memory)).expect_err("other registers");
    assert!(mismatch.to_string().contains("registers or counters"), "{mismatch}");
}

#[test]
fn invalid_corpus_file_is_refused_with_line() {
    let text = Case::new("none", Size { rows: 1, lanes: 1, slots: 1 }).to_text();
    assert_eq!(Case::from_text(&text).expect("right").lines, []);
    assert!(matches!(Case::from_text(""), Err(CorpusError::Empty)));
    assert!(matches!(
        Case::from_text(&text.replace("\"version\":1", "\"version\":2")),
        Err(CorpusError::Format { version: 2, .. })
    ));
    let with = |line: &str| Case::from_text(&format!("{text}{{\"remark\":\"\"}}\n{line}\n")).map(drop);
    for line in
        ["", "{}", "{\"frame\":{\"in\":\"00\"}}", "{\"reset\":{\"gaid\":-1}}", "{\"reset\":{\"gaid\":1,\"more\":1}}"]
    {
        assert!(matches!(with(line), Err(CorpusError::Line { line: 3, .. })), "{line}: {:?}", with(line));
    }
    for hex in ["0", "0g", "+1", "é"] {
        let line = format!("{{\"frame\":{{\"in\":\"{hex}\",\"out\":{{\"drop\":\"stale\"}}}}}}");
        assert!(matches!(with(&line), Err(CorpusError::Hex { line: 3 })), "{line}: {:?}", with(&line));
    }
    assert!(with("{\"frame\":{\"in\":\"00\",\"out\":{\"drop\":\"stale\"}}}").is_ok());
}
