//! Encoding of a reply in frames: the complete response of a unary call.
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

/// Maximum size of a reply's metadata, bytes.
const METADATA_MAX: usize = 16 << 10;

/// Metadata with the status code of a response.
const GRPC_STATUS: &str = "grpc-status";

/// Kinds of replies: with a message, and without (the call failed).
const WITH_MESSAGE: u8 = 1;
const WITHOUT_MESSAGE: u8 = 2;
/// Kind of a reply that is too long for frames: the caller has to call by gRPC.
const TOO_LONG: u8 = 3;

/// Decoded reply.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Response of the call.
    Response(http::Response<Body>),
    /// The reply is too long for frames.
    TooLong,
}

/// Error of a reply that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply is damaged: its {0}")]
pub(crate) struct DamagedReply(&'static str);

/// Encoded reply, with the status code of the call.
#[derive(Debug)]
pub(crate) struct EncodedReply {
    pub(crate) bytes: Bytes,
    pub(crate) code: Code,
}

/// Encoding of a reply that is too long.
pub(crate) fn too_long() -> Bytes {
    Bytes::from_static(&[TOO_LONG])
}

/// Encodes a status as a reply.
pub(crate) fn of_status(status: Status) -> EncodedReply {
    let code = status.code();
    let (parts, _) = status.into_http::<Body>().into_parts();
    EncodedReply { bytes: encode(&parts.headers, &HeaderMap::new(), None).unwrap_or_else(too_long), code }
}

/// Encodes the response of a handler; a response longer than `max` bytes becomes [`too_long`].
pub(crate) async fn of_response<B>(response: http::Response<B>, max: usize) -> EncodedReply
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    // The body can only fail by its length: handlers' errors are trailers.
    let Ok(collected) = Limited::new(body, max).collect().await else {
        return EncodedReply { bytes: too_long(), code: Code::Ok };
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
    EncodedReply { bytes: encode(&parts.headers, &trailers, message.as_deref()).unwrap_or_else(too_long), code }
}

/// Encodes metadata and message; `None` if the metadata is too long.
fn encode(headers: &HeaderMap, trailers: &HeaderMap, message: Option<&[u8]>) -> Option<Bytes> {
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

/// Decodes a reply.
pub(crate) fn decode(mut bytes: Bytes) -> Result<Reply, DamagedReply> {
    let with_message = match bytes.try_get_u8() {
        Ok(WITH_MESSAGE) => true,
        Ok(WITHOUT_MESSAGE) => false,
        Ok(TOO_LONG) => return Ok(Reply::TooLong),
        Ok(_) | Err(_) => return Err(DamagedReply("kind")),
    };
    let mut headers = take(&mut bytes)?;
    let trailers = take(&mut bytes)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let body = if with_message {
        let mut framed = frame::begin();
        framed.extend_from_slice(&bytes);
        let framed = frame::close(framed).map_err(|_| DamagedReply("length"))?;
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

fn take(bytes: &mut Bytes) -> Result<HeaderMap, DamagedReply> {
    let entries = bytes.try_get_u16().map_err(|_| DamagedReply("metadata"))?;
    let mut map = HeaderMap::new();
    for _ in 0..entries {
        let name = HeaderName::from_bytes(&text(bytes)?).map_err(|_| DamagedReply("metadata"))?;
        let value = HeaderValue::from_maybe_shared(text(bytes)?).map_err(|_| DamagedReply("metadata"))?;
        map.try_append(name, value).map_err(|_| DamagedReply("metadata"))?;
    }
    Ok(map)
}

fn text(bytes: &mut Bytes) -> Result<Bytes, DamagedReply> {
    let len = usize::from(bytes.try_get_u16().map_err(|_| DamagedReply("metadata"))?);
    if bytes.len() < len { Err(DamagedReply("metadata")) } else { Ok(bytes.split_to(len)) }
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

    fn decoded(bytes: Bytes) -> http::Response<Body> {
        match decode(bytes).unwrap() {
            Reply::Response(response) => response,
            Reply::TooLong => panic!("it was short"),
        }
    }

    #[tokio::test]
    async fn encoding_round_trips() {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let encoded = of_response(response(b"message", trailers.clone()), 100).await;
        assert_eq!(encoded.code, Code::Ok);
        let (parts, body) = decoded(encoded.bytes).into_parts();
        assert_eq!(
            (&parts.headers["seen"], &parts.headers[CONTENT_TYPE]),
            (&"yes".parse().unwrap(), &"application/grpc".parse().unwrap())
        );
        let body = body.collect().await.unwrap();
        assert_eq!(body.trailers(), Some(&trailers));
        assert_eq!(frame::open(&body.to_bytes()).unwrap(), "message");
    }

    #[tokio::test]
    async fn failure_keeps_status_and_details() {
        let status = Status::with_details(Code::Aborted, "no", Bytes::from_static(b"details"));
        let response = decoded(of_status(status).bytes);
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!((status.code(), status.message(), status.details()), (Code::Aborted, "no", &b"details"[..]));
    }

    #[tokio::test]
    async fn too_long_reply_is_encoded_as_such() {
        let encoded = of_response(response(&[0; 100], HeaderMap::new()), 100).await;
        assert!(matches!(decode(encoded.bytes), Ok(Reply::TooLong)));
        let mut long = HeaderMap::new();
        long.insert("long", HeaderValue::from_str(&"x".repeat(METADATA_MAX)).unwrap());
        assert!(matches!(decode(of_response(response(b"", long), 100).await.bytes), Ok(Reply::TooLong)));
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 1..100), kind in 0u8..5) {
            bytes[0] = kind;
            let _ = decode(bytes.into());
        }
    }
}
