//! Connection targets: an address to connect to, in plaintext or by TLS with credentials.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::codegen::BoxFuture;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::ServiceExt;

use crate::connection_start::ConnectionStart;
use crate::{Credentials, PartyRole};

/// Default time limit for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Time limit for the TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Expected identity of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedPeer {
    /// Expected role.
    pub role: PartyRole,
    /// Alternative role.
    pub or: Option<PartyRole>,
    /// Expected name; `None` for any name of the role.
    pub name: Option<String>,
}

impl ExpectedPeer {
    /// Any peer of this role.
    #[must_use]
    pub fn new(role: PartyRole) -> Self {
        Self { role, or: None, name: None }
    }

    /// Sets [`Self::or`].
    #[must_use]
    pub fn or(mut self, role: PartyRole) -> Self {
        self.or = Some(role);
        self
    }

    /// Sets [`Self::name`].
    #[must_use]
    pub fn name(mut self, name: Option<String>) -> Self {
        self.name = name;
        self
    }
}

/// Address to connect to, with connection options and credentials.
#[derive(Debug, Clone)]
#[must_use]
pub struct ConnectTarget {
    uri: Uri,
    endpoint: Endpoint,
    tls: Option<(Credentials, ExpectedPeer)>,
}

/// Error of an invalid connection target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectTargetError {
    /// The address is invalid.
    #[error("{what} address {got:?}: expected {scheme}://host:port, as in {scheme}://127.0.0.1:7700")]
    Address {
        /// Role of the peer.
        what: &'static str,
        /// The given address.
        got: String,
        /// `http`, or `https` with credentials.
        scheme: &'static str,
    },
    /// The address is an `https` address, and there are no credentials.
    #[error("{url} requires TLS, and this program has no certificates: set them with --tls or in its configuration")]
    NoCredentials {
        /// The address.
        url: String,
    },
}

impl ConnectTarget {
    /// Target at `http://host:port`, or with credentials at `https://host:port`, where `peer` is expected.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn new(url: &str, credentials: Option<&Credentials>, peer: ExpectedPeer) -> Result<Self, ConnectTargetError> {
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let unusable = || ConnectTargetError::Address { what: peer.role.name(), got: url.to_owned(), scheme };
        let uri: Uri = url.parse().map_err(|_| unusable())?;
        if uri.host().is_none() || uri.port().is_none() {
            return Err(unusable());
        }
        match (uri.scheme_str(), credentials) {
            (Some("http"), None) => {}
            (Some("https"), Some(_)) => {}
            (Some("https"), None) => return Err(ConnectTargetError::NoCredentials { url: url.to_owned() }),
            _ => return Err(unusable()),
        }
        let target = match credentials {
            Some(credentials) => Self::tls(uri, credentials.clone(), peer),
            None => Self::of(Endpoint::from(uri)),
        };
        Ok(target.endpoint(|endpoint| endpoint.connect_timeout(CONNECT_MAX)))
    }

    /// Target of an endpoint without changes, possibly with tonic's own TLS.
    pub fn of(endpoint: Endpoint) -> Self {
        Self { uri: endpoint.uri().clone(), endpoint, tls: None }
    }

    /// Target at this address, by TLS with these credentials; `peer` is expected there.
    pub fn tls(uri: Uri, credentials: Credentials, peer: ExpectedPeer) -> Self {
        Self { endpoint: within_tls(&uri), uri, tls: Some((credentials, peer)) }
    }

    /// Changes the options of the connection.
    pub fn endpoint(mut self, change: impl FnOnce(Endpoint) -> Endpoint) -> Self {
        self.endpoint = change(self.endpoint);
        self
    }

    /// Enables keep-alive pings on silent connections, also without calls.
    pub fn keep_alive(self, every: Duration) -> Self {
        self.endpoint(|endpoint| {
            endpoint.http2_keep_alive_interval(every).keep_alive_timeout(every).keep_alive_while_idle(true)
        })
    }

    /// URI of the target.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// URL of the target, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        self.uri.to_string().trim_end_matches('/').to_owned()
    }

    /// Connects now.
    ///
    /// # Errors
    /// No peer accepts the connection, or another peer than expected.
    pub fn connect(&self) -> BoxFuture<Channel, Error> {
        self.connect_observed(|_| {})
    }

    /// Connects at the first call, and again when the connection breaks.
    #[must_use]
    pub fn connect_lazy(&self) -> Channel {
        self.connect_lazy_observed(|_| {})
    }

    /// Connects as [`connect`](Self::connect) does, and reports connection events.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_observed(
        &self,
        observe: impl Fn(ConnectionEvent) + Clone + Send + Sync + 'static,
    ) -> BoxFuture<Channel, Error> {
        let (endpoint, connector) = (self.endpoint.clone(), self.connector(observe));
        Box::pin(async move { endpoint.connect_with_connector(connector).await })
    }

    /// Connects as [`connect_lazy`](Self::connect_lazy) does, and reports connection events.
    #[must_use]
    pub fn connect_lazy_observed(&self, observe: impl Fn(ConnectionEvent) + Clone + Send + Sync + 'static) -> Channel {
        self.endpoint.connect_with_connector_lazy(self.connector(observe))
    }

    /// Connector that connects as tonic does, with this target's TLS, if any.
    fn connector(
        &self,
        observe: impl Fn(ConnectionEvent) + Clone + Send + Sync + 'static,
    ) -> impl tower::Service<Uri, Response = TokioIo<Stream>, Error = BoxError, Future: Send> + Send + 'static {
        let (tcp, tls) = (tcp(&self.endpoint), self.tls.clone());
        tower::service_fn(move |uri: Uri| {
            observe(ConnectionEvent::Begun);
            let (tcp, tls, observe) = (tcp.clone(), tls.clone(), observe.clone());
            async move {
                let stream = tcp.oneshot(uri.clone()).await?.into_inner();
                observe(ConnectionEvent::Connected(stream.peer_addr()?));
                let stream: Stream = match &tls {
                    // tonic does TLS itself.
                    None if uri.scheme_str() == Some("https") => Box::pin(stream),
                    None => Box::pin(ConnectionStart::in_plaintext(stream, move |begun| {
                        observe(ConnectionEvent::Answered(begun))
                    })),
                    Some((credentials, peer)) => Box::pin(handshake(stream, &uri, credentials, peer).await?),
                };
                Ok(TokioIo::new(stream))
            }
        })
    }
}

