//! Restriction of plaintext control services to the loopback interface.

use std::net::SocketAddr;

/// Error of a service without certificates on an address that other hosts can reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} ({what}) can be reached from other hosts, and there are no certificates: set them with --tls, or accept \
     unauthenticated callers with --insecure"
)]
pub struct PlaintextError {
    /// Name of the service.
    pub what: &'static str,
    /// Address to listen on.
    pub address: SocketAddr,
}

/// Checks whether a service may listen on `address` in plaintext. With `insecure` any address is allowed, and a warning
/// is logged.
///
/// # Errors
/// Other hosts can reach the address.
pub fn plaintext(what: &'static str, address: SocketAddr, insecure: bool) -> Result<(), PlaintextError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !insecure {
        return Err(PlaintextError { what, address });
    }
    tracing::warn!(
        "{address} ({what}) accepts unauthenticated callers, and keys cross the network unencrypted, because \
         of --insecure"
    );
    Ok(())
}
