//! Signals that end a command.

use crate::Error;

/// Waits for Ctrl-C or SIGTERM, counting signals from this call on.
///
/// # Errors
/// Returns an error if signals can't be received.
#[cfg(unix)]
pub fn stopped() -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(Error::Signals);
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Ctrl-C, counting signals from this call on.
///
/// # Errors
/// Returns an error if signals can't be received.
#[cfg(not(unix))]
pub fn stopped() -> Result<impl Future<Output = ()>, Error> {
    let mut interrupt = tokio::signal::windows::ctrl_c().map_err(Error::Signals)?;
    Ok(async move {
        interrupt.recv().await;
    })
}
