//! Accepted TLS connections: a stream of connections whose peers have valid certificates.
//!
//! Handshakes run concurrently, so that a silent peer does not delay others; their number and time are limited.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;

use crate::Credentials;

/// Time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes; further connections wait in the listener's backlog.
const HANDSHAKES_MAX: usize = 256;

/// TLS connections for `serve_with_incoming` of tonic servers. Requests have the same connection info as with tonic's
/// own TLS.
#[derive(Debug)]
pub struct TlsIncoming {
    listener: TcpListener,
    credentials: Credentials,
    handshakes: JoinSet<io::Result<TlsStream<TcpStream>>>,
}

impl TlsIncoming {
    /// Accepts connections of `listener`. Peers must have a certificate of an authority that the credentials trust.
    #[must_use]
    pub fn new(listener: TcpListener, credentials: Credentials) -> Self {
        Self { listener, credentials, handshakes: JoinSet::new() }
    }

    fn begin(&mut self, stream: TcpStream) {
        let acceptor = TlsAcceptor::from(self.credentials.server());
        self.handshakes.spawn(async move {
            stream.set_nodelay(true)?;
            let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream));
            handshake.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        });
    }
}

impl Stream for TlsIncoming {
    type Item = io::Result<TlsStream<TcpStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.handshakes.len() < HANDSHAKES_MAX {
            match self.listener.poll_accept(cx) {
                Poll::Ready(Ok((stream, _))) => self.begin(stream),
                // The server handles the error and continues.
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => break,
            }
        }
        loop {
            match self.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Ok(stream)))) => return Poll::Ready(Some(Ok(stream))),
                Poll::Ready(Some(Ok(Err(error)))) => {
                    tracing::info!(%error, "closed a connection: the TLS handshake failed")
                }
                Poll::Ready(Some(Err(error))) => tracing::error!(%error, "a TLS handshake panicked"),
                // Without handshakes in progress, the next connection wakes this task.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
