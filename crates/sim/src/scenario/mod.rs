//! What happens in a run: the network, who calls whom when, and when the faults end.
//!
//! [`generate`] draws one from a seed; tests may write their own. A scenario says everything: the
//! same one gives the same run.

mod generate;
mod keyed;
mod keys;
mod sum;
mod votes;
mod weather;

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::server::Eviction;
use pathcall_endpoint::map::{Ack, ClearPolicy, Key, Operation};
use pathcall_program::Size;
use pathcall_wire::{Instant, Target, TokenKey};

pub use generate::generate;
pub(crate) use keyed::{marked, modified};
pub use keys::colliding_keys;

use crate::host::HostPlan;
use crate::link::{Faults, Outage, WireSpec};
use crate::party::Node;

/// All of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// Seed of the links' chance.
    pub seed: u64,
    /// Every link, without faults.
    pub wire: WireSpec,
    /// Every link's faults.
    pub faults: Faults,
    /// When the faults end: from then on everything must finish.
    pub faults_until: Instant,
    /// What links are like from some time on, by time.
    pub wire_changes: Vec<WireChange>,
    /// When links carry nothing.
    pub outages: Vec<Outage>,
    /// Machines that are not as by default.
    pub hosts: BTreeMap<Node, HostPlan>,
    /// Whether what callers and owners send each other passes by the element of their application (inline).
    pub inline: bool,
    /// When it takes another way.
    pub detours: Vec<Outage>,
    /// The elements' memory.
    pub elements: Vec<Size>,
    /// Applications, on these elements.
    pub applications: Vec<ApplicationPlan>,
    /// When elements fail, in order.
    pub failures: Vec<ElementFailure>,
    /// When applications are given other memory, in order.
    pub moves: Vec<Move>,
}

/// An element loses all that it holds; or the controller loses the element, which goes on as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementFailure {
    /// When.
    pub at: Instant,
    /// Which element.
    pub element: usize,
    /// Whether it loses what it holds; otherwise only the controller can't reach it.
    pub forgets: bool,
    /// How long it takes no frames.
    pub down: Duration,
    /// How long until the controller has it, or says that it is gone.
    pub told_after: Duration,
    /// Longest way of the controller's word to a caller.
    pub word_within: Duration,
    /// Whether it comes back, with nothing in it.
    pub returns: bool,
}

/// The controller gives an application other memory: elsewhere, as much or less, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// When.
    pub at: Instant,
    /// Index of the application.
    pub application: usize,
    /// What it has from then on.
    pub memory: Option<Memory>,
    /// How long until the element that it was on hears of it; `None`: it never does.
    pub heard_after: Option<Duration>,
    /// Longest way of the controller's word to the owner, and of the owner's to a caller.
    pub word_within: Duration,
}

/// A change of what some links are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireChange {
    /// When.
    pub at: Instant,
    /// At this node: links from it and to it; `None`: all links.
    pub node: Option<Node>,
    /// What they are like from then on.
    pub wire: WireSpec,
}

/// An application.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationPlan {
    /// Its id.
    pub gaid: u32,
    /// Epoch of its registers.
    pub epoch: u32,
    /// Endpoint of its owner.
    pub endpoint: u32,
    /// Incarnation of its owner.
    pub incarnation: u32,
    /// What signs its frames, if they carry tokens.
    pub token_key: Option<TokenKey>,
    /// Its place in the element's memory, if it has one.
    pub memory: Option<Memory>,
    /// Lanes of a row.
    pub width: u16,
    /// When keys give their registers in the element to others.
    pub eviction: Option<Eviction>,
    /// What its calls ask for.
    pub purpose: Purpose,
    /// Who must have what is added before a call is done.
    pub ack: Ack,
    /// Clear policy of arrays.
    pub clear: ClearPolicy,
    /// Why the last call of every caller can't be done, if so: all must be told.
    pub doom: Option<Doom>,
    /// Timers of owner and callers.
    pub timing: Timing,
    /// How long locks are lent to a caller that is silent.
    pub lease: Duration,
    /// Its callers.
    pub callers: Vec<CallerPlan>,
    /// Queries of its owner while calls are under way, by time.
    pub queries: Vec<Query>,
}

/// A place in an element's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Index of the element.
    pub element: usize,
    /// First row.
    pub row_base: u32,
    /// Number of rows.
    pub rows: u32,
    /// First lane.
    pub lane_base: u32,
    /// Lanes of a row.
    pub width: u16,
}

