//! An application's dataflows laid over two hosts: what each costs on an empty machine, and what it holds up (LEO §III-B).

mod route;

use crate::Mistake;
use crate::model::{Access, Application, Dependency, Hardware, NodeRole, Role};

/// Measured times of an empty path lie above `T` by at most this share of it, unless it was profiled.
const NOISE_SHARE: u64 = 8;

/// A type of request, by its place in the application's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub u16);

/// A path, by its place in [`Paths::paths`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

/// A resource, by its place in [`Paths::resources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u16);

/// Everything that a selector, a solver or a simulator needs to know of an application on two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The application's name.
    pub application: String,
    /// Types of requests.
    pub kinds: Vec<Kind>,
    /// All paths; those of one type stand together, in the order of its dataflows.
    pub paths: Vec<Path>,
    /// Nodes and directions of links that paths queue at.
    pub resources: Vec<Resource>,
}

/// A type of request and its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Name: `GET`.
    pub name: String,
    /// Which requests must stay in order.
    pub dependency: Dependency,
    /// Whether they change what they are about.
    pub access: Access,
    /// The first of its paths.
    pub first: PathId,
    /// How many it has, at least one.
    pub count: u16,
}

/// One way of a request through both hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Name of the dataflow: `cpu-acc,cpu-cpu`.
    pub name: String,
    /// Whose request.
    pub kind: KindId,
    /// Where the responder works: at the first trip in which it has a task, or else at the first trip.
    pub role: Role,
    /// Where the requester works, by the same rule.
    pub requester_role: Role,
    /// Resources in the order in which a request meets them.
    pub hops: Vec<Hop>,
    /// Time through empty hosts, `T`, in nanoseconds: without the network between them.
    pub traverse_ns: u64,
    /// What one request adds to the wait of each behind it, in nanoseconds.
    pub toll_ns: u64,
    /// How far measured times of an empty path lie above `T`, in nanoseconds: profiled, or an eighth of `T`.
    pub noise_ns: u64,
    /// Whether requests leave it in the order in which they entered: each node that computes on it has one slot.
    pub fifo: bool,
}

/// A stay at a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Where.
    pub resource: ResourceId,
    /// Time there when it is idle, in nanoseconds.
    pub delay_ns: u64,
    /// Time for which it is kept from others, in nanoseconds: of a node with slots, that of one slot divided by them.
    pub busy_ns: u64,
}

/// Something that requests queue at: a node of a host, or a link of it in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Which host.
    pub side: Side,
    /// `cpu`, `cpu>nic`.
    pub name: String,
    /// What the node is; none for a link.
    pub node: Option<NodeRole>,
    /// Requests that it works on at the same time: 1 for a link.
    pub slots: u32,
}

/// Which host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The one that asks.
    Requester,
    /// The one that answers.
    Responder,
}

impl Side {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requester => "requester",
            Self::Responder => "responder",
        }
    }
}

impl Paths {
    /// Lays an application over two hosts.
    ///
    /// # Errors
    /// A dataflow needs a node or a link that a host lacks, or a compute time that is not known.
    pub fn of(requester: &Hardware, responder: &Hardware, application: &Application) -> Result<Self, Mistake> {
        route::lay(requester, responder, application)
    }

    /// Lays an application over two ends on one machine: what computes on one of them has that less time for the other.
    /// Nodes of the same role are one resource, with the requester's slots.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_machine(requester: &Hardware, responder: &Hardware, application: &Application) -> Result<Self, Mistake> {
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

    /// Lays an application over one host that has the requests already, and is to have the answers: the responder's part
    /// of each path.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_host(host: &Hardware, application: &Application) -> Result<Self, Mistake> {
        let mut paths = Self::of(host, host, application)?;
        for path in &mut paths.paths {
            path.hops.retain(|hop| paths.resources[usize::from(hop.resource.0)].side == Side::Responder);
            path.traverse_ns = path.hops.iter().map(|hop| hop.delay_ns).sum();
            path.toll_ns = path.hops.iter().map(|hop| hop.busy_ns).sum();
            path.noise_ns = path.traverse_ns / NOISE_SHARE;
        }
        Ok(paths)
    }

    /// Takes over what was measured on an empty path: its traverse time, and how far measured times lie above it.
    pub fn profiled(&mut self, path: PathId, traverse_ns: u64, noise_ns: u64) {
        let path = &mut self.paths[usize::from(path.0)];
        path.traverse_ns = traverse_ns;
        path.noise_ns = noise_ns;
    }

    /// A path.
    #[must_use]
    pub fn path(&self, path: PathId) -> &Path {
        &self.paths[usize::from(path.0)]
    }

    /// Paths of a type of request.
    #[must_use]
    pub fn of_kind(&self, kind: KindId) -> &[Path] {
        let kind = &self.kinds[usize::from(kind.0)];
        let first = usize::from(kind.first.0);
        &self.paths[first..first + usize::from(kind.count)]
    }

    /// A type of request by its name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<KindId> {
        self.kinds.iter().position(|kind| kind.name == name).map(|at| KindId(at as u16))
    }
}
