//! Dispatch of incoming calls: joins, calls with a filter, and all others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use pathcall_auth::CertificatePolicy;
use pathcall_endpoint::map::{Key, Operation, Output};
use pathcall_proto::manifest::{Delegated, FilterStreams, ForwardTarget, Kind, Method};
use pathcall_proto::v1::peer_server::{PeerServer, SERVICE_NAME};
use tonic::Status;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::owned_application::OwnedApplication;
use super::peer_service::{PeerService, unknown_application};
use super::place::PlacedMethods;
use super::{Admission, CallerCredentials, Inner, Layer, plain};
use crate::assemble::HandlerOutcome;
use crate::deadline::Deadline;
use crate::delegate::respond::respond;
use crate::headers::SumPlace;
use crate::key_numbers::{self, REQUEST_BYTES_MAX};
use crate::message::body::read_request;
use crate::message::frame;
use crate::message::typed::TypedValues;
use crate::request::{DIRECT_BYTES_MAX, MapAnswer, MapWork, Request};
use crate::{assemble, headers, status};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// gRPC services: tonic's `Routes`, or layers around them. Implemented for every HTTP service that can be cloned for
/// each request.
pub trait Services:
    Service<http::Request<Body>, Response = http::Response<Self::Reply>, Future: Send, Error: Send + Into<BoxError>>
    + Clone
    + Send
    + 'static
{
    /// Body type of its responses.
    type Reply: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> Services for S
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Future: Send, Error: Send + Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Reply = B;
}

impl<S: Services> tower::Layer<S> for Layer {
    type Service = LayerService<S>;

    fn layer(&self, services: S) -> LayerService<S> {
        let admission = Admission::by(services.clone()).with_streams(self.inner.catalogue.streamed());
        match (&self.inner.pool, &self.inner.places) {
            (Some(pool), None) => pool.start(services.clone()),
            (Some(pool), Some(places)) => {
                let (places, admission) = (Arc::clone(places), admission.clone());
                pool.start(PlacedServices { places, admission, services: services.clone() });
            }
            (None, _) => {}
        }
        if let Some(handlers) = &self.inner.handlers {
            handlers.guard().add_layers(admission.clone());
        }
        let peer = PeerServer::new(PeerService { inner: Arc::clone(&self.inner), admission: admission.clone() });
        let peer = peer.max_decoding_message_size(REQUEST_BYTES_MAX);
        LayerService { inner: Arc::clone(&self.inner), admission, peer, services }
    }
}

/// Services with a [`Layer`](super::Layer) around them.
#[derive(Debug, Clone)]
pub struct LayerService<S> {
    inner: Arc<Inner>,
    admission: Admission,
    peer: PeerServer<PeerService>,
    services: S,
}

impl<S: Services> Service<http::Request<Body>> for LayerService<S> {
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.services.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)).is_some_and(|m| m.starts_with('/')) {
            if let Err(status) = self.inner.guard.check(&mut request, CertificatePolicy::Optional) {
                return Box::pin(async move { Ok(status.into_http()) });
            }
            let joined = self.peer.call(request);
            return Box::pin(async move {
                match joined.await {
                    Ok(response) => Ok(response),
                    Err(never) => match never {},
                }
            });
        }
        // Use the instance that was polled ready; its clone waits for the next call.
        let clone = self.services.clone();
        let mut services = std::mem::replace(&mut self.services, clone);
        if let Some(method) = self.inner.catalogue.method(path) {
            let part = match self.inner.classify(method, request.headers_mut()) {
                Ok(part) => part,
                Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
            };
            let (inner, admission) = (Arc::clone(&self.inner), self.admission.clone());
            match part {
                FilteredRequest::Handler => {}
                FilteredRequest::Sum(place) => {
                    return Box::pin(async move {
                        Ok(inner.handled_sum(method, place, request, services).await.unwrap_or_else(Status::into_http))
                    });
                }
                FilteredRequest::Keys => {
                    return Box::pin(async move {
                        Ok(inner.all_keys(method, request, &admission).await.unwrap_or_else(Status::into_http))
                    });
                }
                FilteredRequest::Direct | FilteredRequest::Plain => {
                    // An instance that was polled ready may hold a permit, which checks and handler need.
                    drop(services);
                    let services = self.services.clone();
                    if method.streams != FilterStreams::Unary {
                        let call = inner.streamed(method, request, admission, (part, services));
                        return Box::pin(async move { Ok(call.await.unwrap_or_else(Status::into_http)) });
                    }
                    return Box::pin(async move {
                        match inner.whole(method, request, &admission, part).await {
                            Ok(call) => call.reply(services).await,
                            Err(status) => Ok(status.into_http()),
                        }
                    });
                }
            }
        } else if let Some(method) = self.inner.catalogue.delegated(path).filter(|_| self.inner.handlers.is_some()) {
            let (inner, admission) = (Arc::clone(&self.inner), self.admission.clone());
            return Box::pin(async move {
                Ok(inner.delegated(method, request, &admission).await.unwrap_or_else(Status::into_http))
            });
        }
        match self.inner.places.as_ref().filter(|places| places.has(request.uri().path())) {
            Some(places) => {
                PlacedServices { places: Arc::clone(places), admission: self.admission.clone(), services }.call(request)
            }
            None => {
                let response = services.call(request);
                Box::pin(async move { Ok(response.await?.map(Body::new)) })
            }
        }
    }
}

