//! Builder of the layer: binds endpoints and takes ownership of the applications.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::Security;
use pathcall_driver::link::{Link, SharingRole};
pub use pathcall_endpoint::map::lease::DEFAULT_LEASE;
use pathcall_endpoint::map::server::KEY_MEMORY;
use pathcall_proto::manifest::{Manifest, MapPath};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::codegen::BoxFuture;

pub use super::error::LayerError;
use super::owned_application::OwnedApplication;
use super::place::PlaceOptions;
use super::pool::{PoolMember, PoolMemberConfig};
use super::registration::{ControllerLink, OwnerRegistration};
use super::store::{self, OwnerStore};
use super::{Inner, Layer};
use crate::application::Catalogue;
use crate::delegate::respond::DelegateDefaults;
use crate::delegate::trace::SharedTraceSink;
use crate::delegate::{RunningHandlers, TraceSink};
use crate::token_key;

/// Default number of register rows that an application requests. In a SyncAgtr application, it is the number of chunks
/// in flight.
pub const DEFAULT_ROWS: u32 = 1024;

/// Default number of calls of a pool that a server works on at once and still counts as idle: the threads of the
/// paper's servers (NetClone §5.1.1).
pub const DEFAULT_WORKERS: usize = 16;

/// Maximum number of calls of a pool that a server works on at once, unless the number of workers is set.
const BEGUN_MAX: usize = 1 << 14;

/// Minimum validity of an admission: callers renew admissions before they expire.
const ADMITTED_MIN: Duration = Duration::from_millis(100);

/// Minimum lease of locks: the holder has to renew it several times within this time.
pub const LEASE_MIN: Duration = Duration::from_millis(100);

/// Default validity of an admission.
pub const DEFAULT_ADMISSION: Duration = Duration::from_secs(300);

