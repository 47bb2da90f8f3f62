//! A call as its handler sees it.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pathcall_endpoint::delegate;
use pathcall_endpoint::delegate::worker::WorkError;
use pathcall_endpoint::delegate::worker::record::Record;
use pathcall_endpoint::driver::node::{self, Request};
use pathcall_proto::delegate::Method;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::directory::{Directory, Target};
use super::envelope;

/// What a handler does for the call that its request is a part of; `R` is what the caller's stream has. Clones
/// are of the same request.
pub struct Call<R> {
    inner: Arc<Inner>,
    reply: PhantomData<fn(R)>,
}

pub(crate) struct Inner {
    pub(super) request: Request,
    metadata: MetadataMap,
    extensions: Extensions,
    directory: Directory,
    deadline: Option<Instant>,
    /// A reply or a request of this handler may be on its way.
    said: AtomicBool,
}

impl Inner {
    pub(super) fn new(
        request: Request,
        metadata: MetadataMap,
        extensions: Extensions,
        directory: Directory,
        deadline: Option<Instant>,
    ) -> Self {
        Self { request, metadata, extensions, directory, deadline, said: AtomicBool::new(false) }
    }

    /// Whether the request may have led to something already: nobody else can begin with it then.
    pub(crate) fn has_said(&self) -> bool {
        self.said.load(Ordering::Acquire) || self.request.is_over()
    }

    /// Names the request's span in a trace.
    pub(crate) fn label(&self, label: impl FnOnce() -> String) {
        if self.request.is_traced() {
            self.request.label(&label());
        }
    }
}

impl<R> Call<R> {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, reply: PhantomData }
    }

    /// Sends an item to the caller. Items of one handler come in order. Waits while the caller has many that it
    /// has not taken; one item is held until the next, or for a moment, see
    /// [`NodeConfig::flush`](super::NodeConfig).
    ///
    /// # Errors
    /// CANCELLED when nobody wants it any more: the handler may as well return that.
    pub async fn reply(&self, item: R) -> Result<(), Status>
    where
        R: Message,
    {
        self.inner.said.store(true, Ordering::Release);
        self.inner.request.reply(item.encode_to_vec().into()).await.map_err(status)
    }

    /// Passes a request on: what `M`'s handler replies goes to this call's caller. What the caller's stub sent along goes
    /// with it, its `traceparent` and credentials, say; [`delegate_with`](Self::delegate_with) sends something else.
    ///
    /// # Errors
    /// CANCELLED when nobody wants it any more; UNAVAILABLE when the directory has no such target;
    /// FAILED_PRECONDITION when the call went through too many servers, RESOURCE_EXHAUSTED when this request led
    /// to too many: then the call has failed.
    pub fn delegate<M: Method<Response = R>>(&self, to: impl Into<Target>, request: &M::Request) -> Result<(), Status> {
        let to = self.inner.directory.find(&to.into())?;
        self.pass_on(to, M::PATH, &self.inner.metadata, &request.encode_to_vec())
    }

    /// As [`delegate`](Self::delegate), with just the metadata of this request.
    ///
    /// ```ignore
    /// let mut next = Request::new(id);
    /// *next.metadata_mut() = call.metadata().clone();
    /// next.metadata_mut().remove("authorization"); // none of that server's business
    /// call.delegate_with::<DocsFetch>("archive", next)?;
    /// ```
    ///
    /// # Errors
    /// As [`delegate`](Self::delegate); INVALID_ARGUMENT when the metadata is too long.
    pub fn delegate_with<M: Method<Response = R>>(
        &self,
        to: impl Into<Target>,
        request: tonic::Request<M::Request>,
    ) -> Result<(), Status> {
        let to = self.inner.directory.find(&to.into())?;
        self.pass_on(to, M::PATH, request.metadata(), &request.get_ref().encode_to_vec())
    }

    fn pass_on(&self, to: SocketAddr, path: &str, metadata: &MetadataMap, message: &[u8]) -> Result<(), Status> {
        let sealed = envelope::seal(path, metadata.as_ref(), message);
        let sealed: Bytes = sealed.map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.inner.said.store(true, Ordering::Release);
        self.inner.request.delegate(to, sealed).map_err(status)
    }

    /// Whether the call is to be done exactly once: then the handler [seals](Self::seal) what it did.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.inner.request.is_once()
    }

    /// Says that all was said that this request leads to; nothing of that leaves before [`Sealed::release`], when
    /// effect and record are durable together (DPC §3.5.3). After it the handler can't fail but by
    /// [`Sealed::discard`]: what it returns says nothing any more.
    ///
    /// ```ignore
    /// let receipt = work_out(&transfer)?; // nothing is stored yet
    /// call.reply(receipt).await?;
    /// let sealed = call.seal()?;
    /// store.commit(&effect, sealed.record().map(Record::to_bytes))?; // both, or none
    /// sealed.release();
    /// ```
    ///
    /// # Errors
    /// CANCELLED when nobody wants it any more.
    pub fn seal(&self) -> Result<Sealed, Status> {
        self.inner.request.seal().map(Sealed).map_err(status)
    }

    /// When the call must be over, if its caller said so.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.deadline
    }

    /// How much time is left, if its caller set a limit.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What the caller's stub sent along, or the handler that has passed the request on.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.inner.metadata
    }

    /// What the handlers' [interceptor](super::Handlers::interceptor) has added to the request.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.inner.extensions
    }

    /// Servers that the request went through before.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.inner.request.depth()
    }

    /// Until nobody wants the result any more. The handler is dropped then in any case; what it has spawned
    /// is not.
    pub async fn aborted(&self) {
        self.inner.request.aborted().await;
    }

    /// Whether nobody wants the result any more.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.inner.request.is_aborted()
    }

    /// Says that the handler gets on, where the node asks for signs of life.
    pub fn progress(&self) {
        self.inner.request.progress();
    }
}

impl<R> Clone for Call<R> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Call").field(&self.inner.request).finish()
    }
}

/// A request that is done, and what it led to is not sent yet. Dropped before it is decided whether its record is
/// durable, its call fails, each time that it is made, until the server is started anew with what has become durable.
#[derive(Debug)]
#[must_use = "release it when its record is durable"]
pub struct Sealed(node::Sealed);

impl Sealed {
    /// What has to become durable together with the effect; `None` where the call need not be done exactly once.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.0.record()
    }

    /// Sends what it led to: both are durable.
    pub fn release(self) {
        self.0.release();
    }

    /// Neither is durable, for sure: the call fails with this, and when it is made again the handler runs again.
    pub fn discard(self, status: &Status) {
        self.0.discard(&delegate::Status::new(status.code() as u8, status.message()));
    }
}

fn status(error: WorkError) -> Status {
    match error {
        WorkError::Gone => Status::cancelled("nobody wants the result any more"),
        WorkError::Depth(_) => Status::failed_precondition(error.to_string()),
        WorkError::TooMany => Status::resource_exhausted(error.to_string()),
    }
}
