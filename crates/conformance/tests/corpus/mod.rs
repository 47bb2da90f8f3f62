//! The corpus in `conformance/` is what the reference does: made here, scene by scene, and compared with
//! the files. `UPDATE=1 cargo test -p pathcall-conformance` writes them anew.

mod arrays;
mod ballots;
mod calls;
mod hostile;
mod keys;
mod locks;
mod pcap;
mod scene;

use std::path::{Path, PathBuf};
use std::sync::Once;

use pathcall_conformance::corpus::{Case, Line, Wrong};
use pathcall_conformance::{Effect, Outcome, Step};
use pathcall_program::Size;

/// Most bytes that all files have together.
const BYTES_MAX: u64 = 1_500_000;

/// Every file, by name.
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

/// Where the files are; written anew before anybody looks, if that is asked for.
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

/// Every file with what the reference makes of it.
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

/// The names of the files with this ending.
fn names(ending: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the corpus").map(|file| file.expect("a file").file_name());
    let mut names: Vec<_> = files.filter_map(|name| name.into_string().ok()).filter(|n| n.ends_with(ending)).collect();
    names.sort();
    names
}

#[test]
fn the_files_say_what_the_reference_does() {
    for (file, bytes) in files() {
        let there = std::fs::read(folder().join(&file)).unwrap_or_default();
        assert!(there == bytes, "conformance/{file} is not what the reference does; UPDATE=1 writes it anew");
    }
}

#[test]
fn nothing_else_is_there_and_it_is_small() {
    let names: Vec<_> = names("").into_iter().filter(|name| name != "README.md").collect();
    let mut expected: Vec<_> = files().into_iter().map(|(file, _)| file).collect();
    expected.sort();
    assert_eq!(names, expected);
    let size = |name: &String| std::fs::metadata(folder().join(name)).expect("a file").len();
    let bytes: u64 = names.iter().map(size).sum();
    assert!(bytes < BYTES_MAX, "{bytes} bytes, at most {BYTES_MAX}");
}

#[test]
fn the_files_are_read_as_they_were_written_and_hold_for_the_reference() {
    for name in names(".jsonl") {
        let case = read(&name);
        let text = std::fs::read_to_string(folder().join(&name)).expect("read before");
        assert_eq!(case.to_text(), text, "{name}");
        case.replay(&mut pathcall_conformance::program(case.memory)).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        assert!(matches!(case.lines.last(), Some(Line::State(_))), "{name} ends with registers");
        assert_eq!(case.has_tokens(), name == "tokens.jsonl", "{name}");
    }
}

#[test]
fn a_replay_says_where_an_execution_differs() {
    let case = read("rounds.jsonl");
    // One word of what the file expects is another: so is what is got.
    let changed = |change: &dyn Fn(&mut Effect) -> bool| {
        let mut case = case.clone();
        let effects = case.lines.iter_mut().enumerate().filter_map(|(at, line)| match line {
            Line::Step { effect, .. } => Some((at, effect)),
            _ => None,
        });
        let at = effects.into_iter().find_map(|(at, effect)| change(effect).then_some(at)).expect("one to change");
        let mismatch = case.replay(&mut pathcall_conformance::program(case.memory)).expect_err("changed");
        assert_eq!(mismatch.line, at + 2, "{mismatch}");
        mismatch.to_string()
    };
    let text = changed(&|effect| match effect {
        Effect::Frame(Outcome::Forward(_, frame)) => frame.last_mut().map(|byte| *byte ^= 1).is_some(),
        _ => false,
    });
    assert!(text.contains("rounds, line") && text.contains("MapData") && text.contains("expected to"), "{text}");
    changed(&|effect| match effect {
        Effect::Frame(Outcome::Copies(copies)) => copies.pop().is_some(),
        _ => false,
    });
    changed(&|effect| match effect {
        Effect::Frame(outcome @ Outcome::Drop(_)) => {
            *outcome = Outcome::Drop(None);
            true
        }
        _ => false,
    });
}

#[test]
fn registers_that_are_others_are_seen() {
    let mut case = read("keyed.jsonl");
    // Without its last frame that changes something, only the registers tell.
    let last = case.lines.iter().rposition(|line| matches!(line, Line::Step { step: Step::Frame { .. }, .. }));
    case.lines.remove(last.expect("a frame"));
    let mismatch = case.replay(&mut pathcall_conformance::program(case.memory)).expect_err("other registers");
    assert!(mismatch.to_string().contains("registers or counters"), "{mismatch}");
}

#[test]
fn files_that_are_wrong_are_refused_by_line() {
    let text = Case::new("none", Size { rows: 1, lanes: 1, slots: 1 }).to_text();
    assert_eq!(Case::from_text(&text).expect("right").lines, []);
    assert!(matches!(Case::from_text(""), Err(Wrong::Empty)));
    assert!(matches!(
        Case::from_text(&text.replace("\"version\":1", "\"version\":2")),
        Err(Wrong::Format { version: 2, .. })
    ));
    let with = |line: &str| Case::from_text(&format!("{text}{{\"remark\":\"\"}}\n{line}\n")).map(drop);
    for line in
        ["", "{}", "{\"frame\":{\"in\":\"00\"}}", "{\"reset\":{\"gaid\":-1}}", "{\"reset\":{\"gaid\":1,\"more\":1}}"]
    {
        assert!(matches!(with(line), Err(Wrong::Line { line: 3, .. })), "{line}: {:?}", with(line));
    }
    for hex in ["0", "0g", "+1", "é"] {
        let line = format!("{{\"frame\":{{\"in\":\"{hex}\",\"out\":{{\"drop\":\"stale\"}}}}}}");
        assert!(matches!(with(&line), Err(Wrong::Hex { line: 3 })), "{line}: {:?}", with(&line));
    }
    assert!(with("{\"frame\":{\"in\":\"00\",\"out\":{\"drop\":\"stale\"}}}").is_ok());
}
