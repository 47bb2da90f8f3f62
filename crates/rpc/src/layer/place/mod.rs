//! Placed calls: the host's processor or its accelerator answers, whichever finishes sooner (LEO).
//!
//! ```text
//! layer ─► selector of the application ─┬─ cpu ─► the services of the tonic server
//!             ▲ duration, or failure    └─ acc ─► the services given to `PlaceOptions`
//! node ──► the same: a handler of the server's node, or the one given to `PlaceOptions`
//! ```
//!
//! Both are ordinary services of the same generated type, or handlers of a delegated method. A device works on as many
//! calls at once as it has slots; the others wait, and the selector takes this into account. If the accelerator fails
//! before it has replied, the processor does the call.

mod accelerator;
mod ordering_key;
mod placed_call;
mod placed_methods;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pathcall_place::model::NodeRole;
pub use pathcall_place::select::Config;
use pathcall_place::{Application, Paths};
pub use pathcall_place::{DeviceRole, Hardware, ModelError, PathState, SelectionStrategy};
use pathcall_proto::delegate::Method;
use pathcall_proto::manifest::Placed;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tower::Service;

pub(super) use self::placed_methods::PlacedMethods;
use crate::application::Catalogue;
use crate::delegate::handlers::{Handler, erase_handler};
use crate::delegate::{DelegatedCall, RunningHandlers};

/// Default maximum size of a request of a placed method, bytes: it is stored until it is answered.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Default of [`PlaceOptions::acc_timeout`].
const ACC_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of placed methods: the host's devices, the accelerator's services and handlers, and the selection strategy.
#[derive(Clone)]
#[must_use = "give it to the server's builder"]
pub struct PlaceOptions {
    hardware: Hardware,
    strategy: SelectionStrategy,
    config: Config,
    request_bytes_max: usize,
    acc_timeout: Duration,
    routes: RoutesBuilder,
    accelerated: BTreeSet<&'static str>,
    /// Handlers of delegated methods by path.
    handlers: BTreeMap<&'static str, Handler>,
    admin_socket: Option<PathBuf>,
}

/// Error of placed methods on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The application does not fit the host.
    #[error("{path}: {mistake}")]
    Model {
        /// Path of the method.
        path: &'static str,
        /// Error in the application's model.
        mistake: ModelError,
    },
    /// A method has a dataflow over the accelerator, but no service there.
    #[error("{path} has a dataflow over the accelerator, but {service} is missing: add it with PlaceOptions::acc")]
    NoService {
        /// Path of the method.
        path: &'static str,
        /// Name of its service.
        service: String,
    },
    /// A delegated method has a dataflow over the accelerator, but no handler there.
    #[error(
        "{path} has a dataflow over the accelerator, but its handler is missing: add it with PlaceOptions::acc_handler"
    )]
    NoHandler {
        /// Path of the method.
        path: &'static str,
    },
    /// The admin socket cannot be opened.
    #[error("cannot open admin socket {}: {reason}", .path.display())]
    AdminSocket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        reason: String,
    },
}

/// Counters of one path of placed calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStats {
    /// Name of the application.
    pub application: String,
    /// Type of request.
    pub request: String,
    /// Name of the dataflow.
    pub path: String,
    /// Device that answers.
    pub role: DeviceRole,
    /// Time of a request on an idle host, by the model, in nanoseconds (`T`).
    pub traverse_ns: u64,
    /// Time that a request adds to the wait of each request behind it, in nanoseconds.
    pub toll_ns: u64,
    /// State of the selector.
    pub state: PathState,
}

impl fmt::Display for PlaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { application, request, path, role, traverse_ns, toll_ns, state } = self;
        let PathState { sent, done, failed, probes, times_left, in_flight, k, learned, .. } = state;
        write!(f, "{application} {request} {path} ({role}): T {traverse_ns} ns, toll {toll_ns} ns; sent {sent}, ")?;
        write!(
            f,
            "done {done}, failed {failed}, probes {probes}, left {times_left} times, in flight {in_flight}, k {k}"
        )?;
        learned.iter().try_for_each(|learned| write!(f, "; the next in {learned}"))
    }
}

impl PlaceOptions {
    /// Options for a host with this hardware. The processor's part are the services of the tonic server.
    pub fn new(hardware: Hardware) -> Self {
        Self {
            hardware,
            strategy: SelectionStrategy::Leo,
            config: Config::default(),
            request_bytes_max: REQUEST_BYTES_MAX,
            acc_timeout: ACC_TIMEOUT,
            routes: Routes::builder(),
            accelerated: BTreeSet::new(),
            handlers: BTreeMap::new(),
            admin_socket: None,
        }
    }

