//! Console of a command: tables and bars, output that a pipe's reader may close, signals that end the command.

#![warn(missing_docs)]

mod bars;
mod signal;
mod table;

use std::io::{self, ErrorKind, Write};

pub use bars::bars;
pub use signal::stopped;
pub use table::TextTable;

/// Reason for which a command can't communicate with its user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The standard output can't be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// Signals can't be received.
    #[error("cannot receive signals: {0}")]
    Signals(#[source] io::Error),
}

/// Writes to the standard output and flushes it, as another program may wait at the other end of a pipe.
///
/// # Errors
/// Returns an error if the output can't be written; not if its reader has closed the pipe.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::Output),
    }
}
