//! What a connection has to begin with: from a client, a preface before long; from a server in plaintext, no TLS.
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
/// What a server of TLS answers to such a preface with (RFC 8446 §5.1).
const TLS_ALERT: [u8; 2] = [21, 3];
/// What the error of a connection in plaintext to such a server says.
pub const SPEAKS_TLS: &str = "the server speaks TLS: its address begins with https://";

/// A connection at its beginning, and after that.
#[derive(Debug)]
pub(crate) struct Opening<S> {
    stream: S,
    awaited: Option<Awaited>,
}

#[derive(Debug)]
enum Awaited {
    /// Of a client: so many bytes, until then.
    Preface(usize, Pin<Box<Sleep>>),
    /// Of a server that is called in plaintext: anything but TLS.
    Plaintext,
}

impl<S> Opening<S> {
    /// One that a client has made.
    pub(crate) fn by_client(stream: S) -> Self {
        Self { stream, awaited: Some(Awaited::Preface(PREFACE, Box::pin(sleep(OPENING_MAX)))) }
    }

    /// One to a server, in plaintext.
    pub(crate) fn in_plaintext(stream: S) -> Self {
        Self { stream, awaited: Some(Awaited::Plaintext) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, awaited } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        let came = &buf.filled()[before..];
        match awaited {
            None => {}
            Some(Awaited::Preface(left, late)) if came.len() < *left => {
                *left -= came.len();
                if read.is_pending() {
                    ready!(late.as_mut().poll(cx));
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not begin")));
                }
            }
            Some(Awaited::Plaintext) if came.starts_with(&TLS_ALERT) => {
                return Poll::Ready(Err(io::Error::other(SPEAKS_TLS)));
            }
            Some(Awaited::Plaintext) if read.is_pending() => {}
            Some(_) => *awaited = None,
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
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
