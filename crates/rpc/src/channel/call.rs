//! Path of a call with a filter: map operation, then handler, then reply.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use pathcall_endpoint::map::{Key, Operation};
use pathcall_proto::manifest::{ForwardTarget, Kind, Method};
use pathcall_proto::v1::NumberKeysRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::idempotent_call;
use super::paths::{CallPath, PathChoice};
use super::session::{ChannelApplication, LockReleaseGuard, MapSession, SumCancelGuard};
use super::transport::Transport;
use crate::assemble::HandlerOutcome;
use crate::deadline::Deadline;
use crate::key_numbers::REQUEST_KEYS_BYTES;
use crate::message::frame::{self, FrameError};
use crate::message::keys;
use crate::message::typed::TypedValues;
use crate::request::{MapAnswer, MapWork, Request};
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
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let message = frame::read(&parts.headers, &body, u32::MAX as usize).map_err(|error| {
            if error == FrameError::Compressed {
                self.counters.compressed.add();
            }
            status::of_frame(method, error)
        })?;
        let Some(application) = self.applications.get(method.app) else {
            let what = format!("{}: the manifest of generated code lacks {}", method.path, method.app);
            return Err(Status::internal(what));
        };
        let id = idempotent_call::id_of(&parts.headers);
        // The server limits a direct call both as received and decompressed.
        let len = body.len().max(frame::HEADER_LEN + message.len());
        let choice = application.choose_path(method, &message, len, id.is_some());
        if choice.path == CallPath::Direct {
            return Box::pin(self.direct(method, application, choice, parts, body, deadline)).await;
        }
        let request = Request::new(method, &message)?;
        if let (Some(TypedValues::Pairs(pairs)), Some(field)) = (&request.typed, &method.request) {
            key_numbers::check(field.name, pairs)?;
        }
        if let Some(id) = id {
            return Box::pin(self.with_id(method, application, &id, request, parts, deadline)).await;
        }
        let session = application.admitted(method, &parts.headers, &self.transport).await?;
        application.check_continuity(method, &session)?;
        let began = Instant::now();
        let typed = match request.typed {
            Some(typed) => typed,
            None => TypedValues::Pairs(Box::pin(self.all_keys(method, &session, &parts.headers, deadline)).await?),
        };
        let named = match method.kind {
            Kind::Clear => headers::decode_tokens(&parts.headers, typed.len())?,
            _ => Vec::new(),
        };
        let (gradient, typed) = match typed {
            TypedValues::Floats(values) => (Some(values), TypedValues::EMPTY),
            typed => (None, typed),
        };
        let lanes = typed.len();
        let mut work = MapWork::new(method, typed);
        let is_handled = matches!(method.kind, Kind::Sum { .. }) && method.to == ForwardTarget::Server;
        if let Some(operation) = work.operation.take_if(|_| is_handled) {
            let rest = (parts, request.handler.unwrap_or_default());
            let place = (&**application, &session);
            return Box::pin(self.handled_sum(method, place, (operation, lanes), rest, deadline)).await;
        }
        work.attach_fencing_tokens(&named);
        let mut lock_guard = None;
        let output = match work.operation.take() {
            Some(mut operation) => {
                application.shorten(method, &session, &self.transport, &mut operation).await?;
                let locks = match &operation {
                    Operation::Count { keys, threshold: 1, .. } if request.handler.is_some() => Some(keys.clone()),
                    _ => None,
                };
                let guard = SumCancelGuard::new(&self, method, &session);
                let output = session.call(method, operation, |_| {}).await;
                guard.disarm();
                let output = output?;
                application.mark_server_state(method, &session);
                lock_guard = locks.and_then(|keys| LockReleaseGuard::new(&session, keys, &output));
                Some(output)
            }
            None => None,
        };
        let answer = match gradient {
            Some(values) => MapAnswer::of(Box::pin(self.sum_gradient(method, &session, &parts.headers, values)).await?),
            None => work.answer(method, output),
        };
        // NetRPC Table 2: `CntFwd` drops a message whose counter has not reached the threshold.
        let dropped = answer.forwarded == Some(false);
        let handled = match request.handler {
            Some(message) if !dropped => {
                Some(Box::pin(self.handler(method, &session, parts, &message, deadline)).await?)
            }
            _ => None,
        };
        if let Some(guard) = lock_guard {
            guard.disarm();
        }
        application.record_time(method, choice, began);
        assemble::reply(method, handled, &answer)
    }

    /// Makes a direct call: the server's layer reads the message and executes its map operation.
    async fn direct(
        &self,
        method: &Method,
        application: &Arc<ChannelApplication>,
        choice: PathChoice,
        mut parts: http::request::Parts,
        body: Bytes,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        self.counters.direct.add();
        let session = application.session(method, &parts.headers, &self.transport).await?;
        session.continued().await;
        application.check_continuity(method, &session)?;
        mark(&mut parts.headers, headers::DIRECT, &session, deadline);
        let began = Instant::now();
        let request = http::Request::from_parts(parts, Body::new(Full::new(body)));
        let response = self.transport.call(request).await?;
        // A response that begins with a status is an error.
        if !response.headers().contains_key(assemble::GRPC_STATUS) {
            application.mark_server_state(method, &session);
            application.record_time(method, choice, began);
        }
        Ok(response)
    }

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
            return assemble::reply(method, None, &MapAnswer::EMPTY);
        };
        let work = request.typed.map(|typed| MapWork::new(method, typed));
        call.apply_once(work.and_then(|work| work.operation), request.handler.is_some()).await?;
        self.counters.idempotent.add();
        let Some(message) = request.handler else { return assemble::reply(method, None, &MapAnswer::EMPTY) };
        let session = application.session(method, &parts.headers, &self.transport).await?;
        let handled = self.handler(method, &session, parts.clone(), &message, deadline).await?;
        // A handler that failed sees the call again if the caller repeats it.
        if matches!(handled, HandlerOutcome::Done { .. }) {
            call.done()?;
        }
        assemble::reply(method, Some(handled), &MapAnswer::EMPTY)
    }

    /// Calls the handler with the rest of the message.
    pub(super) async fn handler(
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
    pub(super) async fn all_keys(
        &self,
        method: &Method,
        session: &MapSession,
        headers: &HeaderMap,
        deadline: Deadline,
    ) -> Result<Vec<(Key, i64)>, Status> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        (parts.method, parts.version) = (http::Method::POST, http::Version::HTTP_2);
        parts.uri = http::Uri::from_static(method.path);
        parts.headers = headers.clone();
        mark(&mut parts.headers, headers::DIRECT, session, deadline);
        let request = assemble::handler_request(method, parts, &[])?;
        let message = assemble::message_of(method, self.transport.call(request).await?).await?;
        let keys = keys::read(&message)
            .map_err(|error| Status::internal(format!("{}: cannot read the keys to clear: {error}", method.path)))?;
        Ok(keys.into_iter().map(|key| (key, 0)).collect())
    }
}

