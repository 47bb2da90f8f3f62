//! Sorts the calls that come in: joins, calls with a filter, and all others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body_util::{BodyExt, Limited};
use pathcall_auth::Certificate;
use pathcall_endpoint::map::Key;
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_server::{PeerServer, SERVICE_NAME};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service, ServiceExt};

use super::hosted::Hosted;
use super::peer::{PeerService, lacks};
use super::place::Places;
use super::services::Services;
use super::{Admission, Credentials, Inner};
use crate::assemble::Handled;
use crate::deadline::Deadline;
use crate::delegate::respond::respond;
use crate::message::frame;
use crate::names::REQUEST_BYTES_MAX;
use crate::request::{Answer, Request, Typed};
use crate::{assemble, headers, status};

/// Longest request of a query, bytes: as tonic's own limit.
const QUERY_BYTES_MAX: usize = 4 << 20;

/// Puts a [`Server`](super::Server) around the services of a tonic server.
#[derive(Debug, Clone)]
pub struct ServerLayer {
    inner: Arc<Inner>,
}

impl ServerLayer {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl<S: Services> Layer<S> for ServerLayer {
    type Service = Layered<S>;

    fn layer(&self, services: S) -> Layered<S> {
        let admission = Admission::by(services.clone());
        match (&self.inner.pool, &self.inner.places) {
            (Some(pool), None) => pool.start(services.clone()),
            (Some(pool), Some(places)) => {
                let (places, admission) = (Arc::clone(places), admission.clone());
                pool.start(Sited { places, admission, services: services.clone() });
            }
            (None, _) => {}
        }
        if let Some(handlers) = &self.inner.handlers {
            handlers.guard().add_layers(admission.clone());
        }
        let peer = PeerServer::new(PeerService { inner: Arc::clone(&self.inner), admission: admission.clone() });
        let peer = peer.max_decoding_message_size(REQUEST_BYTES_MAX);
        Layered { inner: Arc::clone(&self.inner), admission, peer, services }
    }
}

/// Services with a [`Server`](super::Server) around them.
#[derive(Debug, Clone)]
pub struct Layered<S> {
    inner: Arc<Inner>,
    admission: Admission,
    peer: PeerServer<PeerService>,
    services: S,
}

impl<S: Services> Service<http::Request<Body>> for Layered<S> {
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.services.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)).is_some_and(|m| m.starts_with('/')) {
            if let Err(status) = self.inner.guard.check(&mut request, Certificate::Optional) {
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
        // The one that was polled ready is used, its clone waits for the next call.
        let clone = self.services.clone();
        let mut services = std::mem::replace(&mut self.services, clone);
        if let Some(method) = self.inner.catalogue.method(path) {
            let part = match self.inner.part_of(method, request.headers_mut()) {
                Ok(part) => part,
                Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
            };
            let (inner, admission) = (Arc::clone(&self.inner), self.admission.clone());
            match part {
                Part::Handler => {}
                Part::Keys => {
                    return Box::pin(async move {
                        Ok(inner.all_keys(method, request, &admission).await.unwrap_or_else(Status::into_http))
                    });
                }
                Part::Query => {
                    // One that is polled ready may hold a permit, which the checks and the handler are to have.
                    drop(services);
                    let services = self.services.clone();
                    return Box::pin(async move {
                        match inner.query(method, request, &admission).await {
                            Ok(query) => query.reply(services).await,
                            Err(status) => Ok(status.into_http()),
                        }
                    });
                }
            }
        } else if self.inner.handlers.is_some() && self.inner.catalogue.is_delegated(path) {
            let (inner, admission) = (Arc::clone(&self.inner), self.admission.clone());
            return Box::pin(async move {
                Ok(inner.delegated(request, &admission).await.unwrap_or_else(Status::into_http))
            });
        }
        match self.inner.places.as_ref().filter(|places| places.has(request.uri().path())) {
            Some(places) => {
                Sited { places: Arc::clone(places), admission: self.admission.clone(), services }.call(request)
            }
            None => {
                let response = services.call(request);
                Box::pin(async move { Ok(response.await?.map(Body::new)) })
            }
        }
    }
}

/// What of a call with a filter comes as a request.
enum Part {
    /// What its handler is to see: the map has done its part.
    Handler,
    /// A query.
    Query,
    /// A question for all keys, which are to be cleared.
    Keys,
}

/// Services of a host whose accelerator takes part. Of the server it has no more than that: a pool, which the server has,
/// keeps it.
#[derive(Debug, Clone)]
struct Sited<S> {
    places: Arc<Places>,
    admission: Admission,
    services: S,
}

