//! Why the demo fails: one line each, printed behind `pathcall: `.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The element stopped before it was known to its controller.
    #[error("the element ended before the controller knew it")]
    Unregistered,
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// The testbed is not there.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Testbed(#[from] pathcall_testbed::Error),
    /// There is no testbed here.
    #[cfg(not(target_os = "linux"))]
    #[error("a testbed needs Linux")]
    NoTestbed,
    /// A program of the demo is not there.
    #[error("{} is missing: build it with: make demo", path.display())]
    Missing { path: PathBuf },
    /// A program can't be run.
    #[error("{program} can't be run: {source}")]
    Spawn { program: String, source: io::Error },
    /// A server of the demo ended before it was there.
    #[error("{program} ended before it was ready")]
    NotReady { program: String },
    /// A program of the demo failed.
    #[error("{run} failed ({status}): {said}")]
    Run { run: String, status: std::process::ExitStatus, said: String },
    /// A program of the demo does not end.
    #[error("{run} has not ended within {} s", after.as_secs())]
    Stuck { run: String, after: Duration },
    /// A program of the demo printed something else than a report.
    #[error("{run} printed no report: expected a line of JSON, got {got:?}: {source}")]
    NoReport { run: String, got: String, source: serde_json::Error },
    /// The paths of the demo differ in their results.
    #[error("results differ: {0}")]
    Differ(String),
    /// A picture of the demo can't be written.
    #[error(transparent)]
    Draw(#[from] pathcall_plot::DrawError),
    /// Somebody stopped the demo.
    #[error("interrupted")]
    Interrupted,
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A device can't be had or measured.
    #[error("{0}")]
    Place(String),
    /// Where this program lies can't be found out.
    #[error("the place of this program can't be found out: {0}")]
    NoPlace(#[source] io::Error),
    /// Threads can't be started.
    #[error("the runtime can't be started: {0}")]
    Runtime(#[source] io::Error),
}
