//! Why a command fails: one line each, printed behind `pathcall: `.

use std::io;
use std::path::PathBuf;

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The controller does not start, or ended.
    #[error(transparent)]
    Controller(#[from] pathcall_control::Error),
    /// The element does not start.
    #[error(transparent)]
    Element(#[from] pathcall_element::Error),
    /// A function does not run live.
    #[error(transparent)]
    Live(#[from] pathcall_live::Error),
    /// The controller can't be connected to by this address.
    #[error(transparent)]
    Target(#[from] pathcall_auth::TargetError),
    /// No controller is there.
    #[error("no controller answers at {url} ({reason}): start one, or name another with --controller")]
    NoController { url: String, reason: String },
    /// The file that names certificates can't be used.
    #[error(transparent)]
    Security(#[from] pathcall_auth::ConfigError),
    /// A certificate can't be made, or made anew.
    #[error("{0}")]
    Certificate(String),
    /// A certificate can't be signed.
    #[error("the certificate can't be made: {0}")]
    Sign(#[from] rcgen::Error),
    /// Something is there and does not answer as a controller does.
    #[error("the controller at {url} does not answer: {reason}")]
    Call { url: String, reason: String },
    /// The element stopped before it was known to its controller.
    #[error("the element ended before the controller knew it")]
    Unregistered,
    /// A program can't be run.
    #[error("{program} can't be run: {source}")]
    Spawn { program: String, source: io::Error },
    /// Somebody stopped the demo.
    #[error("interrupted")]
    Interrupted,
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A capture can't be read or written.
    #[error("{}: {source}", path.display())]
    Capture { path: PathBuf, source: pcap_file::PcapError },
    /// A function can't be built or run.
    #[error("{0}")]
    Function(String),
    /// A device can't be had or measured.
    #[error("{0}")]
    Place(String),
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// A command of a program of its own is not there.
    #[error("no command {name:?}: the program {program} is neither beside this one nor on the PATH")]
    NoCommand { name: String, program: String },
    /// Threads can't be started.
    #[error("the runtime can't be started: {0}")]
    Runtime(#[source] io::Error),
}
