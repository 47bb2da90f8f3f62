//! Scenario of a map run: network, applications, callers with their calls, and faults.
//!
//! [`generate`] draws a scenario from a seed; tests may build their own. The same scenario always gives the same run.

mod application;
mod faults;
mod generate;
mod gradient;
mod keyed;
mod keys;
mod read;
mod sum;
mod votes;

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::map::{Ack, Key, Operation, RegisterGrant};
use pathcall_program::Size;
use pathcall_wire::{ForwardTarget, Instant};

pub use application::ApplicationPlan;
pub use generate::generate;
pub(crate) use keyed::{marked, modified};
pub use keys::colliding_keys;

use crate::map::host::HostPlan;
use crate::map::link::{Faults, Outage, WireSpec};
use crate::map::node::MapNodeId;

/// Complete description of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// Seed of the links' randomness.
    pub seed: u64,
    /// Properties of every link, without faults.
    pub wire: WireSpec,
    /// Random faults of every link.
    pub faults: Faults,
    /// End of the faults; all calls must end afterwards.
    pub faults_until: Instant,
    /// Changes of links, by time.
    pub wire_changes: Vec<WireChange>,
    /// Outages of links.
    pub outages: Vec<Outage>,
    /// Machines that differ from the default.
    pub hosts: BTreeMap<MapNodeId, HostPlan>,
    /// Whether frames between callers and owners pass through the element of their application (inline).
    pub inline: bool,
    /// Times in which such frames take another route.
    pub detours: Vec<Outage>,
    /// Memory sizes of the elements.
    pub elements: Vec<Size>,
    /// Applications on these elements.
    pub applications: Vec<ApplicationPlan>,
    /// Failures of elements, by time.
    pub failures: Vec<ElementFailure>,
    /// Changes of the memory of applications, by time.
    pub moves: Vec<MemoryMove>,
    /// Ends of owners with a store, by time.
    pub owner_crashes: Vec<OwnerCrash>,
}

/// End of an owner with a store; another one takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerCrash {
    /// Time of the crash.
    pub at: Instant,
    /// Index of the application.
    pub application: usize,
    /// Time until another owner takes over.
    pub down: Duration,
    /// Limit on the time until a caller notices the end of its stream.
    pub noticed_max: Duration,
}

/// Failure of an element: it loses its state; or the controller loses contact with it, and the element continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementFailure {
    /// Time of the failure.
    pub at: Instant,
    /// Index of the element.
    pub element: usize,
    /// Whether it loses its state; otherwise only the controller cannot reach it.
    pub loses_state: bool,
    /// Time in which it takes no frames.
    pub down: Duration,
    /// Time until the controller configures it again, or reports that it is gone.
    pub notified_after: Duration,
    /// Limit on the delay of the controller's message to a caller.
    pub message_delay_max: Duration,
    /// Whether it comes back, without state.
    pub returns: bool,
}

/// Change of an application's memory: another place, another size, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryMove {
    /// Time of the change.
    pub at: Instant,
    /// Index of the application.
    pub application: usize,
    /// New memory.
    pub memory: Option<RegisterRange>,
    /// Time until the old element is notified; `None`: never.
    pub element_notified_after: Option<Duration>,
    /// Limit on the delay of the controller's message to the owner, and of the owner's to a caller.
    pub message_delay_max: Duration,
}

/// Change of the properties of some links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireChange {
    /// Time of the change.
    pub at: Instant,
    /// Node whose links change, in both directions; `None`: all links.
    pub node: Option<MapNodeId>,
    /// New properties.
    pub wire: WireSpec,
}

/// Memory of an application in an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterRange {
    /// Index of the element.
    pub element: usize,
    /// First row.
    pub row_base: u32,
    /// Number of rows.
    pub rows: u32,
    /// First lane.
    pub lane_base: u32,
    /// Number of lanes of a row.
    pub width: u16,
}