/// Event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// A connection attempt begins.
    Begun,
    /// TCP has connected to this address.
    Connected(SocketAddr),
    /// In plaintext: true if the server has started HTTP/2, false if it has closed the connection before, most likely
    /// because it speaks TLS.
    Answered(bool),
}

trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

/// Connection with or without TLS.
type Stream = Pin<Box<dyn Bytes>>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Innermost cause of an error: the outer ones of connections are just "transport error".
#[must_use]
pub fn innermost(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Endpoint for connectors with their own TLS: tonic would do TLS itself for an `https` address.
fn within_tls(uri: &Uri) -> Endpoint {
    let mut plain = uri.clone().into_parts();
    plain.scheme = Some(http::uri::Scheme::HTTP);
    // A URI with host and scheme stays valid with another scheme.
    let plain = Uri::from_parts(plain).unwrap_or_else(|_| uri.clone());
    Endpoint::from(plain).origin(uri.clone())
}

/// TCP connector with tonic's options.
fn tcp(endpoint: &Endpoint) -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(endpoint.get_tcp_nodelay());
    http.set_keepalive(endpoint.get_tcp_keepalive());
    http.set_connect_timeout(endpoint.get_connect_timeout());
    http
}

/// TLS handshake on a connection to `uri`, where `peer` is expected.
async fn handshake(
    stream: TcpStream,
    uri: &Uri,
    credentials: &Credentials,
    peer: &ExpectedPeer,
) -> Result<TlsStream<TcpStream>, BoxError> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned())?;
    let connector = TlsConnector::from(Arc::new(credentials.client(peer)?));
    match tokio::time::timeout(HANDSHAKE_MAX, connector.connect(name, stream)).await {
        Ok(stream) => Ok(stream?),
        Err(_) => Err(format!("no TLS handshake within {} s", HANDSHAKE_MAX.as_secs()).into()),
    }
}
