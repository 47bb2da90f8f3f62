//! A reply as it travels in frames: all that the response of a unary call has.
//!
//! ```text
//! kind 1 │ headers │ trailers │ message          headers, trailers: entries 2 │ (length 2 │ name │ length 2 │ value) …
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::message::frame;

/// Bytes that metadata of a reply takes at most, beside its message.
const METADATA_MAX: usize = 16 << 10;

/// Where a response's status code is.
const GRPC_STATUS: &str = "grpc-status";

/// With a message, and without: the call failed.
const WITH_MESSAGE: u8 = 1;
const WITHOUT_MESSAGE: u8 = 2;
/// The reply is too long: to be asked for by gRPC.
const TOO_LONG: u8 = 3;

/// A reply that came.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The response of the call.
    Response(http::Response<Body>),
    /// It is too long for frames.
    TooLong,
}

/// Why bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply is damaged: its {0}")]
pub(crate) struct Damaged(&'static str);

/// A reply as it travels, and what it comes to.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) bytes: Bytes,
    pub(crate) code: Code,
}

/// What says that a reply is too long.
pub(crate) fn too_long() -> Bytes {
    Bytes::from_static(&[TOO_LONG])
}

/// The reply that is a status.
pub(crate) fn of_status(status: Status) -> Sealed {
    let code = status.code();
    let (parts, _) = status.into_http::<Body>().into_parts();
    Sealed { bytes: seal(&parts.headers, &HeaderMap::new(), None).unwrap_or_else(too_long), code }
}

/// The response of a handler, sealed; of a reply longer than `max` no more than that it is.
pub(crate) async fn of_response<B>(response: http::Response<B>, max: usize) -> Sealed
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    // An error of the body is one of its length: handlers' errors are trailers.
    let Ok(collected) = Limited::new(body, max).collect().await else {
        return Sealed { bytes: too_long(), code: Code::Ok };
    };
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let bytes = collected.to_bytes();
    let message = match bytes.is_empty() {
        true => None,
        false => match frame::open(&bytes) {
            Ok(message) => Some(message),
            Err(error) => return of_status(Status::internal(format!("the handler's reply: {error}"))),
        },
    };
    let said = trailers.get(GRPC_STATUS).or_else(|| parts.headers.get(GRPC_STATUS));
    let code = said.map_or(Code::Unknown, |code| Code::from_bytes(code.as_bytes()));
    Sealed { bytes: seal(&parts.headers, &trailers, message.as_deref()).unwrap_or_else(too_long), code }
}

/// `None`: the metadata is too long.
fn seal(headers: &HeaderMap, trailers: &HeaderMap, message: Option<&[u8]>) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(256 + message.map_or(0, <[u8]>::len));
    out.put_u8(if message.is_some() { WITH_MESSAGE } else { WITHOUT_MESSAGE });
    put(&mut out, headers)?;
    put(&mut out, trailers)?;
    if out.len() > METADATA_MAX {
        return None;
    }
    out.put_slice(message.unwrap_or_default());
    Some(out.freeze())
}

fn put(out: &mut BytesMut, map: &HeaderMap) -> Option<()> {
    let of_the_call = |(name, _): &(&HeaderName, _)| **name != CONTENT_TYPE && **name != CONTENT_LENGTH;
    out.put_u16(u16::try_from(map.iter().filter(of_the_call).count()).ok()?);
    for (name, value) in map.iter().filter(of_the_call) {
        for text in [name.as_str().as_bytes(), value.as_bytes()] {
            out.put_u16(u16::try_from(text.len()).ok()?);
            out.put_slice(text);
        }
    }
    Some(())
}

