//! Starts a server: binds its endpoints and takes ownership of its applications.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::{Security, TargetError};
use pathcall_endpoint::driver::link::{Link, Sharing};
pub use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::KEY_MEMORY;
use pathcall_proto::manifest::Manifest;
use pathcall_wire::TokenKey;
use rand::rngs::SysError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::codegen::BoxFuture;

use super::hosted::Hosted;
use super::place::{Placing, PlacingError};
use super::pool::{Pooled, Terms};
use super::registration::{Controller, Owner};
use super::{Inner, Server};
use crate::application::{Catalogue, Disagreement};
use crate::delegate::respond::Habits;
use crate::delegate::trace::Sink;
use crate::delegate::{Serving, Traces};
use crate::key;

/// Register rows that an application asks for: of a SyncAgtr application, as many chunks of an
/// array are on their way at once.
pub const ROWS: u32 = 1024;

/// Calls of a pool that a server works on at once and counts as idle: the threads of the paper's servers (NetClone §5.1.1).
pub const WORKERS: usize = 16;

/// Calls of a pool that a server works on at once at most, unless it is told how many workers it has.
const BEGUN_MAX: usize = 1 << 14;

/// The shortest time that callers are admitted for: callers ask before it is over.
const ADMITTED_MIN: Duration = Duration::from_millis(100);

/// The shortest lease of locks: its holder has to be heard several times within it.
pub const LEASE_MIN: Duration = Duration::from_millis(100);

/// For how long a caller is admitted, until the services are asked again.
pub const ADMITTED_FOR: Duration = Duration::from_secs(300);