impl<S: Services> Service<http::Request<Body>> for Sited<S> {
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

/// A query that the map has answered.
struct Query {
    method: &'static Method,
    answer: Answer,
    /// The call of the handler, if it has to run.
    handler: Option<http::Request<Body>>,
}

impl Inner {
    /// What a request of a method with a filter is, as its metadata says: believed of who has joined.
    fn part_of(&self, method: &Method, headers: &mut HeaderMap) -> Result<Part, Status> {
        let hosted = self.hosted(method)?;
        let joined = hosted.sessions.take(headers);
        let (handler, query) = (headers.contains_key(headers::CALL), headers.contains_key(headers::QUERY));
        if !joined && (handler || query) {
            let what = "its caller has not joined, or is let go";
            return Err(Status::unavailable(format!("{} ({}): {what}", method.path, method.app)));
        }
        match method.kind {
            _ if handler => Ok(Part::Handler),
            Kind::Query if query => Ok(Part::Query),
            Kind::Clear if query && method.request.is_none() => Ok(Part::Keys),
            _ => Err(Status::failed_precondition(format!(
                "{} has the filter {}: call it through pathcall::Channel",
                method.path, method.app
            ))),
        }
    }

    fn hosted(&self, method: &Method) -> Result<&Arc<Hosted>, Status> {
        self.applications.get(method.app).ok_or_else(|| lacks(method.app))
    }

    /// Calls this server's own node for who does not speak Pathcall.
    async fn delegated(
        &self,
        request: http::Request<Body>,
        admission: &Admission,
    ) -> Result<http::Response<Body>, Status> {
        let Some(handlers) = &self.handlers else { return Err(Status::unimplemented("")) };
        let (parts, body) = request.into_parts();
        // What is known of the connection is known here only.
        admission.admit_to_layers(parts.uri.path(), Credentials::of_parts(&parts)).await?;
        // Before its message is read.
        handlers.guard().check(parts.headers.clone())?;
        let mut request = http::Request::from_parts(parts, body);
        handlers.guard().mark(request.headers_mut());
        let deadline = Deadline::of(request.headers());
        respond(handlers.node(), handlers.address(), &self.habits, request, deadline, |_| {}).await
    }

    /// Reads the map for a query.
    async fn query(
        &self,
        method: &'static Method,
        request: http::Request<Body>,
        admission: &Admission,
    ) -> Result<Query, Status> {
        let (parts, body) = request.into_parts();
        admission.admit(method.path, Credentials::of_parts(&parts)).await?;
        let body = Limited::new(body, QUERY_BYTES_MAX).collect().await.map_err(|error| {
            Status::out_of_range(format!("{}: a query of at most {QUERY_BYTES_MAX} bytes: {error}", method.path))
        })?;
        let message = frame::read(&parts.headers, &body.to_bytes(), frame::UNPACKED_MAX)
            .map_err(|error| status::of_frame(method, error))?;
        let request = Request::new(method, &message)?;
        let pairs = self.read(method, request.typed.map(Typed::into_keys)).await?;
        let handler = match request.handler {
            Some(message) => Some(assemble::handler_request(method, parts, &message)?),
            None => None,
        };
        Ok(Query { method, answer: Answer::Pairs(pairs), handler })
    }

    async fn all_keys(
        &self,
        method: &'static Method,
        request: http::Request<Body>,
        admission: &Admission,
    ) -> Result<http::Response<Body>, Status> {
        admission.admit(method.path, Credentials::of_parts(&request.into_parts().0)).await?;
        let pairs = self.read(method, None).await?;
        assemble::keys_reply(method, pairs.iter().map(|(key, _)| key))
    }

    /// The values of these keys, or of all.
    async fn read(&self, method: &Method, keys: Option<Vec<Key>>) -> Result<Vec<(Key, i64)>, Status> {
        let hosted = self.hosted(method)?;
        let names = &hosted.names;
        let keys = keys.map(|keys| (keys.iter().map(|key| names.short(key)).collect(), keys)).unzip();
        let (short, asked): (Option<Vec<Key>>, Option<Vec<Key>>) = keys;
        let values = hosted.serving().handle.query(short).await.map_err(|error| status::of_call(method, &error))?;
        Ok(match asked {
            Some(keys) => keys.into_iter().zip(values).map(|(key, (_, value))| (key, value)).collect(),
            None => values.into_iter().filter_map(|(key, value)| Some((names.long(key)?, value))).collect(),
        })
    }
}

impl Query {
    /// Runs the handler, if it has to, and puts the reply together.
    async fn reply<S: Services>(self, services: S) -> Result<http::Response<Body>, S::Error> {
        let handled = match self.handler {
            Some(request) => {
                let response = services.oneshot(request).await?.map(Body::new);
                Box::pin(Handled::by(self.method, response)).await.map(Some)
            }
            None => Ok(None),
        };
        let reply = handled.and_then(|handled| assemble::reply(self.method, handled, &self.answer));
        Ok(reply.unwrap_or_else(Status::into_http))
    }
}
