//! Security of a control service: certificates and a table of access, or plaintext within one host.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Error, Server};

use crate::opening::Opening;
use crate::{Access, Credentials, Guard, Incoming, Peer, PlaintextError, Target, TargetError, plaintext};

/// How a service with control connections is secured. By default nobody shows certificates, and the service has to listen on the
/// loopback.
#[derive(Debug, Clone, Default)]
pub struct Security {
    credentials: Option<Credentials>,
    access: Access,
    insecure: bool,
}

impl Security {
    /// Both ends of each connection show certificates; who may do what is in the table.
    #[must_use]
    pub fn new(credentials: Credentials, access: Access) -> Self {
        Self { credentials: Some(credentials), access, insecure: false }
    }

    /// Whether a service without certificates may be reached from other hosts: its network is trusted.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// What this party shows.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Whether keys may go by a connection from `peer`, by TLS or not: they never cross a network in the clear, unless this party
    /// is to be insecure.
    #[must_use]
    pub fn keys_may_go(&self, peer: Option<SocketAddr>, tls: bool) -> bool {
        tls || self.insecure || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// `https` where certificates are shown, else `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.credentials.is_some() { "https" } else { "http" }
    }

    /// Whether a service, `what`, may listen there.
    ///
    /// # Errors
    /// When it would be reached from other hosts, has no certificates, and is not to be insecure.
    pub fn check(&self, what: &'static str, address: SocketAddr) -> Result<(), PlaintextError> {
        if self.credentials.is_some() { Ok(()) } else { plaintext(what, address, self.insecure) }
    }

    /// Where `peer` should be, with this party's certificate, if it has one.
    ///
    /// # Errors
    /// When the address is none, or one with TLS where nobody has certificates, or the other way round.
    pub fn target(&self, url: &str, peer: Peer) -> Result<Target, TargetError> {
        Target::new(url, self.credentials.as_ref(), peer)
    }

    /// The layer that has callers looked at.
    #[must_use]
    pub fn guard(&self) -> Guard {
        Guard::new(self.credentials.as_ref(), self.access.clone())
    }

    /// Serves what comes to `listener` until `stopped`, behind the guard. A connection whose client does not begin within
    /// ten seconds ends; one that it leaves without a word later is the keep-alive's of `server` to find.
    ///
    /// # Errors
    /// When connections can't be taken any more.
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
                let incoming = Incoming::new(listener, credentials).map(|taken| taken.map(Opening::by_client));
                server.serve_with_incoming_shutdown(incoming, stopped).await
            }
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let incoming = incoming.map(|taken| taken.map(Opening::by_client));
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