    /// Adds the accelerator's part of a service: a generated server whose methods use the device.
    ///
    /// The call is made on the processor if the accelerator's method panics, does not reply within
    /// [`Self::acc_timeout`], or fails with UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, UNKNOWN, DATA_LOSS or
    /// UNIMPLEMENTED. It must not have had an effect then. Any other status is an answer to the caller.
    pub fn acc<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.accelerated.insert(S::NAME);
        self
    }

    /// Adds the accelerator's handler of a delegated method. The processor's part is the handler in the server's
    /// [`Handlers`](crate::delegate::Handlers). It runs if the accelerator's handler fails as in [`Self::acc`] before
    /// it has sent a reply or passed a request on.
    pub fn acc_handler<M, H, F>(mut self, handler: H) -> Self
    where
        M: Method,
        H: Fn(M::Request, DelegatedCall<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        self.handlers.insert(M::PATH, erase_handler::<M, H, F>(handler));
        self
    }

    /// Sets the selection strategy; the default is [`SelectionStrategy::Leo`].
    pub fn strategy(mut self, strategy: SelectionStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the selector's limits.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the maximum size of a request, bytes; the default is 64 MiB.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets the time after which the accelerator's handler is dropped if it has not replied, including its wait for a
    /// slot; the processor then does the call. The default is 10 s. A call with a deadline waits at most for half of
    /// the time left.
    pub fn acc_timeout(mut self, timeout: Duration) -> Self {
        self.acc_timeout = timeout;
        self
    }

    /// Opens an admin socket at this path, a new file, for `pathcall place explain`: it shows the paths of the last
    /// calls and the reasons.
    #[cfg(unix)]
    pub fn admin_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.admin_socket = Some(path.into());
        self
    }

    /// Number of calls that the host can work on at once: the slots of its processor and its accelerator.
    pub(super) fn slots(&self) -> usize {
        [DeviceRole::Cpu, DeviceRole::Acc].into_iter().map(|role| slots(&self.hardware, role)).sum()
    }

    /// Prepares all placed methods; those of one application share a selector. Delegated methods are included only if
    /// this server has their handlers.
    pub(super) fn build(
        self,
        catalogue: &Catalogue,
        handlers: Option<&RunningHandlers>,
    ) -> Result<PlacedMethods, PlaceError> {
        let mut texts: BTreeMap<(&'static str, &'static str), Vec<&'static Placed>> = BTreeMap::new();
        let here = |method: &&'static Placed| {
            catalogue.delegated(method.path).is_none() || handlers.is_some_and(|handlers| handlers.has(method.path))
        };
        for method in catalogue.all_placed().filter(here) {
            texts.entry((method.file, method.application)).or_default().push(method);
        }
        let slots = [DeviceRole::Cpu, DeviceRole::Acc].map(|role| slots(&self.hardware, role));
        let acc = (self.routes.clone().routes(), self.handlers.clone());
        let mut places = PlacedMethods::new(acc, self.request_bytes_max, self.acc_timeout, slots);
        for ((file, text), methods) in texts {
            let wrong = |mistake| PlaceError::Model { path: methods[0].path, mistake };
            let application = Application::parse(file, text).map_err(wrong)?;
            let paths = Paths::of_host(&self.hardware, &application).map_err(wrong)?;
            for method in &methods {
                self.answered(&paths, method, catalogue)?;
            }
            places.add(paths, self.strategy, self.config, &methods);
        }
        #[cfg(unix)]
        if let Some(path) = self.admin_socket {
            let opened = places.open_admin_socket(&path);
            opened.map_err(|error| PlaceError::AdminSocket { path, reason: error.to_string() })?;
        }
        Ok(places)
    }

    /// Checks that each path of a method has a service or handler.
    fn answered(&self, paths: &Paths, method: &Placed, catalogue: &Catalogue) -> Result<(), PlaceError> {
        let (path, kind) = (method.path, paths.kind(method.request));
        let mut ways = kind.into_iter().flat_map(|kind| paths.of_kind(kind));
        if !ways.any(|way| way.role == DeviceRole::Acc) {
            return Ok(());
        }
        let service = super::builder::service_of(path).unwrap_or_default();
        match catalogue.delegated(path).is_some() {
            true if !self.handlers.contains_key(path) => Err(PlaceError::NoHandler { path }),
            false if !self.accelerated.contains(service) => {
                Err(PlaceError::NoService { path, service: service.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Number of requests that a device of this host works on at once.
fn slots(hardware: &Hardware, role: DeviceRole) -> usize {
    let node = match role {
        DeviceRole::Cpu => NodeRole::Cpu,
        DeviceRole::Acc => NodeRole::Acc,
    };
    hardware.node(node).map_or(0, |node| hardware.nodes[node].slots as usize)
}

impl fmt::Debug for PlaceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hardware, strategy, accelerated, handlers, .. } = self;
        f.debug_struct("PlaceOptions")
            .field("hardware", &hardware.name)
            .field("strategy", strategy)
            .field("accelerated", accelerated)
            .field("handlers", &handlers.keys())
            .finish_non_exhaustive()
    }
}
