//! Delegated call as its handler sees it.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pathcall_driver::node::{self, NodeRequest};
use pathcall_endpoint::delegate::worker::ExecutionError;
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_proto::delegate::RpcMethod;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::directory::{Directory, NodeTarget};
use super::handler_slot::HandlerSlot;
use super::{envelope, failure};

/// Delegated call of which a handler works on one request. The handler sends replies and passes requests on through it.
/// `R` is the type of the replies in the caller's stream. Clones belong to the same request.
pub struct DelegatedCall<R> {
    pub(super) inner: Arc<Inner>,
    reply: PhantomData<fn(R)>,
}

pub(crate) struct Inner {
    pub(super) request: NodeRequest,
    pub(super) slot: HandlerSlot,
    metadata: MetadataMap,
    /// Metadata of requests that are passed on, if it is not the same.
    passed_on: Option<MetadataMap>,
    extensions: Extensions,
    pub(super) directory: Directory,
    /// Servers that have failed in this call, or just before it.
    avoided: Vec<SocketAddr>,
    deadline: Option<Instant>,
    /// True once a reply or a request of this handler may have been sent.
    pub(super) has_sent: AtomicBool,
}

impl Inner {
    pub(super) fn new(
        (request, slot): (NodeRequest, HandlerSlot),
        (metadata, passed_on, extensions): (MetadataMap, Option<MetadataMap>, Extensions),
        (directory, avoided): (Directory, Vec<SocketAddr>),
        deadline: Option<Instant>,
    ) -> Self {
        let has_sent = AtomicBool::new(false);
        Self { request, slot, metadata, passed_on, extensions, directory, avoided, deadline, has_sent }
    }

    /// Metadata of requests that the handler passes on.
    pub(super) fn passed_on(&self) -> &MetadataMap {
        self.passed_on.as_ref().unwrap_or(&self.metadata)
    }

    /// Whether the request may have had an effect already. No other handler can start it then.
    pub(crate) fn has_sent(&self) -> bool {
        self.has_sent.load(Ordering::Acquire) || self.request.is_over()
    }

    /// Time left until the deadline, if the caller set one.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Sets the label of the request's span in a trace.
    pub(crate) fn label(&self, label: impl FnOnce() -> String) {
        if self.request.is_traced() {
            self.request.set_label(&label());
        }
    }
}

/// Ends the request when its handler has panicked or is dropped. Clones of its call may still exist.
pub(super) struct EndOnDrop(pub(super) Arc<Inner>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.request.on_handler_dropped();
        self.0.slot.release();
    }
}

