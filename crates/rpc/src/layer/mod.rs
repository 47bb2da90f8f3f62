//! Server side: a `tower` layer around the services of a `tonic` server.
//!
//! ```text
//! Join ─ admission ───────────► peer_service ─ controller ─► owned_application: member, by its session
//! filter, `pathcall-call` ────────────────────────────────► handler
//! filter, `pathcall-direct` ── admission ─ owned_application ─► map operation, and the handler for untyped content
//! filter, plain gRPC ────────── plain: admission ─ owned_application ─► the same; sums of several callers, locks: refused
//! clone ══ frames ═► pool ════════════════════════════════► handler
//! place ──────────────────────► place ─ selector ─► handler of the processor, or of the accelerator
//! delegate ───────────────────► service ─ node ───────────► its delegated handler, or `place` before two of them
//! no option ──────────────────────────────────────────────► handler
//! ```
//!
//! `builder` starts the layer; `service` dispatches calls. `admission` passes callers through the services' own checks,
//! before they have any effect; `sessions` has the admitted callers. `peer_service` serves the requests of channels, and
//! `membership` holds the joined ones; `owned_application` has an application and its map; `registration` registers at
//! the controller; `store` keeps the state; `plain` makes calls of plain gRPC clients; `handled_sums` passes sums to the handler; `streamed` executes streams;
//! `pool` has the queue of cloned calls; `carried_frames` receives map frames over HTTP/2.

mod admission;
pub mod builder;
mod carried_frames;
mod error;
mod handled_sums;
mod membership;
mod owned_application;
mod peer_service;
pub mod place;
mod plain;
mod pool;
mod registration;
mod service;
mod sessions;
mod store;
mod streamed;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::admission::{Admission, CallerCredentials};
use pathcall_auth::{AccessGuard, Security};
pub use pathcall_driver::carrier::CarriedStats;
pub use pathcall_endpoint::map::server::ServerStats;
use pathcall_proto::manifest::Manifest;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tonic::{Request, Status};

pub use self::builder::{Builder, LayerError};
use self::owned_application::OwnedApplication;
use self::place::PlacedMethods;
pub use self::place::{PlaceOptions, PlaceSetupError, PlaceStats};
use self::pool::PoolMember;
pub use self::pool::{CloneWorkerStats, PoolStats};
use self::registration::ControllerLink;
pub use self::service::{LayerService, Services};
pub use self::store::{OwnerStore, OwnerStoreError};
use crate::application::Catalogue;
use crate::delegate::RunningHandlers;
use crate::delegate::respond::DelegateDefaults;

/// Tower layer that adds Pathcall to the services of a tonic server. It owns the maps of its manifest's applications
/// and admits callers. Cloning it is cheap; clones share all state.
///
/// ```no_run
/// # use pathcall_rpc as pathcall;
/// # use pathcall_test_support::stubs::{self as pb, training_server::{Training, TrainingServer}};
/// # async fn example(handler: impl Training) -> Result<(), Box<dyn std::error::Error>> {
/// let pathcall = pathcall::Layer::builder(&pb::PATHCALL).controller("http://127.0.0.1:7700").build().await?;
/// tonic::transport::Server::builder()
///     .layer(pathcall.clone())
///     .add_service(TrainingServer::new(handler))
///     .serve_with_shutdown("[::]:50051".parse()?, async move {
///         let _ = tokio::signal::ctrl_c().await;
///         pathcall.close();
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// It belongs on the tonic server, not on one service, because it needs the address of the connection.
///
/// Without a controller, or while it is unreachable, all map operations run in software. A handler of a method with a
/// filter runs if and only if the request has untyped content or the filter's `to` is SERVER. The handler sees the
/// message without its typed field (with it, if `to` is SERVER). The typed field of its reply is replaced by the map's
/// answer.
///
/// The service's interceptors, and layers that are added after this one, admit callers: before a caller joins, when it
/// calls another method or uses other metadata, and again after [`Builder::admitted_for`], they get a request with the
/// method's path and the call's metadata. No handler runs for this request. A caller that they refuse has no effect.
///
/// A caller's membership ends with its connection. To detect a caller whose host has failed, set
/// `http2_keepalive_interval` on the tonic server.
#[derive(Clone, Debug)]
pub struct Layer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    catalogue: Catalogue,
    /// Owned applications by name.
    applications: BTreeMap<&'static str, Arc<OwnedApplication>>,
    controller: Option<ControllerLink>,
    /// Membership in a pool, if there are cloned methods.
    pool: Option<PoolMember>,
    /// Handlers of delegated methods.
    handlers: Option<RunningHandlers>,
    /// Placed methods.
    places: Option<Arc<PlacedMethods>>,
    /// Validity of an admission.
    admitted_for: Duration,
    /// Options of delegated calls for callers without Pathcall.
    defaults: DelegateDefaults,
    /// Rules of access by certificates.
    security: Security,
    guard: AccessGuard,
    /// True when the server shuts down: all memberships end.
    closed: watch::Sender<bool>,
    /// Tasks that keep the registrations; they end with the layer.
    _registrations: JoinSet<()>,
}

