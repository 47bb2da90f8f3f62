//! Connections that a service takes by TLS: a stream of those whose peers have shown certificates.
//!
//! Handshakes run beside each other, so that none waits for one that says nothing; those are bounded in number and in time.

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

/// Longest time that a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Handshakes at a time; connections beyond them wait to be taken.
const HANDSHAKES_MAX: usize = 256;

/// Connections by TLS, for `serve_with_incoming` of tonic's servers. Requests know their peers as with TLS of tonic's own.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    credentials: Credentials,
    handshakes: JoinSet<io::Result<TlsStream<TcpStream>>>,
}

impl Incoming {
    /// Those that come to `listener`. Peers have to show a certificate of an authority that the credentials trust.
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

impl Stream for Incoming {
    type Item = io::Result<TlsStream<TcpStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.handshakes.len() < HANDSHAKES_MAX {
            match self.listener.poll_accept(cx) {
                Poll::Ready(Ok((stream, _))) => self.begin(stream),
                // The server's to say, and to go on.
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => break,
            }
        }
        loop {
            match self.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Ok(stream)))) => return Poll::Ready(Some(Ok(stream))),
                Poll::Ready(Some(Ok(Err(error)))) => {
                    tracing::info!(%error, "a connection is not taken: no handshake of TLS")
                }
                Poll::Ready(Some(Err(error))) => tracing::error!(%error, "a handshake of TLS panicked"),
                // With none at work, the next connection wakes this one.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