/// Kind of request of a method with a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilteredRequest {
    /// Call of the handler: the map operation is done.
    Handler,
    /// Request of a worker for a sum that the handler gets.
    Sum(SumPlace),
    /// Direct call of a channel.
    Direct,
    /// Call of a plain gRPC client.
    Plain,
    /// Query for all keys, which will be cleared.
    Keys,
}

/// Services of a host with an accelerator. It has no reference to the rest of the layer, because a pool, which the
/// layer owns, keeps it.
#[derive(Debug, Clone)]
struct PlacedServices<S> {
    places: Arc<PlacedMethods>,
    admission: Admission,
    services: S,
}

impl<S: Services> Service<http::Request<Body>> for PlacedServices<S> {
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.services.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (places, services) = (Arc::clone(&self.places), self.services.clone());
        let admission = self.admission.clone();
        Box::pin(async move { places.call(services, &admission, request).await })
    }
}

/// Call that the layer executes as a whole, with its answer from the map.
struct AnsweredCall {
    method: &'static Method,
    answer: MapAnswer,
    /// Call of the handler, if it has to run.
    handler: Option<http::Request<Body>>,
}

impl Inner {
    /// Kind of a request of a method with a filter, from its metadata, which only callers with a session may set.
    fn classify(&self, method: &Method, headers: &mut HeaderMap) -> Result<FilteredRequest, Status> {
        let owned = self.owned(method)?;
        let joined = owned.sessions.take(headers);
        let (handler, direct) = (headers.contains_key(headers::CALL), headers.contains_key(headers::DIRECT));
        if !joined && (handler || direct) {
            let what = "its caller has not joined, or its membership has ended";
            return Err(Status::unavailable(format!("{} ({}): {what}", method.path, method.app)));
        }
        match method.kind {
            Kind::Sum { .. } if handler && method.to == ForwardTarget::Server => {
                let what = || Status::invalid_argument(format!("{}: the request does not name its sum", method.path));
                SumPlace::of(headers).map(FilteredRequest::Sum).ok_or_else(what)
            }
            _ if handler => Ok(FilteredRequest::Handler),
            Kind::Query | Kind::Modify | Kind::Add { .. } if direct => Ok(FilteredRequest::Direct),
            Kind::Clear if direct && method.request.is_none() => Ok(FilteredRequest::Keys),
            _ => plain::check(method, &owned.application).map(|()| FilteredRequest::Plain),
        }
    }

    pub(super) fn owned(&self, method: &Method) -> Result<&Arc<OwnedApplication>, Status> {
        self.applications.get(method.app).ok_or_else(|| unknown_application(method.app))
    }

    /// Calls this server's own node for a caller without Pathcall.
    async fn delegated(
        &self,
        method: &'static Delegated,
        request: http::Request<Body>,
        admission: &Admission,
    ) -> Result<http::Response<Body>, Status> {
        let Some(handlers) = &self.handlers else { return Err(Status::unimplemented("")) };
        let (parts, body) = request.into_parts();
        // The properties of the connection are known only here.
        admission.admit_to_layers(parts.uri.path(), CallerCredentials::of_parts(&parts)).await?;
        // Before the message is read.
        handlers.guard().check(parts.headers.clone())?;
        let mut request = http::Request::from_parts(parts, body);
        handlers.guard().mark(request.headers_mut());
        let (deadline, node) = (Deadline::of(request.headers()), (handlers.node(), handlers.address()));
        respond(method, node, &self.defaults, request, deadline, |_| {}).await
    }

