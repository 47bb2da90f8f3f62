//! What ends a command that runs until it is told to stop.

use crate::cli::failure::Failure;

/// Returns at Ctrl-C, and where there is one, at the signal that service managers send; also at one that comes before it is
/// waited for.
#[cfg(unix)]
pub(crate) fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(Failure::Signals);
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns at Ctrl-C; also at one that comes before it is waited for.
#[cfg(not(unix))]
pub(crate) fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    let mut interrupt = tokio::signal::windows::ctrl_c().map_err(Failure::Signals)?;
    Ok(async move {
        interrupt.recv().await;
    })
}
