//! Errors of the command, each printed as one line after `pathcall: `.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reason for which a command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The controller does not start, or ended.
    #[error(transparent)]
    Controller(#[from] pathcall_control::Error),
    /// The element does not start.
    #[error(transparent)]
    Element(#[from] pathcall_element::Error),
    /// A function can't run on the live element.
    #[error(transparent)]
    Live(#[from] pathcall_live::Error),
    /// The controller's address is invalid.
    #[error(transparent)]
    Target(#[from] pathcall_auth::ConnectTargetError),
    /// No controller answers.
    #[error("no controller answers at {url} ({reason}): start one, or name another with --controller")]
    NoController { url: String, reason: String },
    /// The TLS configuration file can't be used.
    #[error(transparent)]
    Security(#[from] pathcall_auth::ConfigError),
    /// A certificate can't be created or renewed.
    #[error("{0}")]
    Certificate(String),
    /// A certificate can't be signed.
    #[error("cannot create the certificate: {0}")]
    Sign(#[from] rcgen::Error),
    /// The address answers, but not as a controller.
    #[error("the call to the controller at {url} failed: {reason}")]
    Call { url: String, reason: String },
    /// The element stopped before it was registered.
    #[error("the element stopped before it was registered with the controller")]
    Unregistered,
    /// A program can't be run.
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    /// The user interrupted the demo.
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
    /// A device can't be opened or measured.
    #[error("{0}")]
    Place(String),
    /// A pipe's options don't fit its file, or its node does not start.
    #[error("{0}")]
    Pipe(String),
    /// A pipe's file is invalid.
    #[error(transparent)]
    PipeFile(#[from] Box<pathcall_pipe::BuildDiagnostic>),
    /// A pipe's node or front can't listen.
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    /// A pipe's front can't accept connections.
    #[error("the front of the pipe ended: {0}")]
    Front(#[source] tonic::transport::Error),
    /// The output can't be written, or signals can't be received.
    #[error(transparent)]
    Console(#[from] pathcall_console::Error),
    /// An external command is not installed.
    #[error(
        "unknown command {name:?}: program {program} is neither in the folder of pathcall nor on PATH; see pathcall --help"
    )]
    NoCommand { name: String, program: String },
    /// The runtime can't start its threads.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
}
