//! Sums for the server's handler (NetRPC Table 2: parameter server). The handler runs once for the calls of all workers.
//!
//! ```text
//! worker ── frames ──► sum ──────────────────────┐
//! worker ── request, without the array ──────────┴► first request, with the sum ─► handler
//! all workers ◄── frames ── array of the reply ◄────────────────────────────────────┘
//! all workers ◄── replies to the requests, without the array ◄──────────────────────┘
//! ```
//!
//! If an array has more chunks than the application has rows, the replies to the requests have the array, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use pathcall_driver::server::HandledSum;
use pathcall_endpoint::map::Lanes;
use pathcall_proto::manifest::Method;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt;

use super::owned_application::OwnedApplication;
use super::{Inner, Services};
use crate::assemble::{self, HandlerOutcome};
use crate::headers::{self, SumPlace};
use crate::message::body::read_request;
use crate::message::fields::split;
use crate::message::typed::{TypedError, TypedFieldReader, TypedValues};
use crate::message::{frame, reply};
use crate::request::DIRECT_BYTES_MAX;
use crate::status;

/// Maximum number of calls whose outcomes are kept for late requests.
const CALLS_MAX: usize = 1024;

/// Calls of the handler of one application, by the first chunk of their arrays.
#[derive(Debug, Default)]
pub(super) struct HandledSums(Mutex<HandledCalls>);

#[derive(Debug, Default)]
struct HandledCalls {
    calls: BTreeMap<u64, HandledCall>,
    /// Calls with an earlier first chunk are forgotten.
    oldest: u64,
}

/// Call of the handler.
#[derive(Debug)]
struct HandledCall {
    /// Number of lanes of the arrays.
    lanes: usize,
    reply: Arc<watch::Sender<Option<HandledReply>>>,
}