impl<R> DelegatedCall<R> {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, reply: PhantomData }
    }

    /// Sends a reply to the caller. Replies of one handler arrive in order. Waits while the caller has too many replies
    /// that it has not read. One reply is buffered until the next reply, or for a short time
    /// ([`NodeConfig::flush`](super::NodeConfig)).
    ///
    /// # Errors
    /// CANCELLED when the call has been aborted: the handler may return this error.
    pub async fn reply(&self, item: R) -> Result<(), Status>
    where
        R: Message,
    {
        self.inner.has_sent.store(true, Ordering::Release);
        let sent = self.inner.request.reply(item.encode_to_vec().into());
        self.inner.slot.wait_without(sent).await.map_err(status)
    }

    /// Passes a request on to another server: the replies of `M`'s handler go to this call's caller. The metadata of
    /// the caller's stub goes with the request, for example its `traceparent`, but not its credentials, unless these
    /// are [forwarded](super::Handlers::forward_credentials); [`delegate_with`](Self::delegate_with) sends other metadata.
    ///
    /// # Errors
    /// CANCELLED when the call has been aborted; UNAVAILABLE when the directory has no such target; FAILED_PRECONDITION
    /// when the call has passed through too many servers; RESOURCE_EXHAUSTED when this request has passed on too many
    /// requests. In the last two cases the call has failed.
    pub fn delegate<M: RpcMethod<Response = R>>(
        &self,
        to: impl Into<NodeTarget>,
        request: &M::Request,
    ) -> Result<(), Status> {
        self.pass_on(&to.into(), M::PATH, self.inner.passed_on(), &request.encode_to_vec())
    }

    /// Passes a request on as [`delegate`](Self::delegate) does, with the metadata of `request` only.
    ///
    /// ```no_run
    /// # use pathcall_rpc::delegate::DelegatedCall;
    /// # use pathcall_test_support::stubs::{self as pb, delegated::DocsFetch};
    /// # fn handler(call: DelegatedCall<pb::Note>) -> Result<(), tonic::Status> {
    /// let mut next = tonic::Request::new(pb::Note { text: "a".to_owned() });
    /// *next.metadata_mut() = call.metadata().clone();
    /// next.metadata_mut().insert("authorization", "Bearer of-this-server".parse().expect("text"));
    /// call.delegate_with::<DocsFetch>("archive", next)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`delegate`](Self::delegate); INVALID_ARGUMENT when the metadata is too long.
    pub fn delegate_with<M: RpcMethod<Response = R>>(
        &self,
        to: impl Into<NodeTarget>,
        request: tonic::Request<M::Request>,
    ) -> Result<(), Status> {
        self.pass_on(&to.into(), M::PATH, request.metadata(), &request.get_ref().encode_to_vec())
    }

    pub(super) fn pass_on(
        &self,
        to: &NodeTarget,
        path: &str,
        metadata: &MetadataMap,
        message: &[u8],
    ) -> Result<(), Status> {
        let avoided = self.inner.directory.with_avoided(&self.inner.avoided);
        let to = self.inner.directory.choose(to, &avoided)?;
        let encoded = envelope::encode(path, metadata.as_ref(), &avoided, message);
        let encoded: Bytes = encoded.map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.inner.has_sent.store(true, Ordering::Release);
        self.inner.request.delegate(to, encoded).map_err(status)
    }

    /// Whether the call has exactly-once semantics: the handler then has to [seal](Self::seal) its result.
    #[must_use]
    pub fn is_exactly_once(&self) -> bool {
        self.inner.request.is_once()
    }

    /// Closes the request: no more replies and no more delegated requests follow. Nothing that the handler sent leaves
    /// this server before [`SealedRequest::release`], which the handler calls once the effect and its record are
    /// durable together (DPC §3.5.3). After `seal` only [`SealedRequest::discard`] fails the request; the handler's
    /// return value is ignored.
    ///
    /// ```no_run
    /// # use pathcall_rpc::delegate::{DelegatedCall, RequestRecord};
    /// # use pathcall_test_support::stubs::Note;
    /// # fn commit(_: &str, _: Option<Vec<u8>>) -> Result<(), tonic::Status> { Ok(()) }
    /// # async fn handler(call: DelegatedCall<Note>) -> Result<(), tonic::Status> {
    /// call.reply(Note { text: "receipt".to_owned() }).await?; // nothing is stored yet
    /// let sealed = call.seal()?;
    /// commit("the effect", sealed.record().map(RequestRecord::to_bytes))?; // both, or neither
    /// sealed.release();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// CANCELLED when the call has been aborted.
    pub fn seal(&self) -> Result<SealedRequest, Status> {
        self.inner.request.prepare().map(SealedRequest).map_err(status)
    }

    /// Deadline of the call, if the caller set one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.deadline
    }

    /// Time left until the deadline, if the caller set one.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.time_left()
    }

    /// Metadata of the request: of the caller's stub, or of the handler that passed the request on.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.inner.metadata
    }

    /// Extensions that the handlers' [interceptor](super::Handlers::interceptor) added to the request.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.inner.extensions
    }

    /// Number of servers that the request passed through before this one.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.inner.request.depth()
    }

    /// Waits until the call has been aborted. The handler is then dropped; tasks that it spawned go on running.
    pub async fn aborted(&self) {
        self.inner.request.aborted().await;
    }

    /// Whether the call has been aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.inner.request.is_aborted()
    }

    /// Reports progress of the handler to a node that requires progress reports.
    pub fn progress(&self) {
        self.inner.request.record_progress();
    }
}

impl<R> Clone for DelegatedCall<R> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl<R> fmt::Debug for DelegatedCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DelegatedCall").field(&self.inner.request).finish()
    }
}

/// Closed request whose replies and delegated requests are not sent yet. If it is dropped without `release` or
/// `discard`, its call fails, also when the caller retries, until the server restarts with the records that have become
/// durable.
#[derive(Debug)]
#[must_use = "release it when its record is durable"]
pub struct SealedRequest(node::PreparedRequest);

impl SealedRequest {
    /// Record to make durable together with the effect; `None` when the call does not have exactly-once semantics.
    #[must_use]
    pub fn record(&self) -> Option<&RequestRecord> {
        self.0.record()
    }

    /// Sends the replies and requests: effect and record are durable.
    pub fn release(self) {
        self.0.release();
    }

    /// Fails the call with this status: neither effect nor record is durable, for certain. If the caller retries, the
    /// handler runs again.
    pub fn discard(self, status: &Status) {
        self.0.discard(&failure::encode(status));
    }
}

pub(super) fn status(error: ExecutionError) -> Status {
    match error {
        ExecutionError::Ended => Status::cancelled("the caller no longer needs the result"),
        ExecutionError::Depth(_) => Status::failed_precondition(error.to_string()),
        ExecutionError::TooMany | ExecutionError::TooLong(_) => Status::resource_exhausted(error.to_string()),
    }
}
