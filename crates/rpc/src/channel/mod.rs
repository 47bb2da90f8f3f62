//! The caller's end: a `tower` service under the stubs that `tonic` generates.
//!
//! ```text
//! stub ─► Channel ─┬─ no filter ───────────────────────────────────► gRPC
//!                  ├─ cloned ─ the pool ─────────────────────────────► frames
//!                  ├─ passed on ─ a node ─────────────────────────► messages
//!                  └─ filter ─ request ─┬─ typed field ─ session ──► map frames
//!                                       └─ the rest, if any ───────► gRPC, `pathcall-call: 1`
//! stub ◄── assemble ◄── handler's reply and the map's answer
//! ```
//!
//! `builder` opens a channel; `dial` knows how servers are connected to, `transport` is the gRPC connection beneath
//! it; `session` is its part in one application; `carry` has its frames go over HTTP/2; `long_keys` has keys numbered
//! that no frame carries; `delegated` makes calls that servers may pass on; `cloned` those that a `pool` answers;
//! `named` does calls with ids, by a `journal`; `call` takes a call through; `stats` counts.

pub mod builder;
mod call;
mod carry;
mod cloned;
mod delegated;
mod dial;
pub mod journal;
mod long_keys;
mod named;
mod pool;
mod session;
pub mod stats;
mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use pathcall_endpoint::clone::{Balance, Hedge, Options as CloneOptions};
use pathcall_proto::manifest::Manifest;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;

use self::builder::{Builder, ConnectError};
use self::delegated::Delegating;
use self::journal::Journal;
use self::pool::Pool;
use self::session::Slot;
use self::stats::{ChannelStats, Counters};
use self::transport::Transport;
use crate::application::Catalogue;
use crate::deadline::{Calling, Deadline};
use crate::delegate::respond::Habits;

/// A connection to a server, for any number of stubs: cloning it is cheap.
///
/// ```ignore
/// let channel = pathcall::Channel::connect("http://127.0.0.1:50051", &pb::PATHCALL).await?;
/// let mut client = TrainingClient::new(channel);
/// ```
///
/// A method without an option is a plain gRPC call, and so is one that is only placed, as its server
/// chooses. One with a filter is refused with FAILED_PRECONDITION when the server does not speak Pathcall,
/// because its meaning depends on the filter. Its typed field travels as map frames over UDP; the rest of
/// its message, if there is any, follows as a plain gRPC call once the map has done its part. So a handler
/// never sees a call whose typed part failed, while one that fails does not undo it.
///
/// Deadlines (`grpc-timeout`) hold on every path. A call that is dropped or runs out of time is
/// cancelled wherever it is; if that strikes in the middle of a call of many frames, some of them
/// may have taken effect.
///
/// A counted call (Agreement) to SRC or ALL waits until its keys have reached the threshold; with a
/// threshold of 1 (test-and-set), until they are its own. One to SERVER does not wait: if it is not
/// the call that reaches the threshold, `CntFwd` does not forward it, so the handler does not run,
/// and the reply has defaults and the metadata `pathcall-forwarded: false`.
///
/// A process that may be killed and started again gives its channel a journal ([`Builder::journal`])
/// and its calls ids (metadata `pathcall-call-id`): it repeats the calls that it does not know to be
/// done, and each takes effect once. Such calls go past the element.
///
/// A call of a method with the option `clone` goes to the pool that the server is in: by frames, to whoever its
/// element chooses, to two of them at once if they are idle. What is too long for frames goes by gRPC, and so does
/// everything when the server is in no pool. When the server is gone, calls go on by the others of the pool.
///
/// A call of a method with the option `delegate` is made by the channel's node, and its replies come to that, straight
/// from the servers that it was passed on to; a server without handlers is called by plain gRPC.
///
/// Requests may be compressed with gzip, if the feature `gzip` is there; otherwise they can't be looked into.
#[derive(Clone, Debug)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    transport: Transport,
    catalogue: Catalogue,
    /// One for each application, by name.
    slots: BTreeMap<&'static str, Arc<Slot>>,
    journal: Option<Journal>,
    delegating: Delegating,
    /// Its part in a pool, if there are methods that one answers.
    pool: Option<Pool>,
    /// How their calls are made, if not as they say.
    override_cloned: Option<CloneOptions>,
    habits: Habits,
    counters: Counters,
}

impl Channel {
    /// Connects to the server at `destination`, such as `http://host:port`. The manifest is the
    /// constant that `pathcall-build` writes beside the stubs.
    ///
    /// # Errors
    /// When the address is none, or nobody answers there.
    pub async fn connect<D>(destination: D, manifest: &'static Manifest) -> Result<Self, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::builder(destination, manifest)?.connect().await
    }

    /// As [`connect`](Self::connect), with options.
    ///
    /// # Errors
    /// When `destination` is not an address.
    pub fn builder<D>(destination: D, manifest: &'static Manifest) -> Result<Builder, ConnectError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Builder::new(destination, manifest)
    }

    /// Leaves all applications, once the calls under way have ended and the server has made its own
    /// what only the element had of this caller. A dropped channel does the same on the side; whoever
    /// ends the process, or wants to know, waits here. A later call joins again.
    ///
    /// # Errors
    /// UNAVAILABLE with the names of the applications whose server did not confirm it in time: should
    /// the element fail now, their last values may be lost, and queries would say so.
    pub async fn close(&self) -> Result<(), Status> {
        let mut unconfirmed = Vec::new();
        for (name, slot) in &self.inner.slots {
            if !slot.close().await {
                unconfirmed.push(*name);
            }
        }
        if unconfirmed.is_empty() {
            return Ok(());
        }
        Err(Status::unavailable(format!("{}: the server has not confirmed all that was added", unconfirmed.join(", "))))
    }

    /// What went through this channel and its clones so far.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        let pool = self.inner.pool.as_ref().map(Pool::stats).unwrap_or_default();
        self.inner.counters.read(self.inner.slots.values().map(|slot| slot.stats()), pool)
    }
}

impl tower::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = Calling;

    /// Always: polling the connection here would hold one of its permits while the call is still
    /// being made up, and a few channels that wait like this would starve it.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        let (deadline, path) = (Deadline::of(request.headers()), request.uri().path());
        if let Some(method) = inner.catalogue.method(path) {
            deadline.bound(inner.filtered(method, request, deadline))
        } else if inner.catalogue.is_delegated(path) {
            deadline.bound(inner.delegated(request, deadline))
        } else if let Some(method) = inner.catalogue.cloned(path) {
            deadline.bound(inner.cloned(method, request, deadline))
        } else {
            deadline.bound(inner.plain(request))
        }
    }
}

impl Inner {
    /// By gRPC to one server, once: what it does is not known to be the same done twice.
    async fn plain(self: Arc<Self>, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        self.counters.plain.add();
        let transport = self.pool.as_ref().map_or_else(|| self.transport.clone(), Pool::transport);
        transport.call(request).await
    }
}
