//! Beginning of a connection: a client's preface, which is not waited for without end; the first byte of HTTP/2 of a server
//! that is called in plaintext.
//!
//! Once HTTP/2 has begun, its keep-alive finds a peer that is gone; until then nothing does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Longest time until a client has begun.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Bytes that each client of HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// What a server of TLS may answer to such a preface with (RFC 8446 §5.1).
const TLS_ALERT: [u8; 2] = [21, 3];
/// Told of a connection to a server: whether that has begun, or else it has ended.
type Told = Box<dyn Fn(bool) + Send + Sync>;

/// A connection at its beginning, and after that.
pub(crate) struct Opening<S> {
    stream: S,
    awaited: Option<Awaited>,
}

enum Awaited {
    /// Of a client: so many bytes, until then.
    Preface(usize, Pin<Box<Sleep>>),
    /// Of a server that is called in plaintext: a byte of HTTP/2. Most often one that ends the connection speaks TLS.
    Http2(Told),
}

impl<S> Opening<S> {
    /// One that a client has made.
    pub(crate) fn by_client(stream: S) -> Self {
        Self { stream, awaited: Some(Awaited::Preface(PREFACE, Box::pin(sleep(OPENING_MAX)))) }
    }

    /// One to a server, in plaintext.
    pub(crate) fn in_plaintext(stream: S, told: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { stream, awaited: Some(Awaited::Http2(Box::new(told))) }
    }

    /// Tells whether the server has begun.
    fn tell(&mut self, begun: bool) {
        if let Some(Awaited::Http2(told)) = self.awaited.take() {
            told(begun);
        }
    }

    /// What was written, or that it can't be.
    fn wrote(&mut self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(wrote, Poll::Ready(Err(_))) {
            self.tell(false);
        }
        wrote
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, awaited } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        let came = &buf.filled()[before..];
        match awaited {
            Some(Awaited::Preface(left, late)) if came.len() < *left => {
                *left -= came.len();
                if read.is_pending() {
                    ready!(late.as_mut().poll(cx));
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not begin")));
                }
            }
            Some(Awaited::Preface(..)) => *awaited = None,
            Some(Awaited::Http2(_)) if read.is_ready() => self.tell(!came.is_empty() && !came.starts_with(&TLS_ALERT)),
            Some(Awaited::Http2(_)) | None => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.wrote(wrote)
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

impl<S: Connected> Connected for Opening<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
