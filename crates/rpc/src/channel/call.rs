//! Path of a call with a filter: map operation, then handler, then reply.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use pathcall_endpoint::map::{Key, Operation, Output};
use pathcall_proto::manifest::{Kind, Method};
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::idempotent_call;
use super::session::{ChannelApplication, MapSession, SumCancelGuard};
use crate::assemble::HandlerOutcome;
use crate::deadline::Deadline;
use crate::message::frame::{self, FrameError};
use crate::message::keys;
use crate::request::{MapAnswer, MapWork, Request, TypedValues};
use crate::{assemble, headers, key_numbers, status};

impl Inner {
    /// Makes a call of a method with a filter. Parts that take long or are rare have boxed futures: this future is
    /// moved with each call.
    pub(super) async fn filtered(
        self: Arc<Self>,
        method: &Method,
        request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        self.counters.filtered.add();
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let message = frame::read(&parts.headers, &body, u32::MAX as usize).map_err(|error| {
            if error == FrameError::Compressed {
                self.counters.compressed.add();
            }
            status::of_frame(method, error)
        })?;
        let request = Request::new(method, &message)?;
        if let (Some(TypedValues::Pairs(pairs)), Some(field)) = (&request.typed, &method.request) {
            key_numbers::check(field.name, pairs)?;
        }
        let Some(application) = self.applications.get(method.app) else {
            let what = format!("{}: the manifest of generated code lacks {}", method.path, method.app);
            return Err(Status::internal(what));
        };
        if let Some(id) = idempotent_call::id_of(&parts.headers) {
            return Box::pin(self.with_id(method, application, &id, request, parts, deadline)).await;
        }
        if method.kind == Kind::Query {
            // The server reads the keys from the request itself.
            let session = application.session(method, &parts.headers, &self.transport).await?;
            application.check_loss(method, &session)?;
            mark(&mut parts.headers, headers::QUERY, &session, deadline);
            let body = Body::new(Full::new(body));
            return Box::pin(self.transport.call(http::Request::from_parts(parts, body))).await;
        }

        let session = application.admitted(method, &parts.headers, &self.transport).await?;
        application.check_loss(method, &session)?;
        let typed = match request.typed {
            Some(typed) => typed,
            None => TypedValues::Pairs(Box::pin(self.all_keys(method, &session, &parts, deadline)).await?),
        };
        let named = match (method.kind, &typed) {
            (Kind::Clear, TypedValues::Pairs(pairs)) => headers::decode_tokens(&parts.headers, pairs.len())?,
            _ => Vec::new(),
        };
        let mut work = MapWork::new(method, typed);
        work.attach_fencing_tokens(&named);
        let mut lock_guard = None;
        let output = match work.operation.take() {
            Some(mut operation) => {
                application.shorten(method, &session, &self.transport, &mut operation).await?;
                let locks = request.handler.as_ref().and_then(|_| locks_of(&operation));
                let guard = SumCancelGuard::new(&self, method, &session);
                let output = session.call(method, operation).await;
                guard.disarm();
                let output = output?;
                application.mark_server_state(method, &session);
                lock_guard = locks.and_then(|keys| LockReleaseGuard::new(&session, keys, &output));
                Some(output)
            }
            None => None,
        };
        let answer = work.answer(method, output);
        // NetRPC Table 2: `CntFwd` drops a message whose counter has not reached the threshold.
        let dropped = answer == MapAnswer::Counted { forwarded: false };
        let handled = match request.handler {
            Some(message) if !dropped => {
                Some(Box::pin(self.handler(method, &session, parts, &message, deadline)).await?)
            }
            _ => None,
        };
        if let Some(guard) = lock_guard {
            guard.disarm();
        }
        assemble::reply(method, handled, &answer)
    }
}

/// Keys that an operation locks.
fn locks_of(operation: &Operation) -> Option<Vec<Key>> {
    match operation {
        Operation::Count { keys, threshold: 1, .. } => Some(keys.clone()),
        _ => None,
    }
}

/// Guard of locks that were granted to a call whose handler still runs. If the caller drops the call, the guard
/// releases the locks.
struct LockReleaseGuard {
    session: Arc<MapSession>,
    release: Option<Operation>,
}

impl LockReleaseGuard {
    fn new(session: &Arc<MapSession>, keys: Vec<Key>, output: &Output) -> Option<Self> {
        let Output::Locked { tokens, .. } = output else { return None };
        let release = Some(Operation::Clear { keys, tokens: tokens.clone() });
        Some(Self { session: Arc::clone(session), release })
    }

    fn disarm(mut self) {
        self.release = None;
    }
}

impl Drop for LockReleaseGuard {
    fn drop(&mut self) {
        if let (Some(release), Ok(runtime)) = (self.release.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(Arc::clone(&self.session).release(release));
        }
    }
}

impl Inner {
    /// Makes a call with an id: its map operation, then its handler, unless they are done.
    async fn with_id(
        &self,
        method: &Method,
        application: &Arc<ChannelApplication>,
        id: &[u8],
        request: Request,
        parts: http::request::Parts,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let Some(call) = self.begin_with_id(method, application, id, &parts.headers)? else {
            self.counters.idempotent.add();
            return assemble::reply(method, None, &MapAnswer::Done);
        };
        let work = request.typed.map(|typed| MapWork::new(method, typed));
        call.apply_once(work.and_then(|work| work.operation), request.handler.is_some()).await?;
        self.counters.idempotent.add();
        let Some(message) = request.handler else { return assemble::reply(method, None, &MapAnswer::Done) };
        let session = application.session(method, &parts.headers, &self.transport).await?;
        let handled = self.handler(method, &session, parts.clone(), &message, deadline).await?;
        // A handler that failed sees the call again if the caller repeats it.
        if matches!(handled, HandlerOutcome::Done { .. }) {
            call.done()?;
        }
        assemble::reply(method, Some(handled), &MapAnswer::Done)
    }

    /// Calls the handler with the rest of the message.
    async fn handler(
        &self,
        method: &Method,
        session: &MapSession,
        mut parts: http::request::Parts,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<HandlerOutcome, Status> {
        self.counters.handler.add();
        mark(&mut parts.headers, headers::CALL, session, deadline);
        let response = self.transport.call(assemble::handler_request(method, parts, message)?).await?;
        HandlerOutcome::read(method, response).await
    }

    /// Reads all keys of the map, for a method that clears it and has no field for keys.
    async fn all_keys(
        &self,
        method: &Method,
        session: &MapSession,
        parts: &http::request::Parts,
        deadline: Deadline,
    ) -> Result<Vec<(Key, i64)>, Status> {
        let mut parts = parts.clone();
        mark(&mut parts.headers, headers::QUERY, session, deadline);
        let request = assemble::handler_request(method, parts, &[])?;
        let message = assemble::message_of(method, self.transport.call(request).await?).await?;
        let keys = keys::read(&message)
            .map_err(|error| Status::internal(format!("{}: cannot read the keys to clear: {error}", method.path)))?;
        Ok(keys.into_iter().map(|key| (key, 0)).collect())
    }
}

/// Adds the headers that identify call, session and deadline to the server's layer.
fn mark(headers: &mut HeaderMap, name: HeaderName, session: &MapSession, deadline: Deadline) {
    headers.insert(name, HeaderValue::from_static("1"));
    session.prove(headers);
    deadline.write_to(headers);
}
