//! How a channel connects to servers: to the one that its user names, and to others that it finds in a pool.
//!
//! Both get the same options; with TLS each has to show a certificate of its own name, and a server of the pool whose
//! address is none with TLS is not gone to: the pool's key would cross the network in the clear.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{ClientTlsConfig, Endpoint, Error};

/// A connection attempt is given up after this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that is gone without a word is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Change = Arc<dyn Fn(Endpoint) -> Endpoint + Send + Sync>;

/// Options of gRPC connections.
#[derive(Clone, Default)]
pub(super) struct Dial {
    changes: Vec<Change>,
    tls: Option<ClientTlsConfig>,
}

/// Why a server can't be gone to.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// Its address is one without TLS.
    #[error("the channel is to use TLS, and {0} does not begin with https://")]
    Plain(String),
    /// The configuration of TLS can't be used.
    #[error("TLS can't be used as it is configured: {0}")]
    Tls(#[source] Error),
}

impl Dial {
    pub(super) fn change(&mut self, change: impl Fn(Endpoint) -> Endpoint + Send + Sync + 'static) {
        self.changes.push(Arc::new(change));
    }

    pub(super) fn tls(&mut self, tls: ClientTlsConfig) {
        self.tls = Some(tls);
    }

    /// The server that the user names, with what options that has of its own.
    pub(super) fn named(&self, endpoint: Endpoint) -> Result<Endpoint, DialError> {
        let usual = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        let endpoint = self.changes.iter().fold(usual, |endpoint, change| change(endpoint));
        let Some(tls) = self.tls.clone() else { return Ok(endpoint) };
        if endpoint.uri().scheme_str() != Some("https") {
            return Err(DialError::Plain(endpoint.uri().to_string()));
        }
        endpoint.tls_config(tls).map_err(DialError::Tls)
    }

    /// A server at an address that the pool's table says; `None`: it can't be gone to.
    pub(super) fn found(&self, address: &str) -> Option<Endpoint> {
        let endpoint = Endpoint::from_shared(address.to_owned()).ok().filter(|it| it.uri().host().is_some())?;
        let dialled = self.named(endpoint);
        dialled.inspect_err(|error| tracing::warn!("a server of the pool is not gone to: {error}")).ok()
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("changes", &self.changes.len()).field("tls", &self.tls.is_some()).finish()
    }
}