/// The reply in these bytes.
pub(crate) fn open(mut bytes: Bytes) -> Result<Reply, Damaged> {
    let with_message = match bytes.try_get_u8() {
        Ok(WITH_MESSAGE) => true,
        Ok(WITHOUT_MESSAGE) => false,
        Ok(TOO_LONG) => return Ok(Reply::TooLong),
        Ok(_) | Err(_) => return Err(Damaged("kind")),
    };
    let mut headers = take(&mut bytes)?;
    let trailers = take(&mut bytes)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let body = if with_message {
        let mut framed = frame::begin();
        framed.extend_from_slice(&bytes);
        let framed = frame::close(framed).map_err(|_| Damaged("length"))?;
        Body::new(Full::new(framed).with_trailers(std::future::ready(Some(Ok(trailers)))))
    } else if trailers.is_empty() {
        Body::empty()
    } else {
        let trailers = Ok::<_, Status>(Frame::trailers(trailers));
        Body::new(StreamBody::new(tokio_stream::once(trailers)))
    };
    let mut response = http::Response::new(body);
    *response.headers_mut() = headers;
    Ok(Reply::Response(response))
}

fn take(bytes: &mut Bytes) -> Result<HeaderMap, Damaged> {
    let entries = bytes.try_get_u16().map_err(|_| Damaged("metadata"))?;
    let mut map = HeaderMap::new();
    for _ in 0..entries {
        let name = HeaderName::from_bytes(&text(bytes)?).map_err(|_| Damaged("metadata"))?;
        let value = HeaderValue::from_maybe_shared(text(bytes)?).map_err(|_| Damaged("metadata"))?;
        map.try_append(name, value).map_err(|_| Damaged("metadata"))?;
    }
    Ok(map)
}

fn text(bytes: &mut Bytes) -> Result<Bytes, Damaged> {
    let len = usize::from(bytes.try_get_u16().map_err(|_| Damaged("metadata"))?);
    if bytes.len() < len { Err(Damaged("metadata")) } else { Ok(bytes.split_to(len)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(message: &'static [u8], trailers: HeaderMap) -> http::Response<Body> {
        let mut framed = frame::begin();
        framed.extend_from_slice(message);
        let body = Full::new(frame::close(framed).unwrap());
        let mut response = http::Response::new(Body::new(body.with_trailers(std::future::ready(Some(Ok(trailers))))));
        response.headers_mut().insert("seen", HeaderValue::from_static("yes"));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }

    fn opened(bytes: Bytes) -> http::Response<Body> {
        match open(bytes).unwrap() {
            Reply::Response(response) => response,
            Reply::TooLong => panic!("it was short"),
        }
    }

    #[tokio::test]
    async fn what_is_sealed_is_opened() {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let sealed = of_response(response(b"message", trailers.clone()), 100).await;
        assert_eq!(sealed.code, Code::Ok);
        let (parts, body) = opened(sealed.bytes).into_parts();
        assert_eq!(
            (&parts.headers["seen"], &parts.headers[CONTENT_TYPE]),
            (&"yes".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
        let body = body.collect().await.unwrap();
        assert_eq!(body.trailers(), Some(&trailers));
        assert_eq!(frame::open(&body.to_bytes()).unwrap(), "message");
    }

    #[tokio::test]
    async fn a_failure_keeps_its_status_and_details() {
        let status = Status::with_details(Code::Aborted, "no", Bytes::from_static(b"details"));
        let response = opened(of_status(status).bytes);
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!((status.code(), status.message(), status.details()), (Code::Aborted, "no", &b"details"[..]));
    }

    #[tokio::test]
    async fn what_is_too_long_says_so() {
        let sealed = of_response(response(&[0; 100], HeaderMap::new()), 100).await;
        assert!(matches!(open(sealed.bytes), Ok(Reply::TooLong)));
        let mut long = HeaderMap::new();
        long.insert("long", HeaderValue::from_str(&"x".repeat(METADATA_MAX)).unwrap());
        assert!(matches!(open(of_response(response(b"", long), 100).await.bytes), Ok(Reply::TooLong)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 1..100), kind in 0u8..5) {
            bytes[0] = kind;
            let _ = open(bytes.into());
        }
    }
}
