//! Placed calls: the host's processor or one of its accelerators answers, whichever finishes sooner (LEO).
//!
//! ```text
//! layer ─► selector of the application ─┬─ cpu ─► the services of the tonic server
//!             ▲ duration, or failure    └─ acc, acc1 … ─► the services given to `PlaceOptions`
//! node ──► the same: a handler of the server's node, or the one given to `PlaceOptions`
//! ```
//!
//! Both are ordinary services of the same generated type, or handlers of a delegated method. A device works on as many
//! calls at once as it has slots; the others wait, and the selector takes this into account. If an accelerator fails
//! before it has replied, another device does the call.

mod accelerator;
mod ordering_key;
mod placed_call;
mod placed_methods;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pathcall_place::model::ACCELERATORS_MAX;
pub use pathcall_place::select::Config;
use pathcall_place::{Application, Paths};
pub use pathcall_place::{DeviceRole, Hardware, ModelError, PathState, SelectionStrategy};
use pathcall_proto::delegate::RpcMethod;
use pathcall_proto::manifest::Placed;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::RoutesBuilder;
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
    /// By accelerator.
    accelerators: [AcceleratorServices; ACCELERATORS_MAX],
    /// Number that no accelerator has.
    wrong_number: Option<usize>,
    admin_socket: Option<PathBuf>,
}

/// Services and handlers of one accelerator.
#[derive(Clone, Default)]
struct AcceleratorServices {
    routes: RoutesBuilder,
    names: BTreeSet<&'static str>,
    /// Handlers of delegated methods by path.
    handlers: BTreeMap<&'static str, Handler>,
}

