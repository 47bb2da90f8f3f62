//! Paths: an application's dataflows mapped to two hosts, with traverse time and toll (LEO §III-B).

mod route;

use crate::ModelError;
use crate::model::{AccessMode, Application, Dependency, DeviceRole, Hardware};

/// Default noise: measured times of an empty path exceed `T` by at most this fraction.
const NOISE_SHARE: u64 = 8;

/// Request type, as its index in the application's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub u16);

/// Path, as its index in [`Paths::paths`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

/// Resource, as its index in [`Paths::resources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u16);

/// Paths of an application between two hosts, for selectors, solvers and simulators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Name of the application.
    pub application: String,
    /// Request types.
    pub kinds: Vec<RequestKind>,
    /// All paths; those of one type are contiguous, in the order of its dataflows, and of the accelerators of each
    /// ([`Application::for_hosts`]).
    pub paths: Vec<Path>,
    /// Nodes and link directions at which requests queue.
    pub resources: Vec<Resource>,
}

/// Request type with its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKind {
    /// Name, for example `GET`.
    pub name: String,
    /// Requests that must stay in order.
    pub dependency: Dependency,
    /// Access to the data at the address.
    pub access: AccessMode,
    /// First of its paths.
    pub first: PathId,
    /// Number of its paths, at least one.
    pub count: u16,
}

/// Path of a request through both hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Name of the dataflow: `cpu-acc,cpu-cpu`.
    pub name: String,
    /// Request type.
    pub kind: KindId,
    /// Role of the responder: that of the first trip with a task there, or else of the first trip.
    pub role: DeviceRole,
    /// Role of the requester, by the same rule.
    pub requester_role: DeviceRole,
    /// Resources, in the order in which a request visits them.
    pub hops: Vec<Hop>,
    /// Traverse time `T` through empty hosts in nanoseconds, without the network between them.
    pub traverse_ns: u64,
    /// Toll: additional wait of each later request, in nanoseconds.
    pub toll_ns: u64,
    /// Noise of measured times of an empty path above `T`, in nanoseconds: profiled, or an eighth of `T`.
    pub noise_ns: u64,
    /// Whether requests leave the path in order: each node that computes on it has one slot.
    pub fifo: bool,
}

/// Visit of a path to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The resource.
    pub resource: ResourceId,
    /// Time at the idle resource, in nanoseconds.
    pub delay_ns: u64,
    /// Time for which the resource is busy, in nanoseconds; of a node with several slots, the time of one divided by
    /// their number.
    pub busy_ns: u64,
}

/// Resource at which requests queue: a node of a host, or a link in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Host of the resource.
    pub side: PathSide,
    /// Name: `cpu`, `cpu>nic`.
    pub name: String,
    /// Role of the node; `None` for a link.
    pub node: Option<DeviceRole>,
    /// Number of requests that it processes in parallel; 1 for a link.
    pub slots: u32,
}

/// Side of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathSide {
    /// Requester.
    Requester,
    /// Responder.
    Responder,
}

impl PathSide {
    /// Name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requester => "requester",
            Self::Responder => "responder",
        }
    }
}

impl Paths {
    /// Maps an application to two hosts.
    ///
    /// # Errors
    /// A dataflow needs a node or a link that a host lacks, or a compute time that is unknown.
    pub fn of(requester: &Hardware, responder: &Hardware, application: &Application) -> Result<Self, ModelError> {
        route::map_to_hosts(requester, responder, &application.for_hosts(requester, responder)?)
    }

    /// Maps an application to two ends on one machine, which compete for its nodes. Nodes of the same role are one
    /// resource, with the requester's slots.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_machine(
        requester: &Hardware,
        responder: &Hardware,
        application: &Application,
    ) -> Result<Self, ModelError> {
        let mut paths = Self::of(requester, responder, application)?;
        let shared = |resource: &Resource| {
            let same = |other: &Resource| other.node.is_some() && other.node == resource.node;
            paths.resources.iter().position(same)
        };
        let first: Vec<usize> = paths.resources.iter().enumerate().map(|(at, it)| shared(it).unwrap_or(at)).collect();
        for hop in paths.paths.iter_mut().flat_map(|path| &mut path.hops) {
            hop.resource = ResourceId(first[usize::from(hop.resource.0)] as u16);
        }
        Ok(paths)
    }

    /// Maps an application to one host that already has the requests: only the responder's part of each path.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_host(host: &Hardware, application: &Application) -> Result<Self, ModelError> {
        // The requester's accelerators make no difference here.
        let application = application.for_accelerators([1, host.accelerators()])?;
        let mut paths = route::map_to_hosts(host, host, &application)?;
        for path in &mut paths.paths {
            path.hops.retain(|hop| paths.resources[usize::from(hop.resource.0)].side == PathSide::Responder);
            path.traverse_ns = path.hops.iter().map(|hop| hop.delay_ns).sum();
            path.toll_ns = path.hops.iter().map(|hop| hop.busy_ns).sum();
            path.noise_ns = path.traverse_ns / NOISE_SHARE;
        }
        Ok(paths)
    }

    /// Sets the measured traverse time and noise of an empty path.
    pub fn profiled(&mut self, path: PathId, traverse_ns: u64, noise_ns: u64) {
        let path = &mut self.paths[usize::from(path.0)];
        path.traverse_ns = traverse_ns;
        path.noise_ns = noise_ns;
    }

    /// Path with this id.
    #[must_use]
    pub fn path(&self, path: PathId) -> &Path {
        &self.paths[usize::from(path.0)]
    }

    /// Paths of a request type.
    #[must_use]
    pub fn of_kind(&self, kind: KindId) -> &[Path] {
        let kind = &self.kinds[usize::from(kind.0)];
        let first = usize::from(kind.first.0);
        &self.paths[first..first + usize::from(kind.count)]
    }

    /// Request type with this name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<KindId> {
        self.kinds.iter().position(|kind| kind.name == name).map(|at| KindId(at as u16))
    }
}
