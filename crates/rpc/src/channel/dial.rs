//! Connection options of a channel, for the servers that its user gives and those that it finds in a pool.
//!
//! Both have the same options. With TLS each server must have a certificate for its own name; the channel does not
//! connect to a server of the pool without TLS, as the pool's key would cross the network in plaintext.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use pathcall_auth::{ConnectTarget, Credentials, ExpectedPeer, PartyRole};
use tokio::task::JoinSet;
use tonic::transport::{ClientTlsConfig, Endpoint, Error};

use super::builder::ConnectError;
use super::transport::Transport;

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between connection attempts to different servers.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Keep-alive interval: the loss of a server is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Change = Arc<dyn Fn(Endpoint) -> Endpoint + Send + Sync>;

/// Options of gRPC connections.
#[derive(Clone, Default)]
pub(super) struct DialOptions {
    changes: Vec<Change>,
    tls: Option<ClientTlsConfig>,
    credentials: Option<Credentials>,
}

/// Reason why the channel cannot connect to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The address of the server is not an `https://` address.
    #[error("the channel uses TLS, but {0} does not begin with https://")]
    Plain(String),
    /// The TLS configuration is invalid.
    #[error("invalid TLS configuration: {0}")]
    Tls(#[source] Error),
}

impl DialOptions {
    pub(super) fn change(&mut self, change: impl Fn(Endpoint) -> Endpoint + Send + Sync + 'static) {
        self.changes.push(Arc::new(change));
    }

    pub(super) fn tls(&mut self, tls: ClientTlsConfig) {
        self.tls = Some(tls);
    }

    pub(super) fn credentials(&mut self, credentials: Credentials) {
        self.credentials = Some(credentials);
    }

    /// Connection target for a server that the user gives, with the endpoint's own options.
    pub(super) fn target_of(&self, endpoint: Endpoint) -> Result<ConnectTarget, DialError> {
        let usual = |endpoint: Endpoint| {
            let usual = endpoint.connect_timeout(CONNECT_TIMEOUT).http2_keep_alive_interval(KEEP_ALIVE);
            self.changes.iter().fold(usual.keep_alive_timeout(KEEP_ALIVE), |endpoint, change| change(endpoint))
        };
        let plain = endpoint.uri().scheme_str() != Some("https");
        match (&self.credentials, &self.tls) {
            (None, None) => Ok(ConnectTarget::of(usual(endpoint))),
            _ if plain => Err(DialError::Plain(endpoint.uri().to_string())),
            (Some(credentials), _) => {
                let peer = ExpectedPeer::new(PartyRole::Server);
                Ok(ConnectTarget::tls(endpoint.uri().clone(), credentials.clone(), peer).endpoint(usual))
            }
            (None, Some(tls)) => usual(endpoint).tls_config(tls.clone()).map(ConnectTarget::of).map_err(DialError::Tls),
        }
    }

    /// Connection target for an address in the pool's table; `None` if the channel must not connect to it.
    pub(super) fn pool_target(&self, address: &str) -> Option<ConnectTarget> {
        let endpoint = Endpoint::from_shared(address.to_owned()).ok().filter(|it| it.uri().host().is_some())?;
        let dialled = self.target_of(endpoint);
        dialled.inspect_err(|error| tracing::warn!("skipped a server of the pool: {error}")).ok()
    }
}

/// Connects to the first of these servers that answers. Attempts begin one after the other, a moment apart (as in RFC
/// 8305). If there are several servers, one that accepts the connection but does not answer is skipped.
pub(super) async fn connect_first(endpoints: &[ConnectTarget]) -> Result<(usize, Transport), ConnectError> {
    let mut attempts = JoinSet::new();
    let several = endpoints.len() > 1;
    for (nth, endpoint) in endpoints.iter().cloned().enumerate() {
        attempts.spawn(async move {
            tokio::time::sleep(ATTEMPT_DELAY * u32::try_from(nth).unwrap_or(u32::MAX)).await;
            let connected = Transport::connect(&endpoint).await;
            let unreached = |source| ConnectError::Transport { uri: endpoint.uri().to_string(), source };
            let transport = connected.map_err(unreached)?;
            match several && !transport.answers(&HeaderMap::new()).await {
                true => Err(ConnectError::Silent { uri: endpoint.uri().to_string() }),
                false => Ok((nth, transport)),
            }
        });
    }
    let mut failed = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(answers)) => return Ok(answers),
            Ok(Err(error)) => drop(failed.get_or_insert(error)),
            // The runtime is shutting down.
            Err(error) => drop(failed.get_or_insert(ConnectError::Destination(error.into()))),
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError::Destination("no server address is given".into())))
}

/// Transports to all given servers, the connected one first.
pub(super) fn order_transports(endpoints: &[ConnectTarget], nth: usize, first: Transport) -> Vec<Transport> {
    let others = endpoints.iter().enumerate().filter(|(other, _)| *other != nth);
    [first].into_iter().chain(others.map(|(_, endpoint)| Transport::lazy(endpoint))).collect()
}

impl fmt::Debug for DialOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialOptions")
            .field("changes", &self.changes.len())
            .field("tls", &(self.tls.is_some() || self.credentials.is_some()))
            .finish()
    }
}
