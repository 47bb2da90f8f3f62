//! Every command that a page shows is run here, or by continuous integration.
//!
//! Commands stand in blocks marked `sh`. What this command can do at once is done; targets of make
//! must exist and be called by `.ci/run`; packages that cargo is to run must be in the workspace.
//! Anything else fails: nobody would notice when it stops working.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Targets that continuous integration does not call, with the reason.
const NOT_IN_CI: [(&str, &str); 1] = [("bench", "measures for long; its parts have tests")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The tracked pages, by name.
fn pages() -> Vec<(String, String)> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "*.md"]).output().expect("git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names");
    names
        .lines()
        .map(|name| (name.to_owned(), std::fs::read_to_string(root().join(name)).expect("a tracked page")))
        .collect()
}

/// Commands with their place.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut commands = Vec::new();
    for (page, text) in pages() {
        let mut fence = None;
        for (number, line) in text.lines().enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(language.to_owned()) };
            } else if fence.as_deref() == Some("sh") {
                let command = line.split(" #").next().unwrap_or_default();
                let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
                if !words.is_empty() {
                    commands.push((format!("{page}:{}", number + 1), words));
                }
            }
        }
        assert!(fence.is_none(), "{page}: a block that does not end");
    }
    commands
}

#[test]
fn every_command_in_the_pages_works() {
    let ci = std::fs::read_to_string(root().join(".ci/run")).expect("continuous integration");
    let commands = commands();
    assert!(commands.len() >= 4, "the pages show commands: {commands:?}");
    for (place, words) in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["pathcall", ref arguments @ ..] => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_pathcall"));
                succeeds(&place, command.args(arguments).current_dir(root()));
            }
            ["make", target, ..] => {
                // Without doing it: the target and all that it needs are there.
                succeeds(&place, Command::new("make").arg("-n").args(&words[1..]).current_dir(root()));
                let called = ci.lines().any(|line| line.trim() == format!("make {target}"));
                let excused = NOT_IN_CI.iter().any(|(name, _)| *name == target);
                assert!(called || excused, "{place}: .ci/run does not call make {target}");
            }
            ["cargo", "run", ..] => {
                let at = words.iter().position(|word| *word == "-p").unwrap_or_else(|| panic!("{place}: no -p"));
                succeeds(&place, Command::new(env!("CARGO")).args(["pkgid", words[at + 1]]).current_dir(root()));
            }
            _ => panic!("{place}: nobody runs this command: {}", words.join(" ")),
        }
    }
}

#[track_caller]
fn succeeds(place: &str, command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{place}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: {command:?}: {stderr}{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn commands_stand_in_marked_blocks() {
    for (page, text) in pages() {
        let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
        for line in indented {
            let command = ["make ", "cargo ", "pathcall ", "target/"].iter().any(|start| line.starts_with(start));
            assert!(!command, "{page}: indented command, to be put in a block marked sh: {line}");
        }
    }
}