/// Builder of a [`Layer`].
#[derive(Debug, Clone)]
#[must_use = "build it"]
pub struct Builder {
    catalogue: Catalogue,
    controller: Option<String>,
    advertise: String,
    data_address: Option<SocketAddr>,
    rows: u32,
    path: Option<MapPath>,
    key_memory: usize,
    authenticate: Option<bool>,
    security: Security,
    lease: Duration,
    shared_memory: bool,
    handlers: Option<RunningHandlers>,
    pool: Option<String>,
    rack: String,
    workers: Option<usize>,
    defaults: DelegateDefaults,
    placing: Option<PlaceOptions>,
    maps: bool,
    admitted_for: Duration,
    store: Option<OwnerStore>,
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
            rows: DEFAULT_ROWS,
            path: None,
            key_memory: KEY_MEMORY,
            authenticate: None,
            security: Security::default(),
            lease: DEFAULT_LEASE,
            shared_memory: true,
            handlers: None,
            pool: None,
            rack: String::new(),
            workers: None,
            defaults: DelegateDefaults::default(),
            placing: None,
            maps: true,
            admitted_for: DEFAULT_ADMISSION,
            store: None,
        }
    }

    /// Keeps the state of applications that add, read and clear values in this store. While another server is the owner,
    /// [`build`](Self::build) waits: this server is its standby, and continues with its state when it ends.
    pub fn store(mut self, store: OwnerStore) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the validity of an admission: for this time the services' interceptors and layers are not asked again about
    /// an admitted caller. The default is [`DEFAULT_ADMISSION`]. A caller that is no longer admitted loses its
    /// membership and its locks within twice this time.
    pub fn admitted_for(mut self, time: Duration) -> Self {
        self.admitted_for = time.max(ADMITTED_MIN);
        self
    }

    /// Adds the applications of another package.
    pub fn manifest(mut self, manifest: &'static Manifest) -> Self {
        self.catalogue.push(manifest);
        self
    }

    /// Sets the controller to register with, such as `http://host:port`. Without a controller all map operations run in
    /// software.
    pub fn controller(mut self, address: impl Into<String>) -> Self {
        self.controller = Some(address.into());
        self
    }

    /// Sets the gRPC address of this server that the controller gives to clients that look up an application and to
    /// callers of the pool, which use it when their server fails.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = address.into();
        self
    }

    /// Sets the address for map frames: an address of this host, with port 0 unless there is only one application. The
    /// default is any address; elements then use the address from which the server reaches the controller.
    pub fn data_address(mut self, address: SocketAddr) -> Self {
        self.data_address = Some(address);
        self
    }

    /// Sets the path of the map frames, instead of the filters' `path`, which `None` leaves. By default ([`MapPath::Automatic`]) an application
    /// uses an element once a caller on another host has joined. As long as server and callers are on one host, an
    /// element would be one more process that has to run for each frame. [`MapPath::Element`] always uses one.
    pub fn path(mut self, path: impl Into<Option<MapPath>>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the number of register rows that each application requests; the default is [`DEFAULT_ROWS`], 0 means none.
    /// A row has 256 lanes in a SyncAgtr application and 32 in others.
    pub fn memory(mut self, rows: u32) -> Self {
        self.rows = rows;
        self
    }

    /// Sets the maximum memory of this process for the keys of each application, bytes; the default is 2 GiB. When it
    /// is full, a call with a new key fails with RESOURCE_EXHAUSTED; calls with known keys work.
    pub fn key_memory(mut self, bytes: usize) -> Self {
        self.key_memory = bytes;
        self
    }

    /// Sets whether frames of maps, pool and delegated messages carry tokens: a keyed hash, by which elements, servers
    /// and callers drop frames of other senders. The default is on if the server has [certificates](Self::security),
    /// and off otherwise; tokens take time for each frame. Callers need no setting: they get the key over the gRPC
    /// connection when they join. Keys are sent across a network over TLS only; a caller that joins from another host
    /// without TLS is refused. For handlers that register in a controller's directory, [turn tokens on before they
    /// start](crate::delegate::Handlers::authenticate_frames).
    pub fn authenticate_frames(mut self, authenticate: bool) -> Self {
        self.authenticate = Some(authenticate);
        self
    }

    /// Sets the server's certificate, with which it registers at the controller, and the rules of access. Callers with
    /// a certificate, if the service's TLS requests one, need a rule that lets them join the application.
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }

    /// Sets the lease of locks of a caller that is silent; the default is [`DEFAULT_LEASE`], the minimum [`LEASE_MIN`].
    /// A channel keeps its locks while its process runs and reaches the server. A channel that hangs or is cut off
    /// loses them within this time, and considers them lost before.
    pub fn lock_lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// Sets whether frames to and from an element on this host go through shared memory, if the element supports it;
    /// the default is true.
    pub fn shared_memory(mut self, share: bool) -> Self {
        self.shared_memory = share;
        self
    }

    /// Sets the handlers of delegated methods. Callers without Pathcall reach them, too: the layer calls the handlers
    /// for them.
    pub fn handlers(mut self, handlers: RunningHandlers) -> Self {
        self.defaults.directory = handlers.directory().clone();
        self.handlers = Some(handlers);
        self
    }

    /// Sets the name of the pool that this server joins at the controller, if it has methods with the option `clone`.
    /// All servers of a pool must give the same answers. The default is the names of these methods' services.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// Sets the rack of this server: calls of its pool from other racks come by the element of this rack
    /// (`pathcall element --rack`), if it has one. By default none is named.
    pub fn rack(mut self, name: impl Into<String>) -> Self {
        self.rack = name.into();
        self
    }

    /// Sets how many calls of the pool are worked on at once, at least one; others wait in order of arrival. The
    /// default is the methods' option `workers`, or else the slots of the host's processor and accelerator. Without any
    /// of these, every call begins at once, as in tonic, and those beyond [`DEFAULT_WORKERS`] count as waiting. Only a
    /// server without waiting calls gets clones.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Leaves the maps of methods with filters to another server, to which the callers of these methods connect: an
    /// application has one live owner. So the servers of a pool can share one manifest, and one of them owns the maps.
    pub fn without_maps(mut self) -> Self {
        self.maps = false;
        self
    }

    /// Sets the devices of this host for methods with the option `place`, both of services and of
    /// [handlers](Self::handlers). Without it, the processor answers all calls.
    pub fn place(mut self, placing: PlaceOptions) -> Self {
        self.placing = Some(placing);
        self
    }

    /// Traces the delegated calls that the layer makes for callers without Pathcall, and passes the traces to `traces`.
    pub fn traces(mut self, traces: impl TraceSink) -> Self {
        self.defaults.traces = Some(SharedTraceSink::new(traces));
        self
    }

    /// Builds the layer. An unreachable controller is not an error: the layer retries, and uses what the controller
    /// grants before an application's first caller. If the lease of a failed server still holds a name, `build` waits
    /// for its end, some seconds.
    ///
    /// # Errors
    /// There is no UDP port, or the controller refuses an application.
    pub fn build(self) -> BoxFuture<Layer, LayerError> {
        Box::pin(async move {
            let controller = match &self.controller {
                Some(address) => Some(ControllerLink::new(address, &self.security)?),
                None => None,
            };
            let mut applications = BTreeMap::new();
            let mut registrations = JoinSet::new();
            for (name, application) in self.catalogue.applications()?.into_iter().filter(|_| self.maps) {
                let key = if self.authenticates() { Some(draw_key(name)?) } else { None };
                let application = self.path.map_or(application, |path| application.with_path(path));
                let failed = |source| LayerError::Store { app: name, source };
                let open = match &self.store {
                    Some(store) => store::open(store, &application).await.map_err(failed)?,
                    None => None,
                };
                let owned =
                    OwnedApplication::new(application, self.bind(name)?, self.lease, key, self.rows, self.key_memory);
                if let Some(controller) = &controller {
                    let owner = OwnerRegistration::new(controller.clone(), Arc::clone(&owned), self.advertise.clone());
                    registrations.spawn(owner.register().await?);
                }
                if let Some(open) = open {
                    owned.continue_from(open).map_err(failed)?;
                }
                applications.insert(name, owned);
            }
            let places = self.placing.clone().map(|placing| placing.build(&self.catalogue, self.handlers.as_ref()));
            let places = places.transpose()?.map(Arc::new);
            if let (Some(handlers), Some(places)) = (&self.handlers, &places) {
                handlers.place_by(|path, handler| places.handler(path, handler));
            }
            if let Some(handlers) = self.handlers.as_ref().filter(|_| self.authenticates()) {
                handlers.authenticate().map_err(LayerError::NoNodeKey)?;
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
                defaults: self.defaults,
                guard: self.security.guard(),
                security: self.security,
                _registrations: registrations,
            };
            Ok(Layer { inner: Arc::new(inner) })
        })
    }

    fn authenticates(&self) -> bool {
        self.authenticate.unwrap_or(self.security.credentials().is_some())
    }

    fn bind(&self, app: &'static str) -> Result<Link, LayerError> {
        let address = self.data_address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        bind(self.data_address, self.shared_memory).map_err(|source| LayerError::Bind { app, address, source })
    }

    /// Membership in a pool, if there are cloned methods and a controller.
    fn pooled(&self, controller: Option<&ControllerLink>, closed: &watch::Sender<bool>) -> Option<PoolMember> {
        let services: BTreeSet<&str> =
            self.catalogue.all_cloned().filter_map(|method| service_of(method.path)).collect();
        if services.is_empty() {
            return None;
        }
        let option = self.catalogue.all_cloned().map(|method| method.workers).max().filter(|workers| *workers > 0);
        let slots = self.placing.as_ref().map(PlaceOptions::slots);
        let workers = self.workers.or(option.map(|workers| workers as usize)).or(slots);
        let terms = PoolMemberConfig {
            name: self.pool.clone().unwrap_or_else(|| services.into_iter().collect::<Vec<_>>().join(",")),
            workers: workers.unwrap_or(DEFAULT_WORKERS),
            begun_max: workers.unwrap_or(BEGUN_MAX),
            authenticate: self.authenticates(),
            service_address: self.advertise.clone(),
            rack: self.rack.clone(),
            // A given port belongs to an application.
            data_address: self.data_address.map(|address| SocketAddr::new(address.ip(), 0)),
            shared_memory: self.shared_memory,
        };
        Some(PoolMember::new(terms, self.catalogue.clone(), controller?.clone(), closed.subscribe()))
    }
}

/// Binds a link at this address, or at any.
pub(super) fn bind(address: Option<SocketAddr>, shared_memory: bool) -> io::Result<Link> {
    let mut link = match address {
        Some(address) => Link::bind(address),
        // Callers use either address family, if the host has both. Linux can send to both from one socket.
        None if cfg!(target_os = "linux") => {
            Link::bind((Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|_| Link::bind((Ipv4Addr::UNSPECIFIED, 0).into()))
        }
        None => Link::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
    }?;
    if shared_memory {
        // On a system without shared memory, frames go by UDP.
        let _ = link.share_memory(SharingRole::Request);
    }
    Ok(link)
}

/// Service of a method's path.
pub(super) fn service_of(path: &'static str) -> Option<&'static str> {
    path.strip_prefix('/')?.split('/').next()
}

fn draw_key(app: &'static str) -> Result<TokenKey, LayerError> {
    token_key::random_key().map_err(|source| LayerError::Randomness { app, source })
}
