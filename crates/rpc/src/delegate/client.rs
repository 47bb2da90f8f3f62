//! Client API for delegated calls that begin with several requests (DPC Fig. 3.1), typed by their methods.
//!
//! ```text
//! Client::call ─▶ CallBuilder: request::<M>(target, message), … ─▶ Replies: message(), send::<M>(…)
//! ```
//!
//! A stub's call begins with one request, to the server that its channel is connected to. A call of this client has any
//! number of first requests, each with its own target. Their replies form one stream, which ends when all requests are
//! done.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pathcall_driver::node::Node;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_proto::delegate::RpcMethod;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::attempts::{CallPlan, PlannedRequest};
use super::directory::{Directory, NodeTarget};
use super::envelope;
use super::ongoing_call::{OngoingCall, StreamEvent};
use super::respond::DelegateDefaults;
use super::trace::{PendingTrace, SharedTraceSink, TraceReport, TraceRequest, TraceSink};

/// Client of delegated calls. It finds servers in a directory, as handlers do.
///
/// ```no_run
/// # use pathcall_rpc as pathcall;
/// # use pathcall_test_support::stubs as pb;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # use pathcall::delegate::{Client, Directory, Node, NodeConfig, NodeTarget};
/// # use pb::delegated::DocsFetch;
/// let (node, _) = Node::start(&NodeConfig::default()).await?;
/// let client = Client::new(node, Directory::of_controller("http://127.0.0.1:7700")?);
/// let mut docs = client
///     .call::<pb::Note>()
///     .request::<DocsFetch>(NodeTarget::key("docs-", "a"), &pb::Note { text: "a".to_owned() })?
///     .request::<DocsFetch>(NodeTarget::key("docs-", "b"), &pb::Note { text: "b".to_owned() })?
///     .begin()?;
/// while let Some(doc) = docs.message().await? {
///     println!("{}", doc.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    node: Node,
    pub(super) directory: Directory,
    defaults: DelegateDefaults,
}

impl Client {
    /// Creates a client that calls through this node and finds targets in this directory.
    #[must_use]
    pub fn new(node: Node, directory: Directory) -> Self {
        directory.learn_from(&node);
        Self { node, directory, defaults: DelegateDefaults::default() }
    }

    /// Sets the options of the client's calls.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.defaults.options = options;
        self
    }

    /// Traces the client's calls and passes the traces to `traces`.
    #[must_use]
    pub fn traces(mut self, traces: impl TraceSink) -> Self {
        self.defaults.traces = Some(SharedTraceSink::new(traces));
        self
    }

    /// Starts to build a call whose methods reply with `R`.
    pub fn call<R>(&self) -> CallBuilder<R> {
        let (client, metadata, options) = (self.clone(), MetadataMap::new(), self.defaults.options);
        CallBuilder {
            client,
            metadata,
            options,
            method: Cow::Borrowed(""),
            requests: Vec::new(),
            idempotent: true,
            reply: PhantomData,
        }
    }
}

/// Builder of a delegated call.
#[must_use = "begin it"]
pub struct CallBuilder<R> {
    client: Client,
    metadata: MetadataMap,
    pub(super) options: CallOptions,
    pub(super) method: Cow<'static, str>,
    pub(super) requests: Vec<PlannedRequest>,
    /// Whether all methods of the requests are idempotent.
    pub(super) idempotent: bool,
    reply: PhantomData<fn() -> R>,
}

