//! Processes of the workspace's programs, which a test starts, waits for and kills.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::HANG;

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Process that is killed on drop, as by `kill -9`.
pub struct Process(pub Child);

impl Process {
    /// Starts a program and waits for its `ready` line, which is returned.
    pub fn ready(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program is built");
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready"), "{command:?}: {ready:?}");
        (process, ready)
    }

    /// Starts a program that logs to its standard error, and waits for a line with `text`.
    ///
    /// # Errors
    /// The program is missing.
    pub fn logging(command: &mut Command, text: &str) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let process = Self(child);
        let is_logged = log.by_ref().any(|line| line.expect("a line").contains(text));
        assert!(is_logged, "{command:?} ended before it logged {text:?}");
        // A full pipe would stop the program.
        std::thread::spawn(move || log.for_each(drop));
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Path of a program of the workspace, which `cargo test --workspace` builds beside the tests.
///
/// # Panics
/// Panics if the program was not built.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().and_then(Path::parent).expect("tests are in `deps`");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(program.is_file(), "{}: build it first: cargo build --bin {name}", program.display());
    program
}

/// Command `pathcall`.
pub fn pathcall() -> Command {
    Command::new(program("pathcall"))
}

/// Waits until `condition` returns a value, for at most [`HANG`].
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    until_within(HANG, what, condition)
}

/// Waits until `condition` returns a value, for at most `limit`.
pub fn until_within<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < limit, "{what}");
        // The state of other processes is polled: there are no notifications.
        std::thread::sleep(PAUSE);
    }
}
