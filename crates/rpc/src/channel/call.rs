//! Takes a call of a method with a filter through: the map first, then the handler, then the reply.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use pathcall_endpoint::map::{Key, Operation, Output};
use pathcall_proto::manifest::{Kind, Method};
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::named;
use super::session::{GiveUpGuard, Session, Slot};
use crate::assemble::Handled;
use crate::deadline::Deadline;
use crate::message::frame::{self, FrameError};
use crate::message::keys;
use crate::request::{Answer, Request, Typed, Work};
use crate::{assemble, headers, names, status};

impl Inner {
    /// What takes long, or happens once in a while, waits in a future of its own: this one is moved with each call.
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
        if let (Some(Typed::Pairs(pairs)), Some(field)) = (&request.typed, &method.request) {
            names::check(field.name, pairs)?;
        }
        let Some(slot) = self.slots.get(method.app) else {
            return Err(Status::internal(format!("{}: its manifest lacks {}", method.path, method.app)));
        };
        if let Some(id) = named::id_of(&parts.headers) {
            return Box::pin(self.with_id(method, slot, &id, request, parts, deadline)).await;
        }
        if method.kind == Kind::Query {
            // Its request is looked at itself.
            let session = slot.session(method, &parts.headers, &self.transport).await?;
            slot.check_loss(method, &session)?;
            mark(&mut parts.headers, headers::QUERY, &session, deadline);
            let body = Body::new(Full::new(body));
            return Box::pin(self.transport.call(http::Request::from_parts(parts, body))).await;
        }

        let session = slot.admitted(method, &parts.headers, &self.transport).await?;
        slot.check_loss(method, &session)?;
        let typed = match request.typed {
            Some(typed) => typed,
            None => Typed::Pairs(Box::pin(self.all_keys(method, &session, &parts, deadline)).await?),
        };
        let named = match (method.kind, &typed) {
            (Kind::Clear, Typed::Pairs(pairs)) => headers::tokens(&parts.headers, pairs.len())?,
            _ => Vec::new(),
        };
        let mut work = Work::new(method, typed);
        work.name_grants(&named);
        let mut unsaid = None;
        let output = match work.operation.take() {
            Some(mut operation) => {
                slot.shorten(method, &session, &self.transport, &mut operation).await?;
                let locks = request.handler.as_ref().and_then(|_| locks_of(&operation));
                let guard = GiveUpGuard::new(&self, method, &session);
                let output = session.call(method, operation).await;
                guard.disarm();
                let output = output?;
                slot.invest(method, &session);
                unsaid = locks.and_then(|keys| Unsaid::new(&session, keys, &output));
                Some(output)
            }
            None => None,
        };
        let answer = work.answer(method, output);
        // NetRPC Table 2: `CntFwd` drops a message whose counter has not reached the threshold.
        let dropped = answer == Answer::Counted { forwarded: false };
        let handled = match request.handler {
            Some(message) if !dropped => {
                Some(Box::pin(self.handler(method, &session, parts, &message, deadline)).await?)
            }
            _ => None,
        };
        if let Some(unsaid) = unsaid {
            unsaid.said();
        }
        assemble::reply(method, handled, &answer)
    }
}

/// The locks that an operation takes.
fn locks_of(operation: &Operation) -> Option<Vec<Key>> {
    match operation {
        Operation::Count { keys, threshold: 1, .. } => Some(keys.clone()),
        _ => None,
    }
}

/// Locks that a call was granted, and whose caller does not know yet, as the handler is at work: if it never does, they
/// are given back.
struct Unsaid {
    session: Arc<Session>,
    release: Option<Operation>,
}

impl Unsaid {
    fn new(session: &Arc<Session>, keys: Vec<Key>, output: &Output) -> Option<Self> {
        let Output::Locked { tokens, .. } = output else { return None };
        let release = Some(Operation::Clear { keys, tokens: tokens.clone() });
        Some(Self { session: Arc::clone(session), release })
    }

    fn said(mut self) {
        self.release = None;
    }
}

impl Drop for Unsaid {
    fn drop(&mut self) {
        if let (Some(release), Ok(runtime)) = (self.release.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(Arc::clone(&self.session).release(release));
        }
    }
}

impl Inner {
    /// A call with an id: its part in the map, and its handler behind that, unless they are done.
    async fn with_id(
        &self,
        method: &Method,
        slot: &Arc<Slot>,
        id: &[u8],
        request: Request,
        parts: http::request::Parts,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        let Some(named) = self.named(method, slot, id, &parts.headers)? else {
            self.counters.named.add();
            return assemble::reply(method, None, &Answer::Done);
        };
        let work = request.typed.map(|typed| Work::new(method, typed));
        named.take_effect(work.and_then(|work| work.operation), request.handler.is_some()).await?;
        self.counters.named.add();
        let Some(message) = request.handler else { return assemble::reply(method, None, &Answer::Done) };
        let session = slot.session(method, &parts.headers, &self.transport).await?;
        let handled = self.handler(method, &session, parts.clone(), &message, deadline).await?;
        // One that has failed sees it again, if the caller makes it again.
        if matches!(handled, Handled::Done { .. }) {
            named.done()?;
        }
        assemble::reply(method, Some(handled), &Answer::Done)
    }

    /// Has the handler see the rest of a call.
    async fn handler(
        &self,
        method: &Method,
        session: &Session,
        mut parts: http::request::Parts,
        message: &[u8],
        deadline: Deadline,
    ) -> Result<Handled, Status> {
        self.counters.handler.add();
        mark(&mut parts.headers, headers::CALL, session, deadline);
        let response = self.transport.call(assemble::handler_request(method, parts, message)?).await?;
        Handled::by(method, response).await
    }

    /// The keys of the map, for a method that clears it and has no field to name them.
    async fn all_keys(
        &self,
        method: &Method,
        session: &Session,
        parts: &http::request::Parts,
        deadline: Deadline,
    ) -> Result<Vec<(Key, i64)>, Status> {
        let mut parts = parts.clone();
        mark(&mut parts.headers, headers::QUERY, session, deadline);
        let request = assemble::handler_request(method, parts, &[])?;
        let message = assemble::message_of(method, self.transport.call(request).await?).await?;
        let keys = keys::read(&message)
            .map_err(|error| Status::internal(format!("{}: the keys to clear: {error}", method.path)))?;
        Ok(keys.into_iter().map(|key| (key, 0)).collect())
    }
}

/// Tells the server's layer what the call is, by whom, and how much time is left for it.
fn mark(headers: &mut HeaderMap, name: HeaderName, session: &Session, deadline: Deadline) {
    headers.insert(name, HeaderValue::from_static("1"));
    session.prove(headers);
    deadline.put(headers);
}
