//! Test of a client that is killed again and again, and resumes with its journal: every word is counted once.

use std::path::Path;
use std::process::{Command, Stdio};

use pathcall_test_support::application::ApplicationProcess;

fn wordcount(arguments: &[&str]) -> Command {
    let mut command = pathcall_test_support::application::command("wordcount");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn written(journal: &Path) -> u64 {
    std::fs::metadata(journal).map_or(0, |file| file.len())
}

/// Least number of kills before all words are counted, and limit of fresh starts: on a busy machine a client may end
/// before it is killed.
const KILLS_MIN: u32 = 20;
const STARTS_MAX: u32 = 20;

#[test]
fn killed_client_resumes() {
    let mut kills = 0;
    for _ in 0..STARTS_MAX {
        kills += killed_until_over();
        if kills >= KILLS_MIN {
            return;
        }
    }
    panic!("killed only {kills} times");
}

/// Kills a client again and again, then lets it finish. Returns the number of kills.
fn killed_until_over() -> u32 {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("journal");
    let mut server = ApplicationProcess::start(&mut wordcount(&["--listen", "127.0.0.1:0"]));
    let ready = server.line();
    let url = ready.strip_prefix("ready ").expect("the server's URL");
    let text = folder.path().join("text");
    let words: Vec<String> = (0..6_000).map(|i| format!("word{}", i * i % 997)).collect();
    std::fs::write(&text, words.join(" ")).expect("a file");
    let [path, text] = [&journal, &text].map(|path| path.to_str().expect("a plain path"));
    let arguments = ["--server", url, "--journal", path, "--batch", "10", text];

    // Killed after some more progress each time: at any point of a call.
    let mut kills = 0;
    for more in (0..30).map(|n| 40 + n * 37) {
        let goal = written(&journal) + more;
        let mut client = ApplicationProcess::start(&mut wordcount(&arguments));
        while written(&journal) < goal && client.is_running() {
            std::thread::yield_now();
        }
        if !client.is_running() {
            break;
        }
        kills += 1;
    }

    // The client finally queries all words and compares them with its own count.
    let output = wordcount(&arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = wordcount(&arguments).output().expect("the program starts");
    assert!(output.status.success(), "all was done before: {}", String::from_utf8_lossy(&output.stderr));
    kills
}
