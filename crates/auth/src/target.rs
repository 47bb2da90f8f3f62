//! Targets: where a party connects to, in plaintext or by TLS with its credentials.

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

use crate::opening::Opening;
use crate::{Credentials, Role};

/// Longest wait for a connection, unless the target is told otherwise.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for the handshake of TLS on it.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Who should be at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// What it takes part as.
    pub role: Role,
    /// A role that will do as well.
    pub or: Option<Role>,
    /// Its name; any of the role, unless given.
    pub name: Option<String>,
}

impl Peer {
    /// Anybody of this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role, or: None, name: None }
    }

    /// Sets [`Self::or`].
    #[must_use]
    pub fn or(mut self, role: Role) -> Self {
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

/// Where a party connects to.
#[derive(Debug, Clone)]
#[must_use]
pub struct Target {
    uri: Uri,
    endpoint: Endpoint,
    tls: Option<(Credentials, Peer)>,
}

/// Why a target can't be connected to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The address can't be understood.
    #[error("{what} address {got:?}: expected {scheme}://host:port, as in {scheme}://127.0.0.1:7700")]
    Address {
        /// Whose address it is.
        what: &'static str,
        /// What was given.
        got: String,
        /// `http`, or `https` where there are credentials.
        scheme: &'static str,
    },
    /// It takes TLS, and there is nothing to show.
    #[error("{url} takes certificates: name those of this program, by --tls or in its configuration")]
    NoCredentials {
        /// The address.
        url: String,
    },
}

impl Target {
    /// `http://host:port`, or with credentials `https://host:port`, where `peer` should be.
    ///
    /// # Errors
    /// When it is no such address.
    pub fn new(url: &str, credentials: Option<&Credentials>, peer: Peer) -> Result<Self, TargetError> {
        let scheme = if credentials.is_some() { "https" } else { "http" };
        let unusable = || TargetError::Address { what: peer.role.name(), got: url.to_owned(), scheme };
        let uri: Uri = url.parse().map_err(|_| unusable())?;
        if uri.host().is_none() || uri.port().is_none() {
            return Err(unusable());
        }
        match (uri.scheme_str(), credentials) {
            (Some("http"), None) => {}
            (Some("https"), Some(_)) => {}
            (Some("https"), None) => return Err(TargetError::NoCredentials { url: url.to_owned() }),
            _ => return Err(unusable()),
        }
        let target = match credentials {
            Some(credentials) => Self::tls(uri, credentials.clone(), peer),
            None => Self::of(Endpoint::from(uri)),
        };
        Ok(target.endpoint(|endpoint| endpoint.connect_timeout(CONNECT_MAX)))
    }

    /// An endpoint as it is, perhaps with TLS as tonic does it.
    pub fn of(endpoint: Endpoint) -> Self {
        Self { uri: endpoint.uri().clone(), endpoint, tls: None }
    }

    /// `peer` at this address, by TLS with these credentials.
    pub fn tls(uri: Uri, credentials: Credentials, peer: Peer) -> Self {
        Self { endpoint: within_tls(&uri), uri, tls: Some((credentials, peer)) }
    }

    /// Changes the connection's options.
    pub fn endpoint(mut self, change: impl FnOnce(Endpoint) -> Endpoint) -> Self {
        self.endpoint = change(self.endpoint);
        self
    }

    /// Has silent connections asked whether the other end lives, also while nothing is called.
    pub fn keep_alive(self, every: Duration) -> Self {
        self.endpoint(|endpoint| {
            endpoint.http2_keep_alive_interval(every).keep_alive_timeout(every).keep_alive_while_idle(true)
        })
    }

