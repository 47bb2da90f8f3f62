//! Rule for control services in plaintext: they listen on the loopback.

use std::net::SocketAddr;

/// A service that others reach was to start without certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} ({what}) is reached from other hosts, and there are no certificates: name them with --tls, or take anybody's word \
     with --insecure"
)]
pub struct PlaintextError {
    /// What was to start.
    pub what: &'static str,
    /// Where.
    pub address: SocketAddr,
}

/// Whether a service may listen at `address` in plaintext; with `insecure` it may anywhere, and says so.
///
/// # Errors
/// When the address is reached from other hosts.
pub fn plaintext(what: &'static str, address: SocketAddr, insecure: bool) -> Result<(), PlaintextError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !insecure {
        return Err(PlaintextError { what, address });
    }
    tracing::warn!(
        "{address} ({what}) takes anybody's word, and keys cross the network in the clear: --insecure is given"
    );
    Ok(())
}
