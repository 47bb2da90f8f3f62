//! Deadlines: `grpc-timeout` holds for every kind of call, including streams, and always gives DEADLINE_EXCEEDED.
//!
//! tonic's client applies a timeout only up to the first byte of the response, and reports CANCELLED, as its server
//! does. Here the time runs from the stub's call to the last frame of the body. At the deadline the waiting future is
//! dropped, which cancels the call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::status::deadline_exceeded;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Message of the status when tonic's server times out.
const TONIC_TIMEOUT: &str = "Timeout expired";

/// Result of a call.
type CallResult = Result<http::Response<Body>, Status>;
/// Call in progress.
pub(crate) type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// Deadline of a call; none if its caller set none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Deadline of a request that is made now.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let timeout = headers.get(GRPC_TIMEOUT).and_then(|value| parse(value.as_bytes()));
        // A timeout beyond the range of the clock means no deadline.
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Deadline after this time from now.
    pub(crate) fn after(left: Option<Duration>) -> Self {
        Self(left.and_then(|left| Instant::now().checked_add(left)))
    }

    /// Time left; `None` without a deadline.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Limits a call, including the body of its response, to the deadline. The future is boxed first: an async block
    /// that awaits it unboxed would have room for it twice and move it.
    pub(crate) fn bound(self, call: impl Future<Output = CallResult> + Send + 'static) -> CallFuture {
        let mut call = Box::pin(call);
        let Some(at) = self.0 else { return call };
        Box::pin(async move {
            let replied = tokio::time::timeout_at(at, call.as_mut()).await;
            self.guard(replied.map_err(|_| deadline_exceeded())??)
        })
    }

    /// Adds the time left to the headers for the next host.
    pub(crate) fn write_to(self, headers: &mut HeaderMap) {
        if let Some(at) = self.0 {
            headers.insert(GRPC_TIMEOUT, print(at.saturating_duration_since(Instant::now())));
        }
    }

    /// Limits the body of the response to the deadline.
    pub(crate) fn guard(self, response: http::Response<Body>) -> Result<http::Response<Body>, Status> {
        let Some(at) = self.0 else {
            return Ok(response);
        };
        if is_server_timeout(response.headers()) {
            return Err(deadline_exceeded());
        }
        if response.body().is_end_stream() {
            return Ok(response);
        }
        Ok(response.map(|body| Body::new(LimitedBody { body, sleep: Box::pin(tokio::time::sleep_until(at)) })))
    }
}

fn is_server_timeout(headers: &HeaderMap) -> bool {
    Status::from_header_map(headers)
        .is_some_and(|status| status.code() == Code::Cancelled && status.message() == TONIC_TIMEOUT)
}

/// Response body with a deadline.
struct LimitedBody {
    /// Empty once the deadline has passed: dropping the rest resets the stream.
    body: Body,
    sleep: Pin<Box<Sleep>>,
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.body.is_end_stream() {
            return Poll::Ready(None);
        }
        if self.sleep.as_mut().poll(cx).is_ready() {
            self.body = Body::empty();
            return Poll::Ready(Some(Err(deadline_exceeded())));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Parses a gRPC timeout: at most eight digits and a unit. Other values mean no timeout.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Formats a timeout in the finest unit for which eight digits suffice.
fn print(timeout: Duration) -> HeaderValue {
    const COUNT_MAX: u128 = 99_999_999;
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S')];
    let (count, unit) = units
        .into_iter()
        .map(|(nanos, unit)| (timeout.as_nanos() / nanos, unit))
        .find(|(count, _)| *count <= COUNT_MAX)
        .unwrap_or((COUNT_MAX, 'S'));
    HeaderValue::try_from(format!("{count}{unit}")).unwrap_or(HeaderValue::from_static("99999999S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_parses_all_grpc_units() {
        for (text, timeout) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("500m", Some(Duration::from_millis(500))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
            ("100000000S", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("1s", None),
        ] {
            assert_eq!(parse(text.as_bytes()), timeout, "{text:?}");
        }
    }

    #[test]
    fn timeout_is_printed_in_finest_unit() {
        for (timeout, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_millis(99), "99000000n"),
            (Duration::from_secs(1), "1000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(print(timeout), text);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_ends_at_deadline() {
        use http_body_util::{BodyExt, StreamBody};
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        let first = Ok::<_, Status>(Frame::data(Bytes::from_static(b"first")));
        let frames = tokio_stream::StreamExt::chain(tokio_stream::once(first), tokio_stream::pending());
        let response = http::Response::new(Body::new(StreamBody::new(frames)));

        let began = Instant::now();
        let mut body = Deadline::of(&headers).guard(response).unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        assert_eq!(body.frame().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn tonic_server_timeout_is_deadline_exceeded() {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        let deadline = Deadline(Some(Instant::now() + Duration::from_secs(1)));
        let code = |status: Status| deadline.guard(status.into_http()).map_err(|status| status.code()).map(drop);
        assert_eq!(code(Status::cancelled(TONIC_TIMEOUT)), Err(Code::DeadlineExceeded));
        assert_eq!(code(Status::cancelled("by the handler")), Ok(()));
    }
}
