//! Errors of the command, each printed as one line after `pathcall: `.

use std::io;

/// Reason for which the command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The testbed can't be built or does not exist.
    #[error(transparent)]
    Testbed(#[from] pathcall_testbed::Error),
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// A program can't be run.
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    /// The user interrupted the command.
    #[error("interrupted")]
    Interrupted,
    /// The path of this program is unknown.
    #[error("cannot determine the path of this program: {0}")]
    UnknownProgramPath(#[source] io::Error),
    /// The runtime can't start its threads.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
}