/// Adds the headers that identify call, session and deadline to the server's layer.
pub(super) fn mark(headers: &mut HeaderMap, name: HeaderName, session: &MapSession, deadline: Deadline) {
    headers.insert(name, HeaderValue::from_static("1"));
    session.prove(headers);
    deadline.write_to(headers);
}

impl ChannelApplication {
    /// Replaces the operation's long keys by the numbers that the server assigns.
    pub(super) async fn shorten(
        &self,
        method: &Method,
        session: &MapSession,
        transport: &Transport,
        operation: &mut Operation,
    ) -> Result<(), Status> {
        let long: Vec<_> = keys_of(operation).filter(|key| key.is_long()).collect();
        if long.is_empty() { Ok(()) } else { Box::pin(self.number(method, session, transport, long)).await }
    }

    async fn number(
        &self,
        method: &Method,
        session: &MapSession,
        transport: &Transport,
        mut long: Vec<&mut Key>,
    ) -> Result<(), Status> {
        // One request has as many keys as fit.
        while !long.is_empty() {
            let mut bytes = 0;
            let fitting = long.iter().take_while(|key| {
                bytes += key.as_bytes().len();
                bytes <= REQUEST_KEYS_BYTES
            });
            let later = long.split_off(fitting.count().max(1));
            let mut asked = Vec::new();
            for key in long {
                match session.known.find(key) {
                    Some(number) => *key = Key::numbered(number),
                    None => asked.push(key),
                }
            }
            let numbers = self.ask(method, session, transport, &asked).await?;
            for (key, number) in asked.into_iter().zip(numbers) {
                session.known.learn(key, number);
                *key = Key::numbered(number);
            }
            long = later;
        }
        Ok(())
    }

    async fn ask(
        &self,
        method: &Method,
        session: &MapSession,
        transport: &Transport,
        keys: &[&mut Key],
    ) -> Result<Vec<u64>, Status> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let request = NumberKeysRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            server_incarnation: session.server,
            session: session.secret().into(),
            keys: keys.iter().filter_map(|key| key.as_str()).map(str::to_owned).collect(),
        };
        let reply = PeerClient::new(transport.channel()).number_keys(request).await;
        let failed = |error: Status| {
            let what = format!("{}: cannot get numbers of long keys: {}", method.path, error.message());
            Status::new(error.code(), what)
        };
        let numbers = reply.map_err(failed)?.into_inner().numbers;
        if numbers.len() == keys.len() { Ok(numbers) } else { Err(wrong_count(method)) }
    }
}

fn wrong_count(method: &Method) -> Status {
    Status::internal(format!("{}: the server assigned a wrong number of key numbers", method.path))
}

/// Keys of an operation.
fn keys_of(operation: &mut Operation) -> Box<dyn Iterator<Item = &mut Key> + Send + '_> {
    match operation {
        Operation::Sum { .. } => Box::new(std::iter::empty()),
        Operation::Add { pairs, .. } => Box::new(pairs.iter_mut().map(|(key, _)| key)),
        Operation::Count { keys, .. } | Operation::Clear { keys, .. } | Operation::Read { keys, .. } => {
            Box::new(keys.iter_mut())
        }
    }
}