/// Error of placed methods on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceSetupError {
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
    /// The same for an accelerator after the first.
    #[error("{path} has a dataflow over {role}, but {service} is missing there: add it with PlaceOptions::acc_at")]
    NoServiceAt {
        /// Path of the method.
        path: &'static str,
        /// Accelerator.
        role: DeviceRole,
        /// Name of its service.
        service: String,
    },
    /// The same for the handler of a delegated method.
    #[error(
        "{path} has a dataflow over {role}, but its handler is missing there: add it with PlaceOptions::acc_handler_at"
    )]
    NoHandlerAt {
        /// Path of the method.
        path: &'static str,
        /// Accelerator.
        role: DeviceRole,
    },
    /// A service or handler is for an accelerator that the host lacks.
    #[error("accelerator {number} has a service, but {file} has {accelerators} nodes with role acc, numbered from 0")]
    NoAccelerator {
        /// Number of the accelerator.
        number: usize,
        /// File of the hardware model.
        file: String,
        /// Number of the model's accelerators.
        accelerators: usize,
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
            accelerators: Default::default(),
            wrong_number: None,
            admin_socket: None,
        }
    }

    /// Adds the part of accelerator 0 of a service: a generated server whose methods use the device.
    ///
    /// The call is made on another device if the accelerator's method panics, does not reply within
    /// [`Self::acc_timeout`], or fails with UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, UNKNOWN, DATA_LOSS or
    /// UNIMPLEMENTED. It must not have had an effect then. Any other status is an answer to the caller.
    pub fn acc<S>(self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.acc_at(0, service)
    }

    /// Adds the part of the accelerator with this number: the nodes of the hardware model with the role `acc`, from 0.
    /// See [`Self::acc`].
    pub fn acc_at<S>(mut self, number: usize, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        if let Some(services) = self.services(number) {
            services.routes.add_service(service);
            services.names.insert(S::NAME);
        }
        self
    }

    /// Adds accelerator 0's handler of a delegated method. The processor's part is the handler in the server's
    /// [`Handlers`](crate::delegate::Handlers). It runs if the accelerator's handler fails as in [`Self::acc`] before
    /// it has sent a reply or passed a request on.
    pub fn acc_handler<M, H, F>(self, handler: H) -> Self
    where
        M: RpcMethod,
        H: Fn(M::Request, DelegatedCall<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        self.acc_handler_at::<M, H, F>(0, handler)
    }

    /// Adds the handler of a delegated method of the accelerator with this number. See [`Self::acc_handler`].
    pub fn acc_handler_at<M, H, F>(mut self, number: usize, handler: H) -> Self
    where
        M: RpcMethod,
        H: Fn(M::Request, DelegatedCall<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        if let Some(services) = self.services(number) {
            services.handlers.insert(M::PATH, erase_handler::<M, H, F>(handler));
        }
        self
    }

    /// Services of an accelerator of the host. [`Self::build`] reports a number that no accelerator has.
    fn services(&mut self, number: usize) -> Option<&mut AcceleratorServices> {
        if number > 0 && number >= self.hardware.accelerators() {
            self.wrong_number = Some(number);
            return None;
        }
        self.accelerators.get_mut(number)
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

    /// Number of calls that the host can work on at once: the slots of its processor and its accelerators.
    pub(super) fn slots(&self) -> usize {
        DeviceRole::ALL.into_iter().map(|role| slots(&self.hardware, role)).sum()
    }

    /// Prepares all placed methods; those of one application share a selector. Delegated methods are included only if
    /// this server has their handlers.
    pub(super) fn build(
        self,
        catalogue: &Catalogue,
        handlers: Option<&RunningHandlers>,
    ) -> Result<PlacedMethods, PlaceSetupError> {
        let mut texts: BTreeMap<(&'static str, &'static str), Vec<&'static Placed>> = BTreeMap::new();
        let here = |method: &&'static Placed| {
            catalogue.delegated(method.path).is_none() || handlers.is_some_and(|handlers| handlers.has(method.path))
        };
        for method in catalogue.all_placed().filter(here) {
            texts.entry((method.file, method.application)).or_default().push(method);
        }
        if let Some(number) = self.wrong_number {
            let (file, accelerators) = (self.hardware.file.clone(), self.hardware.accelerators());
            return Err(PlaceSetupError::NoAccelerator { number, file, accelerators });
        }
        let slots = DeviceRole::ALL.map(|role| slots(&self.hardware, role));
        let acc = self.accelerators.clone().map(|services| (services.routes.routes(), services.handlers));
        let mut places = PlacedMethods::new(acc, self.request_bytes_max, self.acc_timeout, slots);
        for ((file, text), methods) in texts {
            let wrong = |mistake| PlaceSetupError::Model { path: methods[0].path, mistake };
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
            opened.map_err(|error| PlaceSetupError::AdminSocket { path, reason: error.to_string() })?;
        }
        Ok(places)
    }

    /// Checks that each path of a method has a service or handler.
    fn answered(&self, paths: &Paths, method: &Placed, catalogue: &Catalogue) -> Result<(), PlaceSetupError> {
        let (path, kind) = (method.path, paths.kind(method.request));
        let service = super::builder::service_of(path).unwrap_or_default();
        let is_delegated = catalogue.delegated(path).is_some();
        for way in kind.into_iter().flat_map(|kind| paths.of_kind(kind)) {
            let role = way.role;
            let Some(services) = role.accelerator().map(|number| &self.accelerators[number]) else { continue };
            let service = || service.to_owned();
            match (is_delegated, role) {
                (true, _) if services.handlers.contains_key(path) => {}
                (false, _) if services.names.contains(&service()[..]) => {}
                (true, DeviceRole::Acc) => return Err(PlaceSetupError::NoHandler { path }),
                (true, role) => return Err(PlaceSetupError::NoHandlerAt { path, role }),
                (false, DeviceRole::Acc) => return Err(PlaceSetupError::NoService { path, service: service() }),
                (false, role) => return Err(PlaceSetupError::NoServiceAt { path, role, service: service() }),
            }
        }
        Ok(())
    }
}

/// Number of requests that a device of this host works on at once.
fn slots(hardware: &Hardware, role: DeviceRole) -> usize {
    hardware.device(role).map_or(0, |node| hardware.nodes[node].slots as usize)
}

impl fmt::Debug for PlaceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hardware, strategy, accelerators, .. } = self;
        let services = |services: &AcceleratorServices| (services.names.clone(), services.handlers.keys().count());
        f.debug_struct("PlaceOptions")
            .field("hardware", &hardware.name)
            .field("strategy", strategy)
            .field("accelerators", &accelerators.iter().map(services).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
