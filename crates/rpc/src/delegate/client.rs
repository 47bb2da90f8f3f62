//! A caller of its own: calls that begin with several requests (DPC Fig. 3.1), in the types of their methods.
//!
//! ```text
//! Client::call ─▶ Begin: request::<M>(target, message), … ─▶ Replies: message(), send::<M>(…)
//! ```
//!
//! A stub's call begins with one request, to the server that its channel is connected to. Here there are as many
//! as one wants, each to a target of its own, and their replies are one stream, which ends when all are done.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::driver::node::Node;
use pathcall_proto::delegate::Method;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::directory::{Directory, Target};
use super::envelope;
use super::ongoing::{Next, Ongoing};
use super::respond::Habits;
use super::trace::{Ask, Report, Sink, Trace, Traces};

/// Calls servers by their place in a directory, as handlers do.
///
/// ```ignore
/// let (node, _) = Node::start(&NodeConfig::default()).await?;
/// let client = Client::new(node, Directory::of_controller("http://127.0.0.1:7700")?);
/// let mut docs = client.call::<Doc>()
///     .request::<pb::delegated::DocsFetch>(Target::key("docs-", "a"), &Id { id: 1 })?
///     .request::<pb::delegated::DocsFetch>(Target::key("docs-", "b"), &Id { id: 2 })?
///     .begin()?;
/// while let Some(doc) = docs.message().await? { show(doc); }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    node: Node,
    directory: Directory,
    habits: Habits,
}

impl Client {
    /// One that calls by this node, and finds targets here.
    #[must_use]
    pub fn new(node: Node, directory: Directory) -> Self {
        Self { node, directory, habits: Habits::default() }
    }

    /// How its calls are made.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.habits.options = options;
        self
    }

    /// Has its calls traced, and takes the traces.
    #[must_use]
    pub fn traces(mut self, traces: impl Traces) -> Self {
        self.habits.traces = Some(Sink::new(traces));
        self
    }

    /// A call of methods that reply with `R`.
    pub fn call<R>(&self) -> Begin<R> {
        let (metadata, options) = (MetadataMap::new(), self.habits.options);
        Begin { client: self.clone(), metadata, options, method: "", requests: Vec::new(), reply: PhantomData }
    }
}

/// A call that is about to begin.
#[must_use = "begin it"]
pub struct Begin<R> {
    client: Client,
    metadata: MetadataMap,
    options: CallOptions,
    method: &'static str,
    requests: Vec<(SocketAddr, Bytes)>,
    reply: PhantomData<fn() -> R>,
}

impl<R> Begin<R> {
    /// What the handlers of the requests that are added after this see as metadata.
    pub fn metadata(mut self, metadata: MetadataMap) -> Self {
        self.metadata = metadata;
        self
    }

    /// The call fails with DEADLINE_EXCEEDED after this time.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.deadline = Some(time);
        self
    }

    /// Adds a request.
    ///
    /// # Errors
    /// UNAVAILABLE when the directory has no such target; INVALID_ARGUMENT when the metadata is too long.
    pub fn request<M: Method<Response = R>>(
        mut self,
        to: impl Into<Target>,
        request: &M::Request,
    ) -> Result<Self, Status> {
        let to = self.client.directory.find(&to.into())?;
        self.requests.push((to, sealed::<M>(&self.metadata, request)?));
        if self.method.is_empty() {
            self.method = M::PATH;
        }
        Ok(self)
    }

    /// Sends them. To be called in a tokio runtime.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when there is none; RESOURCE_EXHAUSTED when too many calls are in progress.
    pub fn begin(self) -> Result<Replies<R>, Status> {
        self.start(None)
    }

    /// As [`begin`](Self::begin), and the call is traced.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn traced(self) -> Result<(Replies<R>, Trace), Status> {
        let (ask, trace) = Trace::new();
        Ok((self.start(Some(ask))?, trace))
    }

    fn start(self, ask: Option<Ask>) -> Result<Replies<R>, Status> {
        let Self { client, metadata, options, method, requests, .. } = self;
        if requests.is_empty() {
            return Err(Status::invalid_argument("a call begins with a request at least"));
        }
        let report = Report::of(method, metadata.as_ref(), ask, client.habits.traces.as_ref());
        let options = options.traced(options.traced || report.is_some());
        let call = client.node.call(options, requests);
        let call = call.map_err(|error| Status::resource_exhausted(format!("{method}: {error}")))?;
        let ongoing = Ongoing::new(call, &options, report);
        Ok(Replies { ongoing, directory: client.directory, metadata, over: false, reply: PhantomData })
    }
}

impl<R> fmt::Debug for Begin<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin").field("method", &self.method).field("requests", &self.requests.len()).finish()
    }
}

/// The replies of a call, of any of its servers, in the order in which they come. Dropped before its end, the call is
/// aborted.
pub struct Replies<R> {
    ongoing: Ongoing,
    directory: Directory,
    metadata: MetadataMap,
    over: bool,
    reply: PhantomData<fn() -> R>,
}

impl<R: Message + Default> Replies<R> {
    /// The next reply; `None` when all are there and all servers are done.
    ///
    /// # Errors
    /// Why the call failed; `None` comes after that.
    pub async fn message(&mut self) -> Result<Option<R>, Status> {
        self.next().await.transpose()
    }

    /// Sends one more request as part of the call.
    ///
    /// # Errors
    /// UNAVAILABLE when the directory has no such target; FAILED_PRECONDITION when the call has just ended.
    pub fn send<M: Method<Response = R>>(&self, to: impl Into<Target>, request: &M::Request) -> Result<(), Status> {
        let to = self.directory.find(&to.into())?;
        let sealed = sealed::<M>(&self.metadata, request)?;
        let ended = || Status::failed_precondition("the call has ended");
        let call = self.ongoing.call().ok_or_else(ended)?;
        call.send(to, sealed).map_err(|error| Status::failed_precondition(error.to_string()))
    }

    /// Tells all servers to stop; the stream then ends with CANCELLED, when they have said that they did, or a
    /// time-out has passed.
    pub fn abort(&self) {
        if let Some(call) = self.ongoing.call() {
            call.abort();
        }
    }
}

impl<R: Message + Default> Stream for Replies<R> {
    type Item = Result<R, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        match ready!(self.ongoing.poll_next(cx)) {
            Next::Item(item) => {
                let wrong = |error| Status::internal(format!("a reply is not what the method replies: {error}"));
                Poll::Ready(Some(R::decode(item).map_err(wrong)))
            }
            Next::Ended { status, .. } => {
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

fn sealed<M: Method>(metadata: &MetadataMap, request: &M::Request) -> Result<Bytes, Status> {
    let sealed = envelope::seal(M::PATH, metadata.as_ref(), &request.encode_to_vec());
    sealed.map_err(|error| Status::invalid_argument(format!("{}: {error}", M::PATH)))
}