impl<R> CallBuilder<R> {
    /// Sets the metadata of the requests that are added after this.
    pub fn metadata(mut self, metadata: MetadataMap) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets the timeout of the call, after which it fails with DEADLINE_EXCEEDED.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.deadline = Some(time);
        self
    }

    /// Adds a request. If the methods of all requests are idempotent, the call is made again, up to twice, when its
    /// servers fail before the first reply: requests to a [service](NodeTarget::service) then go to other replicas.
    ///
    /// # Errors
    /// UNAVAILABLE when the directory has no such target.
    pub fn request<M: RpcMethod<Response = R>>(
        mut self,
        to: impl Into<NodeTarget>,
        request: &M::Request,
    ) -> Result<Self, Status> {
        let to = to.into();
        self.client.directory.find(&to)?;
        let (metadata, message) = (self.metadata.as_ref().clone(), request.encode_to_vec().into());
        self.requests.push(PlannedRequest { to, path: M::PATH.to_owned(), metadata, message });
        self.idempotent &= M::IDEMPOTENT;
        if self.method.is_empty() {
            self.method = Cow::Borrowed(M::PATH);
        }
        Ok(self)
    }

    /// Sends the requests. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when there is none, or the metadata is too long; RESOURCE_EXHAUSTED when too many calls are in
    /// progress.
    pub fn begin(self) -> Result<Replies<R>, Status> {
        self.start(None, false)
    }

    /// Sends the request of a unary method, and waits for the reply.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); the status with which the call failed; INTERNAL when the servers did not send exactly
    /// one reply.
    pub async fn reply(self) -> Result<R, Status>
    where
        R: Message + Default,
    {
        let reply = self.start(None, true)?.message().await?;
        reply.ok_or_else(|| Status::internal("no server replied to a unary call"))
    }

    /// Sends the requests as [`begin`](Self::begin) does, and traces the call.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_traced(self) -> Result<(Replies<R>, PendingTrace), Status> {
        let (ask, trace) = PendingTrace::new();
        Ok((self.start(Some(ask), false)?, trace))
    }

    pub(super) fn start(self, ask: Option<TraceRequest>, unary: bool) -> Result<Replies<R>, Status> {
        let Self { client, metadata, options, method, requests, idempotent, .. } = self;
        if requests.is_empty() {
            return Err(Status::invalid_argument("a call needs at least one request: add one with request()"));
        }
        let report = TraceReport::of(&method, metadata.as_ref(), ask, client.defaults.traces.as_ref());
        let options = options.traced(options.traced || report.is_some());
        let plan = CallPlan {
            node: client.node,
            directory: client.directory.clone(),
            options,
            requests,
            method: method.into_owned(),
            unary,
            idempotent,
            retries: client.defaults.retries,
        };
        let ongoing = OngoingCall::begin(plan, report)?;
        Ok(Replies { ongoing, directory: client.directory, metadata, over: false, reply: PhantomData })
    }
}

impl<R> fmt::Debug for CallBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder").field("method", &self.method).field("requests", &self.requests.len()).finish()
    }
}

/// Reply stream of a call, in order of arrival from all its servers. Dropping it before its end aborts the call.
pub struct Replies<R> {
    pub(super) ongoing: OngoingCall,
    directory: Directory,
    metadata: MetadataMap,
    pub(super) over: bool,
    reply: PhantomData<fn() -> R>,
}

impl<R: Message + Default> Replies<R> {
    /// Next reply; `None` when all replies have arrived and all servers are done.
    ///
    /// # Errors
    /// The status with which the call failed; `None` follows.
    pub async fn message(&mut self) -> Result<Option<R>, Status> {
        self.next().await.transpose()
    }

    /// Sends one more request as part of the call. The call is not made again if it fails after this.
    ///
    /// # Errors
    /// UNAVAILABLE when the directory has no such target; INVALID_ARGUMENT when the metadata is too long;
    /// FAILED_PRECONDITION when the call has just ended.
    pub fn send<M: RpcMethod<Response = R>>(
        &mut self,
        to: impl Into<NodeTarget>,
        request: &M::Request,
    ) -> Result<(), Status> {
        let avoided = self.directory.with_avoided(&[]);
        let to = self.directory.choose(&to.into(), &avoided)?;
        let encoded = envelope::encode(M::PATH, self.metadata.as_ref(), &avoided, &request.encode_to_vec());
        let encoded = encoded.map_err(|error| Status::invalid_argument(format!("{}: {error}", M::PATH)))?;
        self.ongoing.send(to, encoded)
    }

    /// Aborts the call on all servers. The stream ends with CANCELLED once the servers have confirmed this or a timeout
    /// has passed.
    pub fn abort(&mut self) {
        self.ongoing.abort();
    }
}

impl<R: Message + Default> Stream for Replies<R> {
    type Item = Result<R, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        match ready!(self.ongoing.poll_next(cx)) {
            StreamEvent::Item(item) => {
                let wrong = |error| Status::internal(format!("cannot decode the reply: {error}"));
                Poll::Ready(Some(R::decode(item).map_err(wrong)))
            }
            StreamEvent::Ended { status, .. } => {
                self.over = true;
                Poll::Ready((status.code() != Code::Ok).then_some(Err(status)))
            }
        }
    }
}

impl<R> fmt::Debug for Replies<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("call", &self.ongoing.call()).field("over", &self.over).finish()
    }
}
