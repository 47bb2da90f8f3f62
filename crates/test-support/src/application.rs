//! Application processes: commands, outputs, result digests and servers.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::loopback;
use crate::process::program;

/// Command of a program: by its path, or by the name under which `cargo test` builds it beside the tests.
///
/// # Panics
/// Panics if the program was not built.
pub fn command(application: &str) -> Command {
    if Path::new(application).is_absolute() { Command::new(application) } else { Command::new(program(application)) }
}

/// Runs an application. Returns its standard output on success, its standard error on failure.
///
/// # Panics
/// Panics if the application does not start or its output is not UTF-8.
pub fn says(application: &str, arguments: &[&str]) -> Result<String, String> {
    let output = command(application).args(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Digest in the report of a successful run; `arguments` contain `--json`.
///
/// # Panics
/// Panics if the run fails or reports no digest.
#[must_use]
pub fn digest(application: &str, arguments: &[&str]) -> String {
    digest_of(&says(application, arguments).unwrap_or_else(|why| panic!("{application}: {why}")))
}

fn digest_of(report: &str) -> String {
    let (_, digest) = report.split_once("\"digest\":\"").expect("a digest");
    digest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Digest in the report of a run with the element of this controller, in which the element had a share. Where the machine
/// stands still, callers bypass the element for a while, or a holder loses its locks: such a run is repeated.
///
/// # Panics
/// Panics if no run of eight shows a share of the element.
#[must_use]
pub fn digest_by_element(application: &str, arguments: &[&str], controller: &str) -> String {
    let arguments = [arguments, &["--json", "--path", "element", "--controller", controller]].concat();
    for _ in 0..8 {
        match says(application, &arguments) {
            Ok(report) if !report.contains("\"element_share\":0.0,") => return digest_of(&report),
            shown => println!("{application}: {shown:?}"),
        }
    }
    panic!("{application}: the element has no share");
}

/// Unique addresses of this host: for TCP and for UDP.
#[must_use]
pub fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|_| loopback::own().to_string()).collect()
}

/// Process that is killed on drop, as by `kill -9`.
#[derive(Debug)]
pub struct ApplicationProcess {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl ApplicationProcess {
    /// Starts the process and captures its standard output.
    ///
    /// # Panics
    /// Panics if the process does not start.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    /// Waits for the next line of output; empty at the end.
    ///
    /// # Panics
    /// Panics if the output is not UTF-8.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// True until the process has ended.
    ///
    /// # Panics
    /// Never: the process is a child of this process.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for the end. Returns the exit status, the remaining output, and the standard error if it was piped.
    ///
    /// # Panics
    /// Panics if the output is not UTF-8.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let (mut rest, mut why) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).expect("text");
        if let Some(mut printed) = self.child.stderr.take() {
            printed.read_to_string(&mut why).expect("text");
        }
        (self.child.wait().expect("a child"), rest, why)
    }
}

impl Drop for ApplicationProcess {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `serve --name NAME --servers LIST MORE` of an application for each name, and waits until all are ready.
/// Returns the processes and the list.
///
/// # Panics
/// Panics if a server does not start or does not report that it is ready.
pub fn servers(application: &str, names: &[&str], more: &[&str]) -> (Vec<ApplicationProcess>, String) {
    let list: Vec<String> = names.iter().zip(addresses(names.len())).map(|(name, at)| format!("{name}={at}")).collect();
    let list = list.join(",");
    let start = |name: &&str| {
        let arguments = ["serve", "--name", name, "--servers", &list];
        let mut server = ApplicationProcess::start(command(application).args(arguments).args(more));
        let ready = server.line();
        assert!(ready.starts_with("ready http://127."), "{name}: {ready:?}");
        server
    };
    (names.iter().map(start).collect(), list)
}
