//! Applications as processes: what they say, what their results hash to, their servers.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::loopback;
use crate::process::program;

/// Command of a program: by its path, or by its name where `cargo test` builds it beside the tests.
///
/// # Panics
/// When it was not built.
pub fn command(application: &str) -> Command {
    if Path::new(application).is_absolute() { Command::new(application) } else { Command::new(program(application)) }
}

/// What an application says on its standard output when all went well, and on its standard error when not.
///
/// # Panics
/// When it does not start, or says what is no text.
pub fn says(application: &str, arguments: &[&str]) -> Result<String, String> {
    let output = command(application).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The digest in the report of a run that goes well; `--json` is among its arguments.
///
/// # Panics
/// When it does not go well, or reports none.
#[must_use]
pub fn digest(application: &str, arguments: &[&str]) -> String {
    let report = says(application, arguments).unwrap_or_else(|why| panic!("{application}: {why}"));
    let (_, digest) = report.split_once("\"digest\":\"").expect("a digest");
    digest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Addresses of this host that nobody else has: for TCP and for UDP.
#[must_use]
pub fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|_| loopback::own().to_string()).collect()
}

/// A process that is killed, as by `kill -9`, with its test.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it; what it says is kept for the test.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    /// The next line that it says, when it does; empty at its end.
    ///
    /// # Panics
    /// When it says what is no text.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Whether it has not ended yet.
    ///
    /// # Panics
    /// Never: it is a child of this process.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end: how it ended, what else it said, and what on its standard error, if that was piped.
    ///
    /// # Panics
    /// When it says what is no text.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let (mut rest, mut why) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).expect("text");
        if let Some(mut said) = self.child.stderr.take() {
            said.read_to_string(&mut why).expect("text");
        }
        (self.child.wait().expect("a child"), rest, why)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `serve --name NAME --servers LIST MORE` of an application for each name, ready; and the list.
///
/// # Panics
/// When one does not start, or does not say that it is ready.
pub fn servers(application: &str, names: &[&str], more: &[&str]) -> (Vec<Running>, String) {
    let list: Vec<String> = names.iter().zip(addresses(names.len())).map(|(name, at)| format!("{name}={at}")).collect();
    let list = list.join(",");
    let start = |name: &&str| {
        let arguments = ["serve", "--name", name, "--servers", &list];
        let mut server = Running::start(command(application).args(arguments).args(more));
        let ready = server.line();
        assert!(ready.starts_with("ready http://127."), "{name}: {ready:?}");
        server
    };
    (names.iter().map(start).collect(), list)
}
