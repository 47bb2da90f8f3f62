//! Application model: request types, dependencies, dataflows, message sizes and compute times.

use super::{DeviceRole, HostLink};
use crate::{FilePosition, ModelError};

/// Application model (LEO Fig. 5b).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// Name of the application.
    pub name: String,
    /// Name of its file, as passed by the caller.
    pub file: String,
    /// Tasks, in the file's order.
    pub tasks: Vec<Task>,
    /// Request types, in the file's order.
    pub requests: Vec<RequestType>,
}

/// Task of an application: a function that nodes run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Name of the task.
    pub name: String,
    /// Compute or memory access time of one request on each role, in nanoseconds; `None` if it is to be profiled.
    pub compute_ns: [Option<u64>; DeviceRole::ALL.len()],
    /// Measured time between two requests on each role when all slots are full, in nanoseconds; the default is the
    /// compute time divided by the slots.
    pub busy_ns: [Option<u64>; DeviceRole::ALL.len()],
}

/// Request type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestType {
    /// Name, for example `GET`.
    pub name: String,
    /// Requests that must stay in order.
    pub dependency: Dependency,
    /// Whether it changes the data at its address.
    pub access: AccessMode,
    /// Possible dataflows, at least one.
    pub dataflows: Vec<Dataflow>,
}

/// Requests that must stay in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// No requests.
    None,
    /// Requests of the same address.
    Addr,
    /// Requests of the same message.
    Msg,
}

/// Access of a request to the data at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Read only: two reads need no order.
    Read,
    /// Possible write.
    Write,
}

/// Dataflow: sequential round trips of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataflow {
    /// Name: given, or the trips' paths joined by `,`.
    pub name: String,
    /// Round trips, at least one.
    pub trips: Vec<Trip>,
}

/// Round trip over a communication path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// The requester's end.
    pub requester: TripEnd,
    /// The responder's end.
    pub responder: TripEnd,
    /// Bytes on each logical link of the request, in order: links of the requester, then of the responder.
    pub there: Vec<LinkBytes>,
    /// Bytes on each logical link of the reply: links of the responder, then of the requester.
    pub back: Vec<LinkBytes>,
    /// Position in the file, for errors that depend on the hosts.
    pub position: Option<FilePosition>,
}

/// End of a trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TripEnd {
    /// Role that creates or processes the messages.
    pub role: DeviceRole,
    /// Whether the role stands for each accelerator of the host, until [`Application::for_hosts`].
    pub is_any: bool,
    /// Task, as an index into [`Application::tasks`].
    pub task: Option<usize>,
}

/// Bytes that a request moves over a logical link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBytes {
    /// The logical link.
    pub link: HostLink,
    /// Number of bytes.
    pub bytes: u64,
}

impl Application {
    /// Parses an application model; `file` is the file's name in errors.
    ///
    /// # Errors
    /// The first error of the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, ModelError> {
        super::application_yaml::parse(file, text)
    }

    /// Tasks without compute time, with the roles that run them; to be profiled. Before [`Self::for_hosts`], accelerator
    /// 0 stands for all.
    #[must_use]
    pub fn unknown(&self) -> Vec<(usize, DeviceRole)> {
        let trips = self.requests.iter().flat_map(|request| &request.dataflows).flat_map(|flow| &flow.trips);
        let ends = trips.flat_map(|trip| [trip.requester, trip.responder]);
        let mut unknown: Vec<(usize, DeviceRole)> = ends.filter_map(|end| Some((end.task?, end.role))).collect();
        unknown.retain(|(task, role)| self.tasks[*task].compute_ns[*role as usize].is_none());
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Sets a task's compute time on a role, in nanoseconds.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn set_compute(&mut self, task: usize, role: DeviceRole, ns: u64) {
        self.tasks[task].compute_ns[role as usize] = Some(ns);
    }

    /// Sets measured times of a task on a role in nanoseconds: its compute time, and the time between two requests
    /// when all slots are full. The slots of a device may share a resource.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn set_measured(&mut self, task: usize, role: DeviceRole, ns: u64, busy_ns: u64) {
        self.set_compute(task, role, ns);
        self.tasks[task].busy_ns[role as usize] = Some(busy_ns);
    }
}

impl Dependency {
    /// Name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Addr => "ADDR",
            Self::Msg => "MSG",
        }
    }
}
