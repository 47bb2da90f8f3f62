//! Where control connections may be in plaintext: within one host.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_is_for_the_loopback_or_by_ones_own_will() {
        for address in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(plaintext("controller", address.parse().unwrap(), false), Ok(()), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1"] {
            let address = address.parse().unwrap();
            assert_eq!(plaintext("controller", address, false), Err(PlaintextError { what: "controller", address }));
            assert_eq!(plaintext("controller", address, true), Ok(()));
        }
    }
}