/// Options of a server that is about to start.
#[derive(Debug, Clone)]
#[must_use = "build it"]
pub struct Builder {
    catalogue: Catalogue,
    controller: Option<String>,
    advertise: String,
    data_address: Option<SocketAddr>,
    rows: u32,
    key_memory: usize,
    authenticate: Option<bool>,
    security: Security,
    lease: Duration,
    shared_memory: bool,
    handlers: Option<Serving>,
    pool: Option<String>,
    workers: Option<usize>,
    habits: Habits,
    placing: Option<Placing>,
    maps: bool,
    admitted_for: Duration,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The manifests do not fit together.
    #[error(transparent)]
    Manifest(#[from] Disagreement),
    /// The controller can't be connected to by this address.
    #[error(transparent)]
    Controller(#[from] TargetError),
    /// No UDP port for an application's map frames.
    #[error("no UDP port for {app} on {address}: {source}")]
    Bind {
        /// The `AppName`.
        app: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no randomness for the key that signs map frames.
    #[error("no randomness for the key that signs the map frames of {app}: {source}")]
    Randomness {
        /// The `AppName`.
        app: &'static str,
        /// What the system says.
        source: SysError,
    },
    /// The same of the key that signs delegated messages.
    #[error("no randomness for the key that signs delegated messages: {0}")]
    NoNodeKey(SysError),
    /// Methods can't be placed on this host.
    #[error(transparent)]
    Placing(#[from] PlacingError),
    /// The controller does not give the application to this server.
    #[error("the controller at {controller} refuses {app}: {reason}")]
    Refused {
        /// The `AppName`.
        app: &'static str,
        /// The controller's address.
        controller: String,
        /// What it says: another live server owns the name, or its filters differ.
        reason: String,
    },
}

impl Builder {
    pub(super) fn new(manifest: &'static Manifest) -> Self {
        let mut catalogue = Catalogue::default();
        catalogue.push(manifest);
        Self {
            catalogue,
            controller: None,
            advertise: String::new(),
            data_address: None,
            rows: ROWS,
            key_memory: KEY_MEMORY,
            authenticate: None,
            security: Security::default(),
            lease: LEASE,
            shared_memory: true,
            handlers: None,
            pool: None,
            workers: None,
            habits: Habits::default(),
            placing: None,
            maps: true,
            admitted_for: ADMITTED_FOR,
        }
    }

    /// For how long a caller that was let in is believed to be, until the services' interceptors and layers are asked again:
    /// [`ADMITTED_FOR`] unless given. One that they do not let in any more is gone, with its locks, within twice this time.
    pub fn admitted_for(mut self, time: Duration) -> Self {
        self.admitted_for = time.max(ADMITTED_MIN);
        self
    }

    /// Adds the applications of another package.
    pub fn manifest(mut self, manifest: &'static Manifest) -> Self {
        self.catalogue.push(manifest);
        self
    }

    /// The controller to register with, such as `http://host:port`; without one, everything works
    /// in software.
    pub fn controller(mut self, address: impl Into<String>) -> Self {
        self.controller = Some(address.into());
        self
    }

    /// The gRPC address that the controller tells those who look an application up, and callers of the pool: they go
    /// on by another server when the one that they know is gone.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = address.into();
        self
    }

    /// Where map frames come in: an address of this host, with port 0 unless there is one
    /// application only. Any address, unless given; then elements are told the one that the
    /// controller is reached from.
    pub fn data_address(mut self, address: SocketAddr) -> Self {
        self.data_address = Some(address);
        self
    }

    /// Register rows that each application asks for: [`ROWS`] unless given, 0 for none. A row has
    /// 256 lanes in a SyncAgtr application and 32 in the others.
    pub fn memory(mut self, rows: u32) -> Self {
        self.rows = rows;
        self
    }

    /// Bytes of this process's memory that the keys of each application may take, at the worst: 2 GiB
    /// unless given. A call with a key for which there is no more room says RESOURCE_EXHAUSTED; keys that
    /// are known go on.
    pub fn key_memory(mut self, bytes: usize) -> Self {
        self.key_memory = bytes;
        self
    }

    /// Whether frames, of maps, of the pool and of delegated messages, carry tokens: a keyed hash by which elements, servers and
    /// callers know each other's frames, and drop those of anybody else. On where the server has
    /// [certificates](Self::security), else off, unless given; it takes time for every frame. Callers need not be told: the
    /// key comes with their grant when they join, over the gRPC connection. Keys cross a network by TLS only: who joins by
    /// another connection from another host is refused. Handlers that take a place in a controller's directory should be
    /// [told before they start](crate::delegate::Handlers::authenticate_frames).
    pub fn authenticate_frames(mut self, authenticate: bool) -> Self {
        self.authenticate = Some(authenticate);
        self
    }

    /// The server's certificate, by which it registers with the controller, and who may do what: callers that show a
    /// certificate, if the service's TLS asks for one, have to be allowed to join the application, too.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// How long locks are lent to a caller that is not heard of: [`LEASE`] unless given, and at least
    /// [`LEASE_MIN`]. A channel keeps its locks as long as its process runs and reaches the server; one
    /// that hangs or is cut off loses them within this time, and takes them for lost before.
    pub fn lock_lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// Whether frames to and from an element on this host go by memory shared with it, where it agrees;
    /// they do, unless given.
    pub fn shared_memory(mut self, share: bool) -> Self {
        self.shared_memory = share;
        self
    }

    /// Handlers of the methods that servers may pass on. Callers without Pathcall reach them too: the layer
    /// calls on their behalf.
    pub fn handlers(mut self, handlers: Serving) -> Self {
        self.handlers = Some(handlers);
        self
    }

    /// The pool that this server joins at the controller, if it has methods with the option `clone`: servers of a
    /// pool answer the same calls alike. The names of these methods' services, unless given.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// Calls of the pool that are worked on at once, at least one; others wait in the order in which they came. What
    /// the methods' options say, or the slots of the host's processor and accelerator, unless given. Where nobody says
    /// it, every call is begun when it comes, as by tonic, and those beyond [`WORKERS`] count as ones that wait. Only a
    /// server where none waits is sent clones.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Leaves the maps of methods with filters to another server, the one that callers of these methods connect to: an
    /// application has one live owner. So the servers of a pool, of which one owns the maps, can have one manifest.
    pub fn without_maps(mut self) -> Self {
        self.maps = false;
        self
    }

    /// What this host can answer methods with the option `place` with: those of services, and those that its
    /// [handlers](Self::handlers) work on. Without it, the processor answers them all.
    pub fn place(mut self, placing: Placing) -> Self {
        self.placing = Some(placing);
        self
    }

    /// Has the calls traced that the layer makes of callers without Pathcall, and takes the traces.
    pub fn traces(mut self, traces: impl Traces) -> Self {
        self.habits.traces = Some(Sink::new(traces));
        self
    }

    /// Starts. A controller that can't be reached is no error: it is tried again and again, and what
    /// it grants before an application's first caller comes is still used. While the lease of a server that
    /// has died still holds a name, its end is waited for: some seconds.
    ///
    /// # Errors
    /// When there is no port, or the controller refuses an application.
    pub fn build(self) -> BoxFuture<Server, BuildError> {
        Box::pin(async move {
            let controller = match &self.controller {
                Some(address) => Some(Controller::new(address, &self.security)?),
                None => None,
            };
            let mut applications = BTreeMap::new();
            let mut registrations = JoinSet::new();
            for (name, application) in self.catalogue.applications()?.into_iter().filter(|_| self.maps) {
                let key = if self.authenticates() { Some(draw_key(name)?) } else { None };
                let hosted = Hosted::new(application, self.bind(name)?, self.lease, key, self.rows, self.key_memory);
                if let Some(controller) = &controller {
                    let owner = Owner::new(controller.clone(), Arc::clone(&hosted), self.advertise.clone());
                    registrations.spawn(owner.register().await?);
                }
                applications.insert(name, hosted);
            }
            let places = self.placing.clone().map(|placing| placing.build(&self.catalogue, self.handlers.as_ref()));
            let places = places.transpose()?.map(Arc::new);
            if let (Some(handlers), Some(places)) = (&self.handlers, &places) {
                handlers.place_by(|path, handler| places.handler(path, handler));
            }
            if let Some(handlers) = self.handlers.as_ref().filter(|_| self.authenticates()) {
                handlers.authenticate().map_err(BuildError::NoNodeKey)?;
            }
            let closed = watch::Sender::new(false);
            let inner = Inner {
                pool: self.pooled(controller.as_ref(), &closed),
                places,
                catalogue: self.catalogue,
                applications,
                controller,
                handlers: self.handlers,
                closed,
                admitted_for: self.admitted_for,
                habits: self.habits,
                guard: self.security.guard(),
                security: self.security,
                _registrations: registrations,
            };
            Ok(Server { inner: Arc::new(inner) })
        })
    }

    fn authenticates(&self) -> bool {
        self.authenticate.unwrap_or(self.security.credentials().is_some())
    }

    fn bind(&self, app: &'static str) -> Result<Link, BuildError> {
        let address = self.data_address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        bind(self.data_address, self.shared_memory).map_err(|source| BuildError::Bind { app, address, source })
    }

    /// This server's part in a pool, if there are methods that one answers and a controller that knows it.
    fn pooled(&self, controller: Option<&Controller>, closed: &watch::Sender<bool>) -> Option<Pooled> {
        let services: BTreeSet<&str> =
            self.catalogue.all_cloned().filter_map(|method| service_of(method.path)).collect();
        if services.is_empty() {
            return None;
        }
        let said = self.catalogue.all_cloned().map(|method| method.workers).max().filter(|workers| *workers > 0);
        let slots = self.placing.as_ref().map(Placing::slots);
        let workers = self.workers.or(said.map(|workers| workers as usize)).or(slots);
        let terms = Terms {
            name: self.pool.clone().unwrap_or_else(|| services.into_iter().collect::<Vec<_>>().join(",")),
            workers: workers.unwrap_or(WORKERS),
            begun_max: workers.unwrap_or(BEGUN_MAX),
            authenticate: self.authenticates(),
            service_address: self.advertise.clone(),
            // The port is an application's, if it is given.
            data_address: self.data_address.map(|address| SocketAddr::new(address.ip(), 0)),
            shared_memory: self.shared_memory,
        };
        Some(Pooled::new(terms, self.catalogue.clone(), controller?.clone(), closed.subscribe()))
    }
}

/// A link at this address, or at any.
pub(super) fn bind(address: Option<SocketAddr>, shared_memory: bool) -> io::Result<Link> {
    let mut link = match address {
        Some(address) => Link::bind(address),
        // Callers come over either family, if the host has both. Linux sends to either from one
        // socket.
        None if cfg!(target_os = "linux") => {
            Link::bind((Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|_| Link::bind((Ipv4Addr::UNSPECIFIED, 0).into()))
        }
        None => Link::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
    }?;
    if shared_memory {
        // A system without it has UDP.
        let _ = link.share_memory(Sharing::Seek);
    }
    Ok(link)
}

/// The service of a method's path.
pub(super) fn service_of(path: &'static str) -> Option<&'static str> {
    path.strip_prefix('/')?.split('/').next()
}

fn draw_key(app: &'static str) -> Result<TokenKey, BuildError> {
    key::draw().map_err(|source| BuildError::Randomness { app, source })
}
