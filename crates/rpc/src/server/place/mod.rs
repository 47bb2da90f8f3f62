//! Calls that the host's processor or its accelerator answers, whichever is sooner done (LEO).
//!
//! ```text
//! layer ─► the selector of its application ─┬─ cpu ─► the services of the tonic server
//!             ▲ how long it took, or failed └─ acc ─► the services given to `Placing`
//! node ──► the same: a handler of the server's node, or the one that was given to `Placing`
//! ```
//!
//! Both are ordinary services of the same generated kind, or handlers of a method that servers may pass on. A role
//! works on as many calls at once as its node has slots; the others wait, and the selector knows of them. What the
//! accelerator can't do (UNAVAILABLE) the processor does.

mod about;
mod running;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;

use pathcall_place::model::NodeRole;
pub use pathcall_place::select::Config;
use pathcall_place::{Application, Paths};
pub use pathcall_place::{Hardware, Mistake, PathState, Role, Strategy};
use pathcall_proto::delegate::Method;
use pathcall_proto::manifest::Placed;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};
use tower::Service;

pub(super) use self::running::Places;
use crate::application::Catalogue;
use crate::delegate::handlers::{Handler, erased};
use crate::delegate::{Call, Serving};

/// Longest request of a placed method, bytes: it is kept until it is answered.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// What a host can answer placed methods with, and by which rule.
#[derive(Clone)]
#[must_use = "give it to the server's builder"]
pub struct Placing {
    hardware: Hardware,
    strategy: Strategy,
    config: Config,
    request_bytes_max: usize,
    routes: RoutesBuilder,
    accelerated: BTreeSet<&'static str>,
    /// Of methods that servers may pass on, by path.
    handlers: BTreeMap<&'static str, Handler>,
    door: Option<PathBuf>,
}

/// Why methods can't be placed on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacingError {
    /// The application does not fit the host.
    #[error("{path}: {mistake}")]
    Model {
        /// The method.
        path: &'static str,
        /// What is wrong.
        mistake: Mistake,
    },
    /// A method may be answered by the accelerator, and nobody said how.
    #[error("{path} has a dataflow over the accelerator, and {service} is not there: give it to Placing::acc")]
    NoService {
        /// The method.
        path: &'static str,
        /// Its service.
        service: String,
    },
    /// A method that servers may pass on may be answered by the accelerator, and nobody said how.
    #[error(
        "{path} has a dataflow over the accelerator, and its handler is not there: give it to Placing::acc_handler"
    )]
    NoHandler {
        /// The method.
        path: &'static str,
    },
    /// Nobody can listen where operators are to ask.
    #[error("no door at {}: {said}", .path.display())]
    Door {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        said: String,
    },
}

/// A way that placed calls take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStats {
    /// The application's name.
    pub application: String,
    /// The type of request.
    pub request: String,
    /// The dataflow's name.
    pub path: String,
    /// Who answers.
    pub role: Role,
    /// Time that a request takes when nothing else is there, by the model, in nanoseconds (`T`).
    pub traverse_ns: u64,
    /// What it adds to the wait of each behind it, in nanoseconds.
    pub toll_ns: u64,
    /// What the selector knows.
    pub state: PathState,
}

impl fmt::Display for PlaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { application, request, path, role, traverse_ns, toll_ns, state } = self;
        let PathState { sent, done, failed, probes, lefts, in_flight, k, .. } = state;
        write!(f, "{application} {request} {path} ({role}): T {traverse_ns} ns, toll {toll_ns} ns; sent {sent}, ")?;
        write!(f, "done {done}, failed {failed}, probes {probes}, left {lefts} times, in flight {in_flight}, k {k}")
    }
}

impl Placing {
    /// For this host. The processor's part are the services of the tonic server.
    pub fn new(hardware: Hardware) -> Self {
        Self {
            hardware,
            strategy: Strategy::Leo,
            config: Config::default(),
            request_bytes_max: REQUEST_BYTES_MAX,
            routes: Routes::builder(),
            accelerated: BTreeSet::new(),
            handlers: BTreeMap::new(),
            door: None,
        }
    }