/// What the calls of an application ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// SyncAgtr: all callers sum arrays.
    Sum,
    /// AsyncAgtr: callers add to keys; the values are asked for at the owner.
    Add,
    /// KeyValue: callers add to keys and get the values.
    AddGet,
    /// Agreement: callers count keys up to a threshold.
    Count {
        /// The threshold.
        threshold: u32,
        /// Where `CntFwd` forwards to.
        to: Target,
    },
    /// Test-and-set: callers take keys and give them back.
    Lock,
}

/// Why sums can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doom {
    /// The workers' arrays differ in length.
    Disagree,
    /// A sum leaves 64 bits.
    Overflow,
}

/// A caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerPlan {
    /// Its endpoint.
    pub endpoint: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// First of its flow slots.
    pub slot_base: u32,
    /// Number of its flows.
    pub flows: u32,
    /// Whether the element knows it.
    pub registered: bool,
    /// Whether it sends by the element.
    pub by_element: bool,
    /// When it joins.
    pub joins: Instant,
    /// When its process is killed, if it is.
    pub dies: Option<Death>,
    /// Whether it closes and leaves when it has done all, and how long until its owner hears of that.
    pub leaves: Option<Duration>,
    /// The caller of the same application whose slots it takes over, and whose leaving it waits for.
    pub succeeds: Option<usize>,
    /// Steps under way at one time.
    pub outstanding: usize,
    /// What it does.
    pub steps: Vec<Step>,
}

/// A process is killed: nobody is told at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// When.
    pub at: Instant,
    /// How long until it counts as gone.
    pub noticed_after: Duration,
}

/// One thing that a caller does.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What.
    pub work: Work,
    /// How long it waits before it no longer does.
    pub cancel_after: Option<Duration>,
    /// Pause before what comes next.
    pub pause: Duration,
    /// Whether it may wait for ever: others that it needs may have been cancelled.
    pub may_starve: bool,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// One call.
    Call(Operation),
    /// Takes keys, holds them, gives them back.
    Lock {
        /// The keys.
        keys: Vec<Key>,
        /// For how long.
        hold: Duration,
    },
}

/// A query of an owner.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// When it is asked.
    pub at: Instant,
    /// Which keys; `None`: all.
    pub keys: Option<Vec<Key>>,
}

impl Scenario {
    /// Every node with an endpoint.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, Node)> {
        self.applications.iter().enumerate().flat_map(|(index, application)| {
            let callers = application.callers.iter().enumerate();
            let callers = callers.map(move |(number, caller)| (caller.endpoint, Node::Caller(index, number)));
            callers.chain([(application.endpoint, Node::Owner(index))])
        })
    }
}

impl WireChange {
    /// Whether it is one of this link.
    #[must_use]
    pub fn of(&self, from: Node, to: Node) -> bool {
        self.node.is_none_or(|node| node == from || node == to)
    }
}

impl ApplicationPlan {
    /// Workers of SyncAgtr; 0: the application is keyed.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let workers = self.callers.iter().filter(|caller| caller.succeeds.is_none());
        if self.purpose == Purpose::Sum { workers.count() as u32 } else { 0 }
    }

    /// The element that it starts on.
    #[must_use]
    pub fn element(&self) -> usize {
        self.memory.map_or(0, |memory| memory.element)
    }

    /// Whether its methods count up to a threshold.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self.purpose, Purpose::Count { .. })
    }

    /// Whether the element may hold keys: its methods only add, or query.
    #[must_use]
    pub fn mapping(&self) -> bool {
        self.purpose == Purpose::Add
    }
}

impl Step {
    /// One call, awaited to its end.
    #[must_use]
    pub fn call(operation: Operation) -> Self {
        Self { work: Work::Call(operation), cancel_after: None, pause: Duration::ZERO, may_starve: false }
    }
}

impl Work {
    /// Chunks of the array that it sums; 0: none.
    #[must_use]
    pub fn chunks(&self, width: u16) -> u64 {
        match self {
            Self::Call(Operation::Sum { lanes, .. }) => lanes.len().div_ceil(usize::from(width.max(1))) as u64,
            _ => 0,
        }
    }

    /// What the step's first call asks for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Call(operation) => operation.clone(),
            Self::Lock { keys, .. } => {
                // NetRPC Table 2: test-and-set is CntFwd with threshold 1.
                Operation::Count { keys: keys.clone(), threshold: 1, to: Target::Src }
            }
        }
    }
}
