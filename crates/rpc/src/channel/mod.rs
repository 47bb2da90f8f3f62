//! Channel: the caller's `tower` service under the stubs that `tonic` generates.
//!
//! ```text
//! stub ─► Channel ─┬─ no filter ───────────────────────────────────► gRPC
//!                  ├─ clone ─ pool ─┬────────────────────────────────► frames
//!                  │                └─ stream ─ until the first message ► gRPC to one server, and to others
//!                  ├─ delegate ─ node ────────────────────────────► messages
//!                  └─ filter ─ request ─┬─ typed field ─ session ──► map frames
//!                                       └─ the rest, if any ───────► gRPC, `pathcall-call: 1`
//! stub ◄── assemble ◄── handler's reply and the map's answer
//! ```
//!
//! `builder` opens a channel; `dial` has the connection options and `transport` the gRPC connection; `call` makes calls
//! with a filter, in the `session` of their application; `idempotent_call` makes calls with ids, recorded in a
//! `journal`; `streamed` makes streamed calls with a filter; `delegated` makes delegated calls, `cloned` those of a `pool`, `cloned_stream` its streams; `stats` has the counters.

pub mod builder;
mod call;
mod cloned;
mod cloned_stream;
mod delegated;
mod dial;
mod handled_sum;
mod idempotent_call;
pub mod journal;
mod paths;
mod pool;
mod session;
pub mod stats;
mod streamed;
mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use pathcall_endpoint::clone::{Balance, CloneOptions, Hedge, HedgeAfter};
use pathcall_proto::manifest::{FilterStreams, Manifest};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;

use self::builder::{Builder, ConnectError};
use self::cloned_stream::ClonedStreams;
use self::delegated::DelegateNode;
use self::journal::Journal;
use self::pool::PoolMembership;
use self::session::ChannelApplication;
use self::stats::{ChannelStats, Counters};
use self::transport::Transport;
use crate::application::Catalogue;
use crate::deadline::{CallFuture, Deadline};
use crate::delegate::respond::DelegateDefaults;

/// gRPC channel for tonic stubs, with in-network computation. Cloning it is cheap.
///
/// ```no_run
/// # use pathcall_rpc as pathcall;
/// # use pathcall_test_support::stubs as pb;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # use pb::training_client::TrainingClient;
/// let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
/// let mut client = TrainingClient::new(channel);
/// # Ok(())
/// # }
/// ```
///
/// A method without a Pathcall option is a plain gRPC call; so is a method with only the option `place`, as its server
/// decides.
///
/// A method with a filter fails with FAILED_PRECONDITION if the server does not have Pathcall's layer, because the
/// meaning of the method depends on the filter. The typed field travels as map frames over UDP. The rest of the
/// message, if any, follows as a plain gRPC call after the map operation. So a handler never sees a call whose map
/// operation failed; but a handler that fails does not undo the map operation.
///
/// Deadlines (`grpc-timeout`) hold for all calls. A call that is dropped or times out is cancelled at all parties. If
/// it consists of many frames, some of them may have taken effect.
///
/// A counting call (Agreement) with `to` SRC or ALL waits until its keys have reached the threshold; with a threshold
/// of 1 (test-and-set), until it holds their locks. A counting call with `to` SERVER does not wait: if it does not
/// reach the threshold, `CntFwd` does not forward it, the handler does not run, and the reply has default values and
/// the metadata `pathcall-forwarded: false`.
///
/// A process that may be killed and restarted uses a journal ([`Builder::journal`]) and calls with ids (metadata
/// `pathcall-call-id`): it repeats the calls that are not recorded as done, and each takes effect once. Such calls do
/// not use the element.
///
/// A call of a method with the option `clone` goes to the server's pool, as frames, to a server that the element
/// chooses, or to two servers at once if they are idle. A message that is too long for frames goes by gRPC, as do all
/// calls if the server is in no pool. If the server fails, calls go to the other servers of the pool.
///
/// A call of a server-streaming method with the option `clone` goes by gRPC to a server of the pool, and to others until
/// one of them has sent its first message. From then on, that server's stream is the call's.
///
/// The channel's node makes the calls of a method with the option `delegate`. The replies come to it directly from the
/// servers that send them. If the server has no handlers, the call is plain gRPC.
///
/// Requests may be compressed with gzip if the feature `gzip` is on; without it, compressed requests with a filter are
/// refused.
#[derive(Clone, Debug)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    transport: Transport,
    catalogue: Catalogue,
    /// Applications by name.
    applications: BTreeMap<&'static str, Arc<ChannelApplication>>,
    journal: Option<Journal>,
    delegate_node: DelegateNode,
    /// Membership in a pool, if the manifest has cloned methods.
    pool: Option<PoolMembership>,
    /// Hedges of the streaming methods of the pool.
    streams: ClonedStreams,
    /// Options of all cloned calls, instead of their methods' options.
    override_cloned: Option<CloneOptions>,
    defaults: DelegateDefaults,
    counters: Counters,
}

