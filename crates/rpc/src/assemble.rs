//! Reply of a method with a filter: untyped fields from the handler, if it ran, and the typed field from the map.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use pathcall_endpoint::map::Key;
use pathcall_proto::manifest::Method;
use tonic::Status;
use tonic::body::Body;

use crate::headers;
use crate::message::fields::split;
use crate::message::{Malformed, frame, keys, reply};
use crate::request::MapAnswer;
use crate::status;

/// Maximum size of a handler's reply that gets a typed field, bytes. A handler's untyped reply is small.
pub(crate) const HANDLER_REPLY_BYTES_MAX: usize = 64 << 20;

/// Status of a response; among its headers, if there is no message.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Request for the handler: this message with the call's headers.
pub(crate) fn handler_request(
    method: &Method,
    mut parts: http::request::Parts,
    message: &[u8],
) -> Result<http::Request<Body>, Status> {
    clean_handler_headers(&mut parts.headers);
    let mut body = frame::begin();
    body.extend_from_slice(message);
    let body = frame::close(body).map_err(|error| status::of_frame(method, error))?;
    Ok(http::Request::from_parts(parts, Body::new(Full::new(body))))
}

/// Removes metadata that is not true of the messages between this crate and the handler.
pub(crate) fn clean_handler_headers(headers: &mut HeaderMap) {
    // The reply gets a typed field, so it must be uncompressed.
    headers.remove(GRPC_ACCEPT_ENCODING);
    headers.remove(GRPC_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
}

/// Builds the reply from the handler's outcome, if it ran, and the answer of the map. The response of a handler that
/// failed is returned as it is.
pub(crate) fn reply(
    method: &Method,
    handled: Option<HandlerOutcome>,
    answer: &MapAnswer,
) -> Result<http::Response<Body>, Status> {
    let (mut head, message, trailers) = match handled {
        None => (HeaderMap::new(), Bytes::new(), ok_trailers()),
        Some(HandlerOutcome::Done { headers, message, trailers }) => (headers, message, trailers),
        Some(HandlerOutcome::Failed(response)) => return Ok(response),
    };
    let body = reply_frame(method, &message, answer)?;
    if let Some(forwarded) = answer.forwarded {
        head.insert(headers::FORWARDED, HeaderValue::from_static(if forwarded { "true" } else { "false" }));
    }
    if let Some((tokens, until)) = &answer.locks {
        // The handler may have taken some time.
        let lease = until.saturating_duration_since(Instant::now());
        head.insert(headers::LEASE_MS, HeaderValue::from(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)));
        head.extend(headers::encode_tokens(tokens).map(|tokens| (headers::FENCING_TOKEN, tokens)));
    }
    Ok(response_of(head, body, trailers))
}

/// Frame of a reply: the handler's message, and the answer of the map in its typed field.
pub(crate) fn reply_frame(method: &Method, message: &[u8], answer: &MapAnswer) -> Result<Bytes, Status> {
    let mut body = frame::begin();
    match &method.reply {
        None => body.extend_from_slice(message),
        Some(field) => {
            // The typed field of the handler's reply is replaced by the map's answer.
            let unreadable = |error: Malformed| {
                Status::internal(format!("{}: cannot read the handler's reply: {error}", method.path))
            };
            split::<Malformed>(message, field.path, &mut body, &mut |_| Ok(())).map_err(unreadable)?;
            reply::append(&mut body, field.path, field.shape, method.precision, &answer.values)
                .map_err(|error| status::of_reply(field.name, &error))?;
        }
    }
    frame::close(body).map_err(|error| status::of_frame(method, error))
}

/// Response with this body, which also has the trailers.
pub(crate) fn streamed_response(body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Reply of a handler, as it is.
pub(crate) fn unchanged_reply(
    method: &Method,
    headers: HeaderMap,
    message: &[u8],
    trailers: HeaderMap,
) -> Result<http::Response<Body>, Status> {
    let mut body = frame::begin();
    body.extend_from_slice(message);
    let body = frame::close(body).map_err(|error| status::of_frame(method, error))?;
    Ok(response_of(headers, body, trailers))
}

/// Reply to a method that clears all keys and asks for them.
pub(crate) fn keys_reply<'a>(
    method: &Method,
    keys: impl IntoIterator<Item = &'a Key>,
) -> Result<http::Response<Body>, Status> {
    let mut body = frame::begin();
    keys::append(&mut body, keys);
    let body = frame::close(body).map_err(|error| status::of_frame(method, error))?;
    Ok(response_of(HeaderMap::new(), body, ok_trailers()))
}

/// Message of a response, as long as the map has keys.
pub(crate) async fn message_of(method: &Method, response: http::Response<Body>) -> Result<Bytes, Status> {
    match read_response(method, response, usize::MAX).await? {
        HandlerOutcome::Done { message, .. } => Ok(message),
        HandlerOutcome::Failed(response) => {
            let (parts, body) = response.into_parts();
            let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
            let status = Status::from_header_map(&parts.headers).or_else(|| Status::from_header_map(&trailers));
            Err(status.unwrap_or_else(|| Status::unknown(format!("{}: the reply has no status", method.path))))
        }
    }
}

/// Outcome of a handler.
pub(crate) enum HandlerOutcome {
    Done {
        headers: HeaderMap,
        message: Bytes,
        trailers: HeaderMap,
    },
    /// The unchanged response of a failed call.
    Failed(http::Response<Body>),
}

impl HandlerOutcome {
    /// Reads a handler's response.
    pub(crate) async fn read(method: &Method, response: http::Response<Body>) -> Result<Self, Status> {
        read_response(method, response, HANDLER_REPLY_BYTES_MAX).await
    }
}

/// Reads a response of at most `max` bytes.
async fn read_response(method: &Method, response: http::Response<Body>, max: usize) -> Result<HandlerOutcome, Status> {
    if response.headers().contains_key(GRPC_STATUS) {
        return Ok(HandlerOutcome::Failed(response));
    }
    let (parts, body) = response.into_parts();
    let collected =
        Limited::new(body, max).collect().await.map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => Status::out_of_range(format!("{}: the handler's reply is longer than {max} bytes", method.path)),
            Err(error) => Status::from_error(error),
        })?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let bytes = collected.to_bytes();
    if trailers.get(GRPC_STATUS).is_none_or(|status| status != "0") {
        return Ok(HandlerOutcome::Failed(response_of(parts.headers, bytes, trailers)));
    }
    let message = frame::open(&bytes).map_err(|error| status::of_frame(method, error))?;
    Ok(HandlerOutcome::Done { headers: parts.headers, message, trailers })
}

/// An OK status is a trailer: in the headers it would mean that no message follows.
pub(crate) fn ok_trailers() -> HeaderMap {
    HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))])
}

pub(crate) fn response_of(mut headers: HeaderMap, body: Bytes, trailers: HeaderMap) -> http::Response<Body> {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.remove(header::CONTENT_LENGTH);
    let body = Full::new(body).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = http::Response::new(Body::new(body));
    *response.headers_mut() = headers;
    response
}
