//! What ends a command that runs until it is told to stop.

use crate::cli::failure::Failure;

/// Returns at Ctrl-C, and where there is one, at the signal that service managers send.
pub(crate) async fn stopped() -> Result<(), Failure> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
        tokio::select! {
            done = tokio::signal::ctrl_c() => done.map_err(Failure::Signals),
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(Failure::Signals)
}