impl Channel {
    /// Connects to the server at `destination`, such as `http://host:port`. The manifest is the constant that
    /// `pathcall-build` generates with the stubs.
    ///
    /// # Errors
    /// The address is invalid, or no server answers.
    pub async fn connect<D>(destination: D, manifest: &'static Manifest) -> Result<Self, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::builder(destination, manifest)?.connect().await
    }

    /// Builder of a channel with options.
    ///
    /// # Errors
    /// `destination` is not a valid address.
    pub fn builder<D>(destination: D, manifest: &'static Manifest) -> Result<Builder, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Builder::new(destination, manifest)
    }

    /// Leaves all applications: waits for calls in progress, and until the server has the values that only the element
    /// had of this caller. A dropped channel does the same in the background; a process that is about to end should
    /// wait for `close`. A later call joins again.
    ///
    /// # Errors
    /// UNAVAILABLE with the names of the applications whose server did not confirm in time. If the element fails then,
    /// their last values may be lost, and queries would report this.
    pub async fn close(&self) -> Result<(), Status> {
        let mut unconfirmed = Vec::new();
        for (name, application) in &self.inner.applications {
            if !application.close().await {
                unconfirmed.push(*name);
            }
        }
        if unconfirmed.is_empty() {
            return Ok(());
        }
        Err(Status::unavailable(format!("{}: the server has not confirmed all added values", unconfirmed.join(", "))))
    }

    /// Counters of this channel and its clones.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        let pool = self.inner.pool.as_ref();
        let policies = pool.map(PoolMembership::policies).unwrap_or_default();
        let pool = self.inner.streams.stats(pool.map(PoolMembership::stats).unwrap_or_default());
        let applications = self.inner.applications.values().map(|application| application.stats());
        self.inner.counters.read(applications, pool, policies)
    }

    /// Exports these counters as OpenTelemetry metrics `pathcall.channel.*` of this meter.
    #[cfg(feature = "otel")]
    pub fn export_metrics(&self, meter: &opentelemetry::metrics::Meter) {
        let inner = Arc::downgrade(&self.inner);
        crate::metrics::export_channel(meter, move || Some(Self { inner: inner.upgrade()? }.stats()));
    }
}

impl tower::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = CallFuture;

    /// Always ready: polling the connection here would hold one of its permits while the call is still being prepared,
    /// and a few waiting channels would starve it.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        let (deadline, path) = (Deadline::of(request.headers()), request.uri().path());
        if let Some(method) = inner.catalogue.method(path) {
            match method.streams {
                FilterStreams::Unary => deadline.bound(inner.filtered(method, request, deadline)),
                FilterStreams::Client | FilterStreams::Both => {
                    deadline.bound(inner.streamed(method, request, deadline))
                }
            }
        } else if let Some(method) = inner.catalogue.delegated(path) {
            deadline.bound(inner.delegated(method, request, deadline))
        } else if let Some(method) = inner.catalogue.cloned(path).filter(|method| method.streaming) {
            deadline.bound(inner.cloned_stream(method, request, deadline))
        } else if let Some(method) = inner.catalogue.cloned(path) {
            deadline.bound(inner.cloned(method, request, deadline))
        } else {
            deadline.bound(inner.plain(request))
        }
    }
}

impl Inner {
    /// Calls one server by gRPC, once: the method may not be idempotent.
    async fn plain(self: Arc<Self>, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        self.counters.plain.add();
        let transport = self.pool.as_ref().map_or_else(|| self.transport.clone(), PoolMembership::transport);
        transport.call(request).await
    }
}
