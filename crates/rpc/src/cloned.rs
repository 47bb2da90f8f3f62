//! Encodings of cloned calls (NetClone), for caller and server, and the conversion of a controller's pool table.
//!
//! ```text
//! stub ─► channel ─┬─ encoded request ═ frames ═ element ═► queue of a server ─► layer's services
//!                  │◄─ encoded reply ═══ frames ═ element ══ status, metadata, message
//!                  └─ too long, or peer without Pathcall ──► gRPC
//!
//! request: time left 8, µs, 0: no limit │ method, metadata and message as in delegated requests
//! reply:   kind 1 │ headers │ trailers │ message      headers, trailers: entries 2 │ (length 2 │ name │ length 2 │ value) …
//! ```

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use pathcall_driver::clone::PoolAddresses;
use pathcall_endpoint::clone::{Pool, Pushback};
use pathcall_proto::v1::PoolTable;
use pathcall_wire::TokenKey;
use pathcall_wire::clone::{MAX_SERVERS, switch_id};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::delegate::envelope::{self, Envelope, EnvelopeError};
use crate::headers;
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

/// Encodes a request for a method.
pub(crate) fn encode_request(
    path: &str,
    metadata: &HeaderMap,
    left: Option<Duration>,
    message: &[u8],
) -> Result<Bytes, EnvelopeError> {
    let encoded = envelope::encode(path, metadata, &[], message)?;
    let mut out = BytesMut::with_capacity(8 + encoded.len());
    // An expired limit is not "no limit".
    out.put_u64(left.map_or(0, |left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)));
    out.put_slice(&encoded);
    Ok(out.freeze())
}

/// Decodes a request and the time left for it.
pub(crate) fn decode_request(mut bytes: Bytes) -> Result<(Option<Duration>, Envelope), EnvelopeError> {
    let left = bytes.try_get_u64().map_err(|_| EnvelopeError::Short("time limit"))?;
    Ok(((left > 0).then(|| Duration::from_micros(left)), envelope::decode(bytes)?))
}

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

/// Encoded reply, with the status code of the call and the handler's pushback.
#[derive(Debug)]
pub(crate) struct EncodedReply {
    pub(crate) bytes: Bytes,
    pub(crate) code: Code,
    pub(crate) pushback: Option<Pushback>,
}

/// Encoding of a reply that is too long.
pub(crate) fn too_long() -> Bytes {
    Bytes::from_static(&[TOO_LONG])
}