/// Response of the handler for one request of several.
#[derive(Debug, Clone)]
struct HandledReply {
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// Reply that a worker waits for, and, for the first worker of a call, the sender of it.
type JoinedSum = (watch::Receiver<Option<HandledReply>>, Option<Arc<watch::Sender<Option<HandledReply>>>>);

/// Outcome of the handler: its response, and the result of the sum.
type Outcome = (HandledReply, Option<Lanes>);

impl HandledSums {
    /// Adds the request of a worker; the first request of a call gets the sender of its reply.
    fn join(&self, method: &Method, SumPlace { first, lanes }: SumPlace) -> Result<JoinedSum, Status> {
        // Held briefly, by code that does not panic.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Method { path, app, .. } = method;
        if first < all.oldest {
            return Err(Status::aborted(format!("{path} ({app}): the reply to a call this old is not kept")));
        }
        if let Some(call) = all.calls.get(&first) {
            if call.lanes != lanes {
                let what = format!("{path} ({app}): a worker has {lanes} values, another one {}", call.lanes);
                return Err(Status::aborted(what));
            }
            return Ok((call.reply.subscribe(), None));
        }
        if all.calls.len() >= CALLS_MAX
            && let Some((oldest, _)) = all.calls.pop_first()
        {
            all.oldest = all.oldest.max(oldest + 1);
        }
        let (sender, reply) = watch::channel(None);
        let sender = Arc::new(sender);
        all.calls.insert(first, HandledCall { lanes, reply: Arc::clone(&sender) });
        Ok((reply, Some(sender)))
    }
}

impl Inner {
    /// Answers one worker's request for a sum that the handler gets.
    pub(super) async fn handled_sum<S: Services>(
        self: Arc<Self>,
        method: &'static Method,
        place: SumPlace,
        request: http::Request<Body>,
        services: S,
    ) -> Result<http::Response<Body>, Status> {
        let owned = Arc::clone(self.owned(method)?);
        // The first worker whose request is here may leave, but the others need the outcome.
        let (parts, body) = request.into_parts();
        let request = http::Request::from_parts(parts, read_request(method.path, body, DIRECT_BYTES_MAX).await?);
        let (mut reply, sender) = owned.handled.join(method, place)?;
        if let Some(sender) = sender {
            tokio::spawn(async move {
                let handled = handle(&owned, method, place, request, services).await;
                sender.send_replace(Some(handled.unwrap_or_else(|status| HandledReply::of_status(&status))));
            });
        }
        let reply = reply.wait_for(Option::is_some).await.map(|reply| reply.clone());
        let ended = || Status::internal(format!("{}: the handler's task has ended", method.path));
        Ok(reply.ok().flatten().ok_or_else(ended)?.into_response())
    }
}

/// Waits for the sum, passes it to the handler, and gives all workers the result.
async fn handle<S: Services>(
    owned: &OwnedApplication,
    method: &'static Method,
    place: SumPlace,
    request: http::Request<Bytes>,
    services: S,
) -> Result<HandledReply, Status> {
    let active = owned.ensure_active();
    let chunks = place.lanes.div_ceil(usize::from(active.width.max(1)));
    let sum = active.handle.handled_sum(place.first, chunks).await;
    let sum = sum.map_err(|error| status::of_call(method, &error))?;
    let outcome = run(method, &sum, request, services).await;
    // The rounds end even if the handler fails: each worker has the error from its request.
    let result = outcome.as_ref().ok().and_then(|(_, result)| result.as_ref());
    active.handle.answer_sum(&sum, result);
    outcome.map(|(reply, _)| reply)
}

/// Calls the handler with the fields of a worker's request, and with the sum.
async fn run<S: Services>(
    method: &'static Method,
    sum: &HandledSum,
    request: http::Request<Bytes>,
    services: S,
) -> Result<Outcome, Status> {
    let path = method.path;
    let (Some(added), Some(got)) = (&method.request, &method.reply) else {
        return Err(Status::internal(format!("{path}: the filter of a sum names two fields")));
    };
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(headers::SUM);
    let rest =
        frame::read(&parts.headers, &body, frame::UNPACKED_MAX).map_err(|error| status::of_frame(method, error))?;
    let mut message = rest.to_vec();
    reply::append(&mut message, added.path, added.shape, method.precision, &TypedValues::Lanes(sum.sums.clone()))
        .map_err(|error| status::of_reply(added.name, &error))?;
    let request = assemble::handler_request(method, parts, &message)?;
    let response = services.oneshot(request).await.map_err(|error| Status::from_error(error.into()))?.map(Body::new);
    let (headers, message, trailers) = match HandlerOutcome::read(method, response).await? {
        HandlerOutcome::Failed(response) => return Ok((HandledReply::of_response(response).await?, None)),
        HandlerOutcome::Done { headers, message, trailers } => (headers, message, trailers),
    };
    let mut reader = TypedFieldReader::new(got.shape, method.precision);
    let mut body = frame::begin();
    split::<TypedError>(&message, got.path, &mut body, &mut |part| reader.part(part)).map_err(|error| {
        Status::internal(format!("{path}: cannot read {} of the handler's reply: {error}", got.name))
    })?;
    let result = reader.into_values().into_lanes();
    if result.len() != sum.sums.len() {
        let (wants, has) = (sum.sums.len(), result.len());
        let what = format!("{path}: {} of the handler's reply has {has} values, but the sum has {wants}", got.name);
        return Err(Status::internal(what));
    }
    let mut headers = headers;
    if !sum.awaits_result() {
        headers.insert(headers::SUM_IN_REPLY, HeaderValue::from_static("1"));
        body = frame::begin();
        body.extend_from_slice(&message);
    }
    let body = frame::close(body).map_err(|error| status::of_frame(method, error))?;
    Ok((HandledReply { headers, body, trailers }, Some(result)))
}

impl HandledReply {
    fn of_status(status: &Status) -> Self {
        let mut headers = HeaderMap::new();
        // A status whose message is no header value keeps its code.
        if status.add_header(&mut headers).is_err() {
            headers.insert(assemble::GRPC_STATUS, HeaderValue::from(status.code() as i32));
        }
        Self { headers, body: Bytes::new(), trailers: HeaderMap::new() }
    }

    async fn of_response(response: http::Response<Body>) -> Result<Self, Status> {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Ok(Self { headers: parts.headers, body: collected.to_bytes(), trailers })
    }

    fn into_response(self) -> http::Response<Body> {
        if self.headers.contains_key(assemble::GRPC_STATUS) {
            let mut response = http::Response::new(Body::empty());
            *response.headers_mut() = self.headers;
            response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            return response;
        }
        assemble::response_of(self.headers, self.body, self.trailers)
    }
}