    /// Adds what the accelerator answers: a generated server whose methods use the device. One that says UNAVAILABLE
    /// must not have had an effect: the call is made again, on the processor.
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

    /// Adds what the accelerator does of a method that servers may pass on; the processor's part is the handler that the
    /// server's [`Handlers`](crate::delegate::Handlers) have. One that says UNAVAILABLE before it has replied, or passed
    /// anything on, had no effect: the processor's does it.
    pub fn acc_handler<M, H, F>(mut self, handler: H) -> Self
    where
        M: Method,
        H: Fn(M::Request, Call<M::Response>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        self.handlers.insert(M::PATH, erased::<M, H, F>(handler));
        self
    }

    /// How paths are chosen: [`Strategy::Leo`] unless given.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The selector's bounds.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Longest request, bytes: 64 MiB unless given.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Says on this socket, a new file, where calls went and why: to `pathcall place explain`.
    #[cfg(unix)]
    pub fn door(mut self, path: impl Into<PathBuf>) -> Self {
        self.door = Some(path.into());
        self
    }

    /// Calls that the host can work on at once: the slots of its processor and its accelerator.
    pub(super) fn slots(&self) -> usize {
        [Role::Cpu, Role::Acc].into_iter().map(|role| slots(&self.hardware, role)).sum()
    }

    /// All methods that say where they may be placed; those of an application share a selector. Of methods that servers
    /// may pass on those that this one has handlers of.
    pub(super) fn build(self, catalogue: &Catalogue, handlers: Option<&Serving>) -> Result<Places, PlacingError> {
        let mut texts: BTreeMap<(&'static str, &'static str), Vec<&'static Placed>> = BTreeMap::new();
        let here = |method: &&'static Placed| {
            !catalogue.is_delegated(method.path) || handlers.is_some_and(|handlers| handlers.has(method.path))
        };
        for method in catalogue.all_placed().filter(here) {
            texts.entry((method.file, method.application)).or_default().push(method);
        }
        let slots = [Role::Cpu, Role::Acc].map(|role| slots(&self.hardware, role));
        let acc = (self.routes.clone().routes(), self.handlers.clone());
        let mut places = Places::new(acc, self.request_bytes_max, slots);
        for ((file, text), methods) in texts {
            let wrong = |mistake| PlacingError::Model { path: methods[0].path, mistake };
            let application = Application::parse(file, text).map_err(wrong)?;
            let paths = Paths::of_host(&self.hardware, &application).map_err(wrong)?;
            for method in &methods {
                self.answered(&paths, method, catalogue)?;
            }
            places.add(paths, self.strategy, self.config, &methods);
        }
        #[cfg(unix)]
        if let Some(path) = self.door {
            let opened = places.open_door(&path);
            opened.map_err(|error| PlacingError::Door { path, said: error.to_string() })?;
        }
        Ok(places)
    }

    /// Whether somebody is there for each way that a method may take.
    fn answered(&self, paths: &Paths, method: &Placed, catalogue: &Catalogue) -> Result<(), PlacingError> {
        let (path, kind) = (method.path, paths.kind(method.request));
        let mut ways = kind.into_iter().flat_map(|kind| paths.of_kind(kind));
        if !ways.any(|way| way.role == Role::Acc) {
            return Ok(());
        }
        let service = super::builder::service_of(path).unwrap_or_default();
        match catalogue.is_delegated(path) {
            true if !self.handlers.contains_key(path) => Err(PlacingError::NoHandler { path }),
            false if !self.accelerated.contains(service) => {
                Err(PlacingError::NoService { path, service: service.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Requests that a role of this host works on at once.
fn slots(hardware: &Hardware, role: Role) -> usize {
    let node = match role {
        Role::Cpu => NodeRole::Cpu,
        Role::Acc => NodeRole::Acc,
    };
    hardware.node(node).map_or(0, |node| hardware.nodes[node].slots as usize)
}

impl fmt::Debug for Placing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hardware, strategy, accelerated, handlers, .. } = self;
        f.debug_struct("Placing")
            .field("hardware", &hardware.name)
            .field("strategy", strategy)
            .field("accelerated", accelerated)
            .field("handlers", &handlers.keys())
            .finish_non_exhaustive()
    }
}