/// Encodes a status as a reply.
pub(crate) fn of_status(status: Status) -> EncodedReply {
    let code = status.code();
    let (parts, _) = status.into_http::<Body>().into_parts();
    let bytes = encode(&parts.headers, &HeaderMap::new(), None).unwrap_or_else(too_long);
    EncodedReply { bytes, code, pushback: headers::pushback(&parts.headers) }
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
        return EncodedReply { bytes: too_long(), code: Code::Ok, pushback: None };
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
    let pushback = headers::pushback(&trailers).or_else(|| headers::pushback(&parts.headers));
    let bytes = encode(&parts.headers, &trailers, message.as_deref()).unwrap_or_else(too_long);
    EncodedReply { bytes, code, pushback }
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
pub(crate) fn decode_reply(mut bytes: Bytes) -> Result<Reply, DamagedReply> {
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

/// Converts a controller's pool table; fails if an address is invalid.
pub(crate) fn pool_addresses(table: &PoolTable, rack: &str) -> Result<PoolAddresses, Status> {
    let invalid = |what: String| Status::internal(format!("invalid pool table: {what}"));
    if table.servers.len() > MAX_SERVERS {
        return Err(invalid(format!("{} servers, expected at most {MAX_SERVERS}", table.servers.len())));
    }
    let address = |text: &str| text.parse().map_err(|_| invalid(format!("the address {text:?}")));
    let addresses = table.servers.iter().map(|server| address(&server.data_address)).collect::<Result<_, _>>()?;
    let (number, element, element_holds) = element_of_rack(table, rack);
    let element = match element {
        "" => None,
        text => Some(address(text)?),
    };
    let servers = table.servers.iter().map(|server| server.endpoint).collect();
    let pool = Pool { gaid: table.gaid, version: table.version, servers };
    let switch_id = if number == 0 { 0 } else { switch_id(number).get() };
    Ok(PoolAddresses { pool, addresses, element, switch_id, element_holds })
}

/// Id and address of the element for a server or caller of a rack (NetClone §3.7), and whether it holds hedges; 0 and
/// empty if there is none.
fn element_of_rack<'a>(table: &'a PoolTable, rack: &str) -> (u32, &'a str, bool) {
    let own = table.elements.iter().find(|element| element.rack == rack);
    let default = (table.element, &*table.element_address, table.element_holds_hedges);
    own.map_or(default, |own| (own.element, &own.data_address, own.holds_hedges))
}

/// Key of the pool's frames.
pub(crate) fn pool_key(table: &PoolTable) -> Option<TokenKey> {
    table.token_key.map(|key| TokenKey::new(key.into()))
}

#[cfg(test)]
mod tests {
    use pathcall_proto::v1::{PoolServer, RackElement};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_round_trips() {
        for left in [None, Some(Duration::from_micros(1)), Some(Duration::from_secs(9))] {
            let encoded = encode_request("/a.B/C", &HeaderMap::new(), left, b"message").unwrap();
            let (opened, envelope) = decode_request(encoded).unwrap();
            assert_eq!((opened, &*envelope.path, &*envelope.message), (left, "/a.B/C", &b"message"[..]));
        }
        let (over, _) =
            decode_request(encode_request("/a.B/C", &HeaderMap::new(), Some(Duration::ZERO), b"").unwrap()).unwrap();
        assert!(over.is_some(), "an expired limit is kept");
    }

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
        match decode_reply(bytes).unwrap() {
            Reply::Response(response) => response,
            Reply::TooLong => panic!("it was short"),
        }
    }

    #[tokio::test]
    async fn reply_round_trips() {
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
        assert!(matches!(decode_reply(encoded.bytes), Ok(Reply::TooLong)));
        let mut long = HeaderMap::new();
        long.insert("long", HeaderValue::from_str(&"x".repeat(METADATA_MAX)).unwrap());
        assert!(matches!(decode_reply(of_response(response(b"", long), 100).await.bytes), Ok(Reply::TooLong)));
    }

    #[test]
    fn invalid_table_is_refused() {
        let server = |address: &str| PoolServer { endpoint: 7, data_address: address.into(), ..PoolServer::default() };
        let read_with = |servers, element_address: &str| {
            let element_address = element_address.into();
            let table = PoolTable { gaid: 1, version: 2, servers, element_address, ..PoolTable::default() };
            pool_addresses(&table, "a")
        };
        let table = read_with(vec![server("10.0.0.1:9")], "").unwrap();
        assert_eq!((table.pool.servers, table.element), (vec![7], None));
        for (servers, element) in
            [(vec![server("here")], ""), (vec![], "there"), (vec![server("10.0.0.1:9"); MAX_SERVERS + 1], "")]
        {
            let refused = read_with(servers, element).unwrap_err();
            assert!(refused.message().starts_with("invalid pool table: "), "{refused}");
        }
    }

    #[test]
    fn element_of_own_rack_is_used() {
        let element = |rack: &str, element, data_address: &str| RackElement {
            rack: rack.into(),
            element,
            data_address: data_address.into(),
            holds_hedges: element == 2,
        };
        let elements = vec![element("a", 1, "10.0.0.1:9"), element("b", 2, "10.0.0.2:9")];
        let element_address = "10.0.0.1:9".into();
        let table = PoolTable { gaid: 1, version: 1, element: 1, element_address, elements, ..PoolTable::default() };
        for (rack, expected, number) in [("a", "10.0.0.1:9", 1), ("b", "10.0.0.2:9", 2), ("", "10.0.0.1:9", 1)] {
            let read = pool_addresses(&table, rack).unwrap();
            assert_eq!((read.element, read.switch_id), (Some(expected.parse().unwrap()), number), "{rack}");
            assert_eq!(read.element_holds, number == 2);
        }
    }

    proptest! {
        #[test]
        fn decoding_any_request_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_request(bytes.into());
        }

        #[test]
        fn decoding_any_reply_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 1..100), kind in 0u8..5) {
            bytes[0] = kind;
            let _ = decode_reply(bytes.into());
        }
    }
}
