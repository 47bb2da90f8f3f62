//! What an application's requests need: types, dependencies, dataflows, bytes and compute times.

use super::{LogicalLink, Role};
use crate::{Mistake, Position};

/// An application (LEO Fig. 5b).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// Name.
    pub name: String,
    /// The file that it was read from, as its reader named it.
    pub file: String,
    /// What nodes do for it, in the file's order.
    pub tasks: Vec<Task>,
    /// Its types of requests, in the file's order.
    pub requests: Vec<RequestType>,
}

/// One of an application's functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Name.
    pub name: String,
    /// Compute or memory access time of one request on each role, in nanoseconds; none where it is to be profiled.
    pub compute_ns: [Option<u64>; 2],
    /// Time between two requests on each role when all of its slots are full, in nanoseconds, where that was measured;
    /// else the compute time divided by the slots.
    pub busy_ns: [Option<u64>; 2],
}

/// A type of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestType {
    /// Name: `GET`.
    pub name: String,
    /// Which requests must stay in order.
    pub dependency: Dependency,
    /// Whether it changes what it is about.
    pub access: Access,
    /// The ways that it can take, at least one.
    pub dataflows: Vec<Dataflow>,
}

/// Which requests must stay in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// None.
    None,
    /// Those of the same address.
    Addr,
    /// Those of the same message.
    Msg,
}

/// Whether a request changes what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It does not: two of these need no order between them.
    Read,
    /// It may.
    Write,
}

/// One way of a request: round trips one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataflow {
    /// Name: given, or the trips' paths joined by `,`.
    pub name: String,
    /// At least one.
    pub trips: Vec<Trip>,
}

/// A round trip over a communication path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// The requester's end.
    pub requester: End,
    /// The responder's end.
    pub responder: End,
    /// Bytes on each logical link on the way there, in order: those of the requester, then those of the responder.
    pub there: Vec<LinkBytes>,
    /// Bytes on each logical link on the way back: those of the responder, then those of the requester.
    pub back: Vec<LinkBytes>,
    /// Where it stands in the file, for mistakes that only show on hosts.
    pub position: Option<Position>,
}

/// One end of a trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Where its messages are made or met.
    pub role: Role,
    /// What is done there, as an index of [`Application::tasks`].
    pub task: Option<usize>,
}

/// Bytes that a request moves over a logical link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBytes {
    /// The link.
    pub link: LogicalLink,
    /// How many.
    pub bytes: u64,
}

impl Application {
    /// Reads an application; `file` names it in mistakes.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistake> {
        super::application_yaml::parse(file, text)
    }

    /// Tasks with the roles on which its dataflows run them and whose compute time is not given: to be profiled.
    #[must_use]
    pub fn unknown(&self) -> Vec<(usize, Role)> {
        let trips = self.requests.iter().flat_map(|request| &request.dataflows).flat_map(|flow| &flow.trips);
        let ends = trips.flat_map(|trip| [trip.requester, trip.responder]);
        let mut unknown: Vec<(usize, Role)> = ends.filter_map(|end| Some((end.task?, end.role))).collect();
        unknown.retain(|(task, role)| self.tasks[*task].compute_ns[*role as usize].is_none());
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Sets a task's compute time on a role, in nanoseconds.
    ///
    /// # Panics
    /// When there is no such task.
    pub fn set_compute(&mut self, task: usize, role: Role, ns: u64) {
        self.tasks[task].compute_ns[role as usize] = Some(ns);
    }

    /// Sets what was measured of a task on a role: its compute time, and the time between two requests when all slots
    /// are full, in nanoseconds. Slots of a device may share what they run on.
    ///
    /// # Panics
    /// When there is no such task.
    pub fn set_measured(&mut self, task: usize, role: Role, ns: u64, busy_ns: u64) {
        self.set_compute(task, role, ns);
        self.tasks[task].busy_ns[role as usize] = Some(busy_ns);
    }
}

impl Dependency {
    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Addr => "ADDR",
            Self::Msg => "MSG",
        }
    }
}