    /// Executes the map operation of a direct call, or of a call of a plain gRPC client.
    async fn whole(
        &self,
        method: &'static Method,
        request: http::Request<Body>,
        admission: &Admission,
        kind: FilteredRequest,
    ) -> Result<AnsweredCall, Status> {
        let (parts, body) = request.into_parts();
        if kind == FilteredRequest::Plain {
            self.check_plain_caller(method, &parts)?;
        }
        admission.admit(method.path, CallerCredentials::of_parts(&parts)).await?;
        let body = read_request(method.path, body, DIRECT_BYTES_MAX).await?;
        let message =
            frame::read(&parts.headers, &body, frame::UNPACKED_MAX).map_err(|error| status::of_frame(method, error))?;
        self.owned(method)?.count_whole(message.len(), kind == FilteredRequest::Plain);
        let request = Request::new(method, &message)?;
        let answer = self.operate(method, request.typed).await?;
        // NetRPC Table 2: `CntFwd` drops a message whose counter has not reached the threshold.
        let handler = match request.handler.filter(|_| answer.forwarded != Some(false)) {
            Some(message) => Some(assemble::handler_request(method, parts, &message)?),
            None => None,
        };
        Ok(AnsweredCall { method, answer, handler })
    }

    /// Makes the map operation of a message.
    pub(super) async fn operate(&self, method: &Method, typed: Option<TypedValues>) -> Result<MapAnswer, Status> {
        match method.kind {
            Kind::Add { .. } => self.add(method, typed).await,
            Kind::Query => {
                let pairs = self.read(method, typed.map(TypedValues::into_keys)).await?;
                Ok(MapAnswer::of(TypedValues::Pairs(pairs)))
            }
            Kind::Modify => Ok(MapAnswer::EMPTY),
            _ => self.count_or_clear(method, typed).await,
        }
    }

    /// Adds the values to the map, all or none.
    async fn add(&self, method: &Method, typed: Option<TypedValues>) -> Result<MapAnswer, Status> {
        let mut work = MapWork::new(method, typed.unwrap_or(TypedValues::EMPTY));
        let Some(Operation::Add { mut pairs, modify, get, .. }) = work.operation.take() else {
            return Ok(work.answer(method, None));
        };
        if let Some(field) = &method.request {
            key_numbers::check(field.name, &pairs)?;
        }
        let owned = self.owned(method)?;
        owned.key_numbers.shorten(method.app, plain::keys_of(&mut pairs))?;
        let added = owned.ensure_active().handle.add(&pairs, modify, get).await;
        let values = added.map_err(|error| status::of_call(method, &error))?;
        Ok(work.answer(method, get.then_some(Output::Values(values))))
    }

    async fn all_keys(
        &self,
        method: &'static Method,
        request: http::Request<Body>,
        admission: &Admission,
    ) -> Result<http::Response<Body>, Status> {
        admission.admit(method.path, CallerCredentials::of_parts(&request.into_parts().0)).await?;
        let pairs = self.read(method, None).await?;
        assemble::keys_reply(method, pairs.iter().map(|(key, _)| key))
    }

    /// Values of these keys, or of all.
    pub(super) async fn read(&self, method: &Method, keys: Option<Vec<Key>>) -> Result<Vec<(Key, i64)>, Status> {
        let owned = self.owned(method)?;
        let names = &owned.key_numbers;
        let keys = keys.map(|keys| (keys.iter().map(|key| names.short(key)).collect(), keys)).unzip();
        let (short, asked): (Option<Vec<Key>>, Option<Vec<Key>>) = keys;
        let values =
            owned.ensure_active().handle.query(short).await.map_err(|error| status::of_call(method, &error))?;
        Ok(match asked {
            Some(keys) => keys.into_iter().zip(values).map(|(key, (_, value))| (key, value)).collect(),
            None => values.into_iter().filter_map(|(key, value)| Some((names.long(key)?, value))).collect(),
        })
    }
}

impl AnsweredCall {
    /// Runs the handler, if necessary, and builds the reply.
    async fn reply<S: Services>(self, services: S) -> Result<http::Response<Body>, S::Error> {
        let handled = match self.handler {
            Some(request) => {
                let response = services.oneshot(request).await?.map(Body::new);
                Box::pin(HandlerOutcome::read(self.method, response)).await.map(Some)
            }
            None => Ok(None),
        };
        let reply = handled.and_then(|handled| assemble::reply(self.method, handled, &self.answer));
        Ok(reply.unwrap_or_else(Status::into_http))
    }
}