    /// The address.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// As it was given, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        self.uri.to_string().trim_end_matches('/').to_owned()
    }

    /// Connects now.
    ///
    /// # Errors
    /// When nobody answers, or somebody else does.
    pub fn connect(&self) -> BoxFuture<Channel, Error> {
        self.connect_seen(|_| {})
    }

    /// Connects at the first call, and again when the connection breaks.
    #[must_use]
    pub fn connect_lazy(&self) -> Channel {
        self.connect_lazy_seen(|_| {})
    }

    /// As [`connect`](Self::connect), and tells of connections.
    ///
    /// # Errors
    /// As of [`connect`](Self::connect).
    pub fn connect_seen(&self, seen: impl Fn(Seen) + Clone + Send + Sync + 'static) -> BoxFuture<Channel, Error> {
        let (endpoint, connector) = (self.endpoint.clone(), self.connector(seen));
        Box::pin(async move { endpoint.connect_with_connector(connector).await })
    }

    /// As [`connect_lazy`](Self::connect_lazy), and tells of connections.
    #[must_use]
    pub fn connect_lazy_seen(&self, seen: impl Fn(Seen) + Clone + Send + Sync + 'static) -> Channel {
        self.endpoint.connect_with_connector_lazy(self.connector(seen))
    }

    /// Connects as tonic does, and begins TLS where that is the target's own.
    fn connector(
        &self,
        seen: impl Fn(Seen) + Clone + Send + Sync + 'static,
    ) -> impl tower::Service<Uri, Response = TokioIo<Stream>, Error = BoxError, Future: Send> + Send + 'static {
        let (tcp, tls) = (tcp(&self.endpoint), self.tls.clone());
        tower::service_fn(move |uri: Uri| {
            seen(Seen::Begun);
            let (tcp, tls, seen) = (tcp.clone(), tls.clone(), seen.clone());
            async move {
                let stream = tcp.oneshot(uri.clone()).await?.into_inner();
                seen(Seen::Connected(stream.peer_addr()?));
                let stream: Stream = match &tls {
                    // As it is: TLS is tonic's to do.
                    None if uri.scheme_str() == Some("https") => Box::pin(stream),
                    None => Box::pin(Opening::in_plaintext(stream, move |begun| seen(Seen::Answered(begun)))),
                    Some((credentials, peer)) => Box::pin(handshake(stream, &uri, credentials, peer).await?),
                };
                Ok(TokioIo::new(stream))
            }
        })
    }
}

/// What is told of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// One is asked for.
    Begun,
    /// TCP has connected to this address.
    Connected(SocketAddr),
    /// In plaintext: the server has begun, or has ended the connection instead, most often as it speaks TLS.
    Answered(bool),
}

trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

/// A connection, by TLS or without.
type Stream = Pin<Box<dyn Bytes>>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// The cause of an error that says something: the outer ones of connections read "transport error".
#[must_use]
pub fn innermost(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// An endpoint for connectors that do TLS themselves: what begins with `https` tonic keeps for its own.
fn within_tls(uri: &Uri) -> Endpoint {
    let mut plain = uri.clone().into_parts();
    plain.scheme = Some(http::uri::Scheme::HTTP);
    // What has host and scheme is a URI with another scheme, too.
    let plain = Uri::from_parts(plain).unwrap_or_else(|_| uri.clone());
    Endpoint::from(plain).origin(uri.clone())
}

/// Connects by TCP as tonic does.
fn tcp(endpoint: &Endpoint) -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(endpoint.get_tcp_nodelay());
    http.set_keepalive(endpoint.get_tcp_keepalive());
    http.set_connect_timeout(endpoint.get_connect_timeout());
    http
}

/// Begins TLS on a connection to `uri`, where `peer` should be.
async fn handshake(
    stream: TcpStream,
    uri: &Uri,
    credentials: &Credentials,
    peer: &Peer,
) -> Result<TlsStream<TcpStream>, BoxError> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned())?;
    let connector = TlsConnector::from(Arc::new(credentials.client(peer)?));
    match tokio::time::timeout(HANDSHAKE_MAX, connector.connect(name, stream)).await {
        Ok(stream) => Ok(stream?),
        Err(_) => Err(format!("no handshake of TLS within {} s", HANDSHAKE_MAX.as_secs()).into()),
    }
}
