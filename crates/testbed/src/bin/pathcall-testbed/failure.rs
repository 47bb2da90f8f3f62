//! Why the command fails: one line each, printed behind `pathcall: `.

use std::io;

/// Why the command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The testbed does not come up, or is not there.
    #[error(transparent)]
    Testbed(#[from] pathcall_testbed::Error),
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// A program can't be run.
    #[error("{program} can't be run: {source}")]
    Spawn { program: String, source: io::Error },
    /// Somebody stopped the command.
    #[error("interrupted")]
    Interrupted,
    /// Where this program lies can't be found out.
    #[error("the place of this program can't be found out: {0}")]
    NoPlace(#[source] io::Error),
    /// Threads can't be started.
    #[error("the runtime can't be started: {0}")]
    Runtime(#[source] io::Error),
}
