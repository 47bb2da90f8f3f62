//! Start of a connection: time limit for a client's HTTP/2 preface, and detection of TLS servers on plaintext
//! connections.
//!
//! Once HTTP/2 has started, its keep-alive detects lost peers; before that, this module does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Time limit for a client's preface.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of the HTTP/2 client preface, bytes (RFC 9113 §3.4).
const PREFACE_LEN: usize = 24;
/// First bytes of a TLS server's answer to such a preface (RFC 8446 §5.1).
const TLS_ALERT: [u8; 2] = [21, 3];
/// Callback for a connection to a server: true if HTTP/2 has started, false if the connection has ended before.
type StartCallback = Box<dyn Fn(bool) + Send + Sync>;

/// Connection that watches its own start.
pub(crate) struct ConnectionStart<S> {
    stream: S,
    awaited: Option<Awaited>,
}

enum Awaited {
    /// Remaining bytes of a client's preface, and the time limit.
    Preface(usize, Pin<Box<Sleep>>),
    /// First byte of a plaintext server. A server that closes the connection instead most likely speaks TLS.
    Http2(StartCallback),
}

impl<S> ConnectionStart<S> {
    /// Connection made by a client.
    pub(crate) fn by_client(stream: S) -> Self {
        Self { stream, awaited: Some(Awaited::Preface(PREFACE_LEN, Box::pin(sleep(PREFACE_TIMEOUT)))) }
    }

    /// Plaintext connection to a server.
    pub(crate) fn in_plaintext(stream: S, callback: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { stream, awaited: Some(Awaited::Http2(Box::new(callback))) }
    }

    /// Reports whether the server has started HTTP/2.
    fn report(&mut self, begun: bool) {
        if let Some(Awaited::Http2(callback)) = self.awaited.take() {
            callback(begun);
        }
    }

    /// Reports a failed write; returns the result.
    fn report_failure(&mut self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(wrote, Poll::Ready(Err(_))) {
            self.report(false);
        }
        wrote
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionStart<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, awaited } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        let received = &buf.filled()[before..];
        match awaited {
            Some(Awaited::Preface(left, late)) if received.len() < *left => {
                *left -= received.len();
                if read.is_pending() {
                    ready!(late.as_mut().poll(cx));
                    let late = "the client has not sent an HTTP/2 preface";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)));
                }
            }
            Some(Awaited::Preface(..)) => *awaited = None,
            Some(Awaited::Http2(_)) if read.is_ready() => {
                self.report(!received.is_empty() && !received.starts_with(&TLS_ALERT))
            }
            Some(Awaited::Http2(_)) | None => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionStart<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.report_failure(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.report_failure(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for ConnectionStart<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
