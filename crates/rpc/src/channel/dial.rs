//! Connections of a channel: to servers that its user names, and to others that it finds in a pool.
//!
//! Both get the same options; with TLS each has to show a certificate of its own name, and a server of the pool whose
//! address is none with TLS is not gone to: the pool's key would cross the network in the clear.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use pathcall_auth::{Credentials, Peer, Role, Target};
use tokio::task::JoinSet;
use tonic::transport::{ClientTlsConfig, Endpoint, Error};

use super::builder::ConnectError;
use super::transport::Transport;

/// A connection attempt is given up after this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before the next of several servers is tried.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// A server that is gone without a word is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Change = Arc<dyn Fn(Endpoint) -> Endpoint + Send + Sync>;

/// Options of gRPC connections.
#[derive(Clone, Default)]
pub(super) struct Dial {
    changes: Vec<Change>,
    tls: Option<ClientTlsConfig>,
    credentials: Option<Credentials>,
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

    pub(super) fn credentials(&mut self, credentials: Credentials) {
        self.credentials = Some(credentials);
    }

    /// The server that the user names, with what options that has of its own.
    pub(super) fn named(&self, endpoint: Endpoint) -> Result<Target, DialError> {
        let usual = |endpoint: Endpoint| {
            let usual = endpoint.connect_timeout(CONNECT_TIMEOUT).http2_keep_alive_interval(KEEP_ALIVE);
            self.changes.iter().fold(usual.keep_alive_timeout(KEEP_ALIVE), |endpoint, change| change(endpoint))
        };
        let plain = endpoint.uri().scheme_str() != Some("https");
        match (&self.credentials, &self.tls) {
            (None, None) => Ok(Target::of(usual(endpoint))),
            _ if plain => Err(DialError::Plain(endpoint.uri().to_string())),
            (Some(credentials), _) => {
                let target = Target::tls(endpoint.uri().clone(), credentials.clone(), Peer::new(Role::Server));
                Ok(target.endpoint(usual))
            }
            (None, Some(tls)) => usual(endpoint).tls_config(tls.clone()).map(Target::of).map_err(DialError::Tls),
        }
    }

    /// A server at an address that the pool's table says; `None`: it can't be gone to.
    pub(super) fn found(&self, address: &str) -> Option<Target> {
        let endpoint = Endpoint::from_shared(address.to_owned()).ok().filter(|it| it.uri().host().is_some())?;
        let dialled = self.named(endpoint);
        dialled.inspect_err(|error| tracing::warn!("a server of the pool is not gone to: {error}")).ok()
    }
}

/// The first of these servers that answers: connections are begun one after the other, a moment apart (as by RFC 8305), and
/// where there are several, one that takes a connection and says nothing is not waited for.
pub(super) async fn answering(endpoints: &[Target]) -> Result<(usize, Transport), ConnectError> {
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
            // The runtime ends.
            Err(error) => drop(failed.get_or_insert(ConnectError::Destination(error.into()))),
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError::Destination("no server is named".into())))
}

/// Servers that are named, this one of them first.
pub(super) fn in_order(endpoints: &[Target], nth: usize, first: Transport) -> Vec<Transport> {
    let others = endpoints.iter().enumerate().filter(|(other, _)| *other != nth);
    [first].into_iter().chain(others.map(|(_, endpoint)| Transport::lazy(endpoint))).collect()
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("changes", &self.changes.len())
            .field("tls", &(self.tls.is_some() || self.credentials.is_some()))
            .finish()
    }
}
