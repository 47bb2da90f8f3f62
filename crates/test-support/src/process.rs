//! Programs of the workspace as processes that a test starts, waits for and kills.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::HANG;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A process that is killed when it is dropped, as by `kill -9`.
pub struct Process(pub Child);

impl Process {
    /// Starts one that says when it is ready: the line.
    pub fn ready(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it is built");
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready"), "{command:?}: {ready:?}");
        (process, ready)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A program of the workspace, which `cargo test --workspace` builds beside the tests.
///
/// # Panics
/// When it was not built.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in `deps`");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(program.is_file(), "{}: build it first: cargo build --bin {name}", program.display());
    program
}

/// The command `pathcall`.
pub fn pathcall() -> Command {
    Command::new(program("pathcall"))
}

/// Waits until it is so, for [`HANG`] at most.
pub fn until<T>(what: &str, so: impl FnMut() -> Option<T>) -> T {
    until_within(HANG, what, so)
}

/// Waits until it is so, for `limit` at most.
pub fn until_within<T>(limit: Duration, what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(began.elapsed() < limit, "{what}");
        // What other processes say of themselves is asked for: nobody tells when it changes.
        std::thread::sleep(PAUSE);
    }
}
