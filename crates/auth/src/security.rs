//! Security of a control service: certificates and an access table, or plaintext within one host.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Error, Server};

use crate::connection_start::ConnectionStart;
use crate::{
    AccessGuard, AccessTable, ConnectTarget, ConnectTargetError, Credentials, ExpectedPeer, PlaintextError,
    TlsIncoming, plaintext,
};

/// Security settings of a service with control connections. By default there are no certificates, and the service has
/// to listen on the loopback interface.
#[derive(Debug, Clone, Default)]
pub struct Security {
    credentials: Option<Credentials>,
    access: AccessTable,
    insecure: bool,
}

impl Security {
    /// Both ends of each connection need certificates, and calls are checked against the access table.
    #[must_use]
    pub fn new(credentials: Credentials, access: AccessTable) -> Self {
        Self { credentials: Some(credentials), access, insecure: false }
    }

    /// Sets whether a service without certificates may listen on addresses that other hosts reach, on a trusted
    /// network.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Credentials of this party, if any.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Whether keys may be sent over a connection from `peer`, with or without TLS: they cross a network over TLS only,
    /// unless this party is insecure.
    #[must_use]
    pub fn permits_key_transport(&self, peer: Option<SocketAddr>, tls: bool) -> bool {
        tls || self.insecure || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// `https` with certificates, else `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.credentials.is_some() { "https" } else { "http" }
    }

    /// Checks whether the service `what` may listen on this address.
    ///
    /// # Errors
    /// Other hosts can reach the address, there are no certificates, and insecure services are not allowed.
    pub fn check(&self, what: &'static str, address: SocketAddr) -> Result<(), PlaintextError> {
        if self.credentials.is_some() { Ok(()) } else { plaintext(what, address, self.insecure) }
    }

    /// Connection target of `peer` at this URL, with this party's certificate, if any.
    ///
    /// # Errors
    /// The URL is invalid, or its scheme does not match the presence of certificates.
    pub fn target(&self, url: &str, peer: ExpectedPeer) -> Result<ConnectTarget, ConnectTargetError> {
        ConnectTarget::new(url, self.credentials.as_ref(), peer)
    }

    /// Layer that checks the access of callers.
    #[must_use]
    pub fn guard(&self) -> AccessGuard {
        AccessGuard::new(self.credentials.as_ref(), self.access.clone())
    }

    /// Serves the connections of `listener` until `stopped`, behind the access layer. A connection whose client sends
    /// no HTTP/2 preface within ten seconds is closed; later losses are detected by the keep-alive of `server`.
    ///
    /// # Errors
    /// No more connections can be accepted.
    pub async fn serve(
        &self,
        server: Server,
        routes: Routes,
        listener: TcpListener,
        stopped: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let server = server.layer(self.guard()).add_routes(routes);
        match self.credentials.clone() {
            Some(credentials) => {
                let incoming =
                    TlsIncoming::new(listener, credentials).map(|taken| taken.map(ConnectionStart::by_client));
                server.serve_with_incoming_shutdown(incoming, stopped).await
            }
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let incoming = incoming.map(|taken| taken.map(ConnectionStart::by_client));
                server.serve_with_incoming_shutdown(incoming, stopped).await
            }
        }
    }
}

#[cfg(feature = "file")]
impl From<crate::Config> for Security {
    fn from(config: crate::Config) -> Self {
        Self::new(config.credentials, config.access)
    }
}
