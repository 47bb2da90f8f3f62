//! A client that is killed in the middle, again and again, and resumes with its journal: every word is
//! counted once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is killed when it is dropped, as by `kill -9`.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child of ours");
    }
}

fn wordcount(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wordcount"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn written(journal: &Path) -> u64 {
    std::fs::metadata(journal).map_or(0, |file| file.len())
}

#[test]
fn a_killed_client_resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("journal");
    let mut server = Process(wordcount(&["--listen", "127.0.0.1:0"]).spawn().expect("the application starts"));
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    let url = ready.strip_prefix("ready ").expect("it says where it is").trim();
    let text = folder.path().join("text");
    let words: Vec<String> = (0..6_000).map(|i| format!("word{}", i * i % 997)).collect();
    std::fs::write(&text, words.join(" ")).expect("a file");
    let [path, text] = [&journal, &text].map(|path| path.to_str().expect("a plain path"));
    let arguments = ["--server", url, "--journal", path, "--batch", "10", text];

    // Each time after some more was noted: at any point of a call.
    let mut kills = 0;
    for more in (0..30).map(|n| 40 + n * 37) {
        let goal = written(&journal) + more;
        let mut client = Process(wordcount(&arguments).spawn().expect("it starts"));
        while written(&journal) < goal && client.0.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        kills += usize::from(client.0.try_wait().expect("a child").is_none());
    }
    assert!(kills >= 20, "killed {kills} times before it was over");

    // It queries all words in the end and compares them with its own count.
    let output = wordcount(&arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = wordcount(&arguments).output().expect("it starts");
    assert!(output.status.success(), "all was done before: {}", String::from_utf8_lossy(&output.stderr));
}
