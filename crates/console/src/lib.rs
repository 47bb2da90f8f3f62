//! Console of a command: tables and bars, output that a pipe's reader may close, signals that end the command.

#![warn(missing_docs)]

mod bars;
mod signal;
mod table;

use std::io::{self, ErrorKind, Write};

pub use bars::bars;
pub use signal::stopped;
pub use table::Table;

/// Why a command can't talk to its user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The standard output can't be written.
    #[error("the output can't be written: {0}")]
    Output(#[source] io::Error),
    /// Signals can't be received.
    #[error("signals can't be received: {0}")]
    Signals(#[source] io::Error),
}

/// Writes to the standard output and flushes it, as a program may wait for it at the other end of a pipe.
///
/// # Errors
/// When the output can't be written; not when its reader has closed the pipe.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::Output),
    }
}