/// Purpose of an application's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// SyncAgtr: all callers sum arrays.
    Sum,
    /// AsyncAgtr: callers add to keys; the owner is queried for the values.
    Add,
    /// KeyValue: callers add to keys and get the values.
    AddGet,
    /// Agreement: callers count keys up to a threshold.
    Count {
        /// Threshold of the ballots.
        threshold: u32,
        /// Target of `CntFwd`.
        to: ForwardTarget,
    },
    /// Test-and-set: callers take and release locks.
    Lock,
}

/// Error that a sum must return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedError {
    /// The workers' arrays differ in length.
    Disagree,
    /// A sum leaves 64 bits.
    Overflow,
}

/// Plan of a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct MapCallerPlan {
    /// Endpoint id of the caller.
    pub endpoint: u32,
    /// Incarnation of the caller.
    pub incarnation: u32,
    /// First of its flow slots.
    pub slot_base: u32,
    /// Number of its flows.
    pub flows: u32,
    /// Whether the element knows it.
    pub registered: bool,
    /// Whether it sends through the element.
    pub by_element: bool,
    /// Time at which it joins.
    pub joins: Instant,
    /// Death of its process, if any.
    pub crash: Option<ProcessCrash>,
    /// Whether it closes and leaves after its last step: time until its owner detects that.
    pub leaves: Option<Duration>,
    /// Index of the caller that it replaces: it takes over the slots when that one has left.
    pub succeeds: Option<usize>,
    /// Number of steps in progress at one time.
    pub outstanding: usize,
    /// Steps of the caller.
    pub steps: Vec<Step>,
}

/// Death of a process; others detect it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessCrash {
    /// Time of the death.
    pub at: Instant,
    /// Time until the caller counts as gone.
    pub detected_after: Duration,
}

/// Step of a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Work of the step.
    pub work: StepWork,
    /// Time after which the call is cancelled.
    pub cancel_after: Option<Duration>,
    /// Pause before the next step.
    pub pause: Duration,
    /// Whether it may never end, because other callers that it needs may have cancelled.
    pub may_never_end: bool,
}

/// Work of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepWork {
    /// Makes one call.
    Call(Operation),
    /// Takes locks, holds and releases them.
    Lock {
        /// Keys of the locks.
        keys: Vec<Key>,
        /// Time for which they are held.
        hold: Duration,
    },
}

/// Query of an owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Time of the query.
    pub at: Instant,
    /// Keys of the query; `None`: all.
    pub keys: Option<Vec<Key>>,
}

impl Scenario {
    /// All nodes with an endpoint id.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, MapNodeId)> {
        self.applications.iter().enumerate().flat_map(|(index, application)| {
            let callers = application.callers.iter().enumerate();
            let callers = callers.map(move |(number, caller)| (caller.endpoint, MapNodeId::Caller(index, number)));
            callers.chain([(application.endpoint, MapNodeId::Owner(index))])
        })
    }
}

impl WireChange {
    /// Whether the change affects this link.
    #[must_use]
    pub fn of(&self, from: MapNodeId, to: MapNodeId) -> bool {
        self.node.is_none_or(|node| node == from || node == to)
    }
}

impl RegisterRange {
    /// Grant of this memory to the owner.
    pub(crate) fn grant(self) -> RegisterGrant {
        RegisterGrant { rows: self.rows, width: self.width }
    }
}

impl Step {
    /// Creates a step with one call that is awaited to its end.
    #[must_use]
    pub fn call(operation: Operation) -> Self {
        Self { work: StepWork::Call(operation), cancel_after: None, pause: Duration::ZERO, may_never_end: false }
    }
}

impl StepWork {
    /// Number of chunks of the array that it sums; 0 for other work.
    #[must_use]
    pub fn chunks(&self, width: u16) -> u64 {
        match self {
            Self::Call(Operation::Sum { lanes, .. }) => lanes.len().div_ceil(usize::from(width.max(1))) as u64,
            _ => 0,
        }
    }

    /// Operation of the step's first call.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Call(operation) => operation.clone(),
            Self::Lock { keys, .. } => {
                // NetRPC Table 2: test-and-set is CntFwd with threshold 1.
                Operation::Count { keys: keys.clone(), threshold: 1, to: ForwardTarget::Src, ack: Ack::Element }
            }
        }
    }
}
