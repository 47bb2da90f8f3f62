//! Errors of the demo, each printed as one line after `pathcall: `.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Reason for which the demo fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The element stopped before it was registered.
    #[error("the element stopped before it was registered with the controller")]
    Unregistered,
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// The testbed does not exist.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Testbed(#[from] pathcall_testbed::Error),
    /// The part on hosts was selected alone, where no hosts can be built.
    #[error("no hosts: {0}")]
    NoHosts(String),
    /// This system has no testbeds.
    #[cfg(not(target_os = "linux"))]
    #[error("a testbed needs Linux")]
    NoTestbed,
    /// A program of the demo is missing.
    #[error("{} is missing: build it with: make demo", path.display())]
    Missing { path: PathBuf },
    /// A program can't be run.
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    /// A server of the demo ended before it was ready.
    #[error("{program} ended before it was ready")]
    NotReady { program: String },
    /// A program of the demo failed.
    #[error("{run} failed ({status}): {reason}")]
    Run { run: String, status: std::process::ExitStatus, reason: String },
    /// A program of the demo hangs.
    #[error("{run} did not end within {} s", after.as_secs())]
    Stuck { run: String, after: Duration },
    /// The output of a program is not a report.
    #[error("invalid report of {run}: expected a line of JSON, got {got:?}: {source}")]
    NoReport { run: String, got: String, source: serde_json::Error },
    /// The results differ between paths.
    #[error("results differ: {0}")]
    Differ(String),
    /// A picture can't be written.
    #[error(transparent)]
    Draw(#[from] pathcall_plot::DrawError),
    /// The user interrupted the demo.
    #[error("interrupted")]
    Interrupted,
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A device can't be opened or measured.
    #[error("{0}")]
    Place(String),
    /// The path of this program is unknown.
    #[error("cannot determine the path of this program: {0}")]
    UnknownProgramPath(#[source] io::Error),
    /// The runtime can't start its threads.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
}
