//! The server's end: a `tower` layer around the services of a `tonic` server.
//!
//! ```text
//! Join ─ admission ───────────► peer ─ controller ─► hosted: a member of the application, by its session
//! filter, `pathcall-call` ────────────────────────────────► handler
//! filter, `pathcall-query` ─── admission ─ hosted ─► values,  and the handler for untyped content
//! filter, plain gRPC ─────────► layer: refused
//! cloned ══ frames ═► pool ═══════════════════════════════► handler
//! placed ─────────────────────► place ─ selector ─► handler of the processor, or of the accelerator
//! passed on ──────────────────► layer ─ node ─────────────► its own kind of handler, or `place` before two of them
//! no filter ──────────────────────────────────────────────► handler
//! ```
//!
//! `admission` has the services' own checks look at a caller before anything happens for it; `sessions` knows who was let in.
//! `books` does calls with ids. `builder` starts it; `hosted` is an application and the truth of its map; `registration`
//! speaks to the controller; `peer` lets callers in; `pool` has the queue of cloned calls; `carry` takes the frames
//! of those that UDP does not reach; `layer` sorts the calls.

mod admission;
mod books;
pub mod builder;
mod carry;
mod hosted;
mod layer;
mod peer;
pub mod place;
mod pool;
mod registration;
mod services;
mod sessions;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::admission::{Admission, Credentials};
use pathcall_auth::{Guard, Security};
pub use pathcall_endpoint::driver::carrier::CarriedStats;
pub use pathcall_endpoint::map::server::ServerStats;
use pathcall_proto::manifest::Manifest;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tonic::{Request, Status};

pub use self::builder::{BuildError, Builder};
use self::hosted::Hosted;
pub use self::layer::{Layered, ServerLayer};
use self::place::Places;
pub use self::place::{PlaceStats, Placing, PlacingError};
use self::pool::Pooled;
pub use self::pool::{PoolStats, WorkerStats};
use self::registration::Controller;
pub use self::services::Services;
use crate::application::Catalogue;
use crate::delegate::Serving;
use crate::delegate::respond::Habits;

/// Owner of the applications of a manifest: holds the truth of their maps, and lets callers in.
///
/// ```ignore
/// let pathcall = pathcall::Server::builder(&pb::PATHCALL).controller("http://127.0.0.1:7700").build().await?;
/// tonic::transport::Server::builder()
///     .layer(pathcall.layer())
///     .add_service(TrainingServer::new(handler))
///     .serve_with_shutdown(address, async move { signal.await; pathcall.close() })
///     .await?;
/// ```
///
/// Without a controller, or while it can't be reached, everything works in software. A handler of a
/// method with a filter runs if and only if the request has untyped content or the filter's `to` is
/// SERVER. It sees the message without its typed field (with it, if `to` is SERVER), and what it
/// puts into the reply's typed field is replaced by the map's answer.
///
/// The service's interceptors, and layers that are added after this one, let callers in: before a caller joins, when it
/// calls another method or with other metadata, and again after [`Builder::admitted_for`], they see a request of the
/// method's path with the call's metadata. No handler runs for it. A caller that they refuse has no effect.
///
/// A caller counts as gone when its connection is; for one that vanishes without a word, set
/// `http2_keepalive_interval` on the tonic server.
#[derive(Clone, Debug)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    catalogue: Catalogue,
    /// By name.
    applications: BTreeMap<&'static str, Arc<Hosted>>,
    controller: Option<Controller>,
    /// Of methods that a pool of servers answers.
    pool: Option<Pooled>,
    /// Of methods that servers may pass on.
    handlers: Option<Serving>,
    /// Of methods that the accelerator may answer.
    places: Option<Arc<Places>>,
    /// For how long a caller is admitted, until the services are asked again.
    admitted_for: Duration,
    /// How they are called for who does not speak Pathcall.
    habits: Habits,
    /// Who may do what, by certificates.
    security: Security,
    guard: Guard,
    /// True when the server is to end: all members are let go then.
    closed: watch::Sender<bool>,
    /// Keep the registrations; end with the server.
    _registrations: JoinSet<()>,
}

impl Inner {
    /// Whether keys of tokens may go by the request's connection.
    fn keys_may_go<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let tls = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>().is_some();
        match self.security.keys_may_go(request.remote_addr(), tls) {
            true => Ok(()),
            false => Err(Status::failed_precondition(
                "frames carry tokens here, and their key does not cross a network in the clear: connect by TLS",
            )),
        }
    }
}

/// An application as its server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationStats {
    /// `AppName`.
    pub name: &'static str,
    /// Callers that have joined.
    pub members: usize,
    /// Whether an element takes part.
    pub element: bool,
    /// What came in and went out as map frames; all 0 before the first caller.
    pub map: ServerStats,
    /// What of that went over HTTP/2, and of how many callers now: UDP does not reach them.
    pub carried: CarriedStats,
}

impl Server {
    /// A server of the applications of this manifest, the constant that `pathcall-build` writes
    /// beside the stubs.
    pub fn builder(manifest: &'static Manifest) -> Builder {
        Builder::new(manifest)
    }

    /// The layer for `tonic::transport::Server::builder().layer(…)`. It must see the connection's
    /// address, so it belongs on the server, not on one service.
    #[must_use]
    pub fn layer(&self) -> ServerLayer {
        ServerLayer::new(Arc::clone(&self.inner))
    }

    /// Serves by gRPC at this address, as long as the future is polled: for a server without services of tonic's, as
    /// one whose methods are all passed on. Others put [`layer`](Self::layer) on tonic's server.
    ///
    /// # Errors
    /// When the address can't be listened at.
    pub async fn serve(&self, address: SocketAddr) -> Result<(), tonic::transport::Error> {
        let mut server = tonic::transport::Server::builder().layer(self.layer());
        server.add_routes(Routes::default()).serve(address).await
    }

    /// Lets all callers go and takes no new ones. To be called when a graceful shutdown begins:
    /// it waits for open streams, and each caller holds one.
    pub fn close(&self) {
        self.inner.closed.send_replace(true);
    }

    /// The ways of placed calls through this host, and what is known of each.
    #[must_use]
    pub fn place_stats(&self) -> Vec<PlaceStats> {
        self.inner.places.as_ref().map(|places| places.stats()).unwrap_or_default()
    }

    /// The last `count` placed calls of each application, the newest last: which way each took through this host, and why.
    #[must_use]
    pub fn place_explain(&self, count: usize) -> Vec<String> {
        self.inner.places.as_ref().map(|places| places.explain(count)).unwrap_or_default()
    }

    /// Its part in a pool, if it has one.
    #[must_use]
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.inner.pool.as_ref().map(Pooled::stats)
    }

    /// The applications by name.
    #[must_use]
    pub fn stats(&self) -> Vec<ApplicationStats> {
        self.inner.applications.values().map(|hosted| hosted.stats()).collect()
    }
}