impl Inner {
    /// Whether keys of tokens may be sent over the request's connection.
    fn check_key_transport<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let tls = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>().is_some();
        match self.security.permits_key_transport(request.remote_addr(), tls) {
            true => Ok(()),
            false => Err(Status::failed_precondition(
                "frames carry tokens, and their key is not sent unencrypted over a network: connect with TLS",
            )),
        }
    }
}

/// State and counters of an application at its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedApplicationStats {
    /// `AppName`.
    pub name: &'static str,
    /// Number of callers that have joined.
    pub members: usize,
    /// Whether an element takes part.
    pub element: bool,
    /// Whether the state is in a store.
    pub stored: bool,
    /// Reason of this server for using no element; `None` if it uses one that has memory.
    pub no_memory_reason: Option<&'static str>,
    /// Direct calls: keyed additions and queries, each in one gRPC call.
    pub direct: DirectStats,
    /// Calls of plain gRPC clients.
    pub plain: DirectStats,
    /// Counters of map frames; all 0 before the first caller.
    pub map: ServerStats,
    /// Counters of map frames carried over HTTP/2; `open` is the number of callers that UDP does not reach.
    pub carried: CarriedStats,
}

/// Counters of calls that the layer executes as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectStats {
    /// Number of calls.
    pub calls: u64,
    /// Bytes of their messages.
    pub bytes: u64,
}

impl Layer {
    /// Builder of a layer for the applications of this manifest, the constant that `pathcall-build` generates with the
    /// stubs.
    pub fn builder(manifest: &'static Manifest) -> Builder {
        Builder::new(manifest)
    }

    /// Serves gRPC at this address, as long as the future is polled: for a server without tonic services, for example
    /// with delegated methods only. Other servers add the layer to a tonic server.
    ///
    /// # Errors
    /// The server cannot listen on the address.
    pub async fn serve(&self, address: SocketAddr) -> Result<(), tonic::transport::Error> {
        let mut server = tonic::transport::Server::builder().layer(self.clone());
        server.add_routes(Routes::default()).serve(address).await
    }

    /// Ends all memberships and refuses new ones. Call it when a graceful shutdown begins: the shutdown waits for open
    /// streams, and each caller has one.
    pub fn close(&self) {
        self.inner.closed.send_replace(true);
    }

    /// Counters of each path of placed calls through this host.
    #[must_use]
    pub fn place_stats(&self) -> Vec<PlaceStats> {
        self.inner.places.as_ref().map(|places| places.stats()).unwrap_or_default()
    }

    /// The last `count` placed calls of each application, the newest last: a line of text with the path and the reason
    /// of its choice.
    #[must_use]
    pub fn place_explain(&self, count: usize) -> Vec<String> {
        self.inner.places.as_ref().map(|places| places.explain(count)).unwrap_or_default()
    }

    /// Counters of the pool membership, if there is one.
    #[must_use]
    pub fn pool_stats(&self) -> Option<PoolStats> {
        self.inner.pool.as_ref().map(PoolMember::stats)
    }

    /// Exports the counters of the pool membership as OpenTelemetry metrics
    /// `pathcall.server.*` of this meter.
    #[cfg(feature = "otel")]
    pub fn export_metrics(&self, meter: &opentelemetry::metrics::Meter) {
        let inner = Arc::downgrade(&self.inner);
        crate::metrics::export_pool(meter, move || inner.upgrade()?.pool.as_ref().map(PoolMember::stats));
    }

    /// Counters of the applications, in order of names.
    #[must_use]
    pub fn stats(&self) -> Vec<OwnedApplicationStats> {
        self.inner.applications.values().map(|owned| owned.stats()).collect()
    }
}
