//! Handlers and calls of encoded messages, for methods that are known at run time only.
//!
//! The types of a generated [`RpcMethod`](super::RpcMethod) are known to the compiler. A program that learns its methods from
//! a file has paths and bytes instead: [`Handlers::handle_bytes`] adds a handler of such a method, and
//! [`Client::call_bytes`] calls one.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::attempts::PlannedRequest;
use super::call::{self, DelegatedCall};
use super::client::{Client, Replies};
use super::directory::NodeTarget;
use super::handlers::Handlers;
use super::ongoing_call::StreamEvent;
use crate::deadline::Deadline;

/// Reply type of calls of encoded messages. It is no `prost::Message`: the bytes are sent as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedMessage(pub Bytes);

/// Method of a call of encoded messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedMethod<'a> {
    /// Path: `/pkg.Service/Method`.
    pub path: &'a str,
    /// Whether a call has exactly one reply.
    pub unary: bool,
    /// Whether a call may be made again when its servers fail.
    pub idempotent: bool,
}

impl Handlers {
    /// Adds the handler of the method with this path, `/pkg.Service/Method`, for encoded requests. It runs as handlers
    /// of [`handle`](Self::handle) do.
    pub fn handle_bytes<H, F>(self, path: impl Into<String>, handler: H) -> Self
    where
        H: Fn(Bytes, DelegatedCall<EncodedMessage>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let handler = move |message, inner| Box::pin(handler(message, DelegatedCall::new(inner))) as _;
        self.add(Cow::Owned(path.into()), Arc::new(handler))
    }
}

impl DelegatedCall<EncodedMessage> {
    /// Sends a reply as [`reply`](Self::reply) does.
    ///
    /// # Errors
    /// CANCELLED when the call has been aborted.
    pub async fn reply_bytes(&self, EncodedMessage(item): EncodedMessage) -> Result<(), Status> {
        self.inner.has_sent.store(true, Ordering::Release);
        let sent = self.inner.request.reply(item);
        self.inner.slot.wait_without(sent).await.map_err(call::status)
    }

    /// Passes a request on as [`delegate`](Self::delegate) does, to the method with this path.
    ///
    /// # Errors
    /// As [`delegate`](Self::delegate).
    pub fn delegate_bytes(&self, to: impl Into<NodeTarget>, path: &str, message: &[u8]) -> Result<(), Status> {
        self.pass_on(&to.into(), path, self.inner.passed_on(), message)
    }
}

impl Client {
    /// Calls a method at `to`. The request's metadata goes to all handlers; a [timeout](tonic::Request::set_timeout) of
    /// the request is the call's. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// UNAVAILABLE when the directory has no such target; INVALID_ARGUMENT when the metadata is too long;
    /// RESOURCE_EXHAUSTED when too many calls are in progress.
    pub fn call_bytes(
        &self,
        to: impl Into<NodeTarget>,
        method: EncodedMethod<'_>,
        request: tonic::Request<Bytes>,
    ) -> Result<Replies<EncodedMessage>, Status> {
        let (metadata, _, message) = request.into_parts();
        let metadata = metadata.into_headers();
        let left = Deadline::of(&metadata).left();
        let mut call = self.call().metadata(MetadataMap::from_headers(metadata.clone()));
        call.options.deadline = left.into_iter().chain(call.options.deadline).min();
        call.method = Cow::Owned(method.path.to_owned());
        call.idempotent = method.idempotent;
        call.requests.push(PlannedRequest { to: to.into(), path: method.path.to_owned(), metadata, message });
        call.start(None, method.unary)
    }
}

impl Replies<EncodedMessage> {
    /// Next reply; `None` when all replies have arrived and all servers are done.
    ///
    /// # Errors
    /// The status with which the call failed; `None` follows. If no server reported the failure, the status has a
    /// [`CallFailure`](super::CallFailure) as its source.
    pub async fn message_bytes(&mut self) -> Result<Option<EncodedMessage>, Status> {
        if self.over {
            return Ok(None);
        }
        match poll_fn(|cx| self.ongoing.poll_next(cx)).await {
            StreamEvent::Item(item) => Ok(Some(EncodedMessage(item))),
            StreamEvent::Ended { status, .. } => {
                self.over = true;
                if status.code() == Code::Ok { Ok(None) } else { Err(status) }
            }
        }
    }
}
