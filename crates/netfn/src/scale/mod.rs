//! Scaling: changes of a function's servers, while flows stay at the server that has their state (CLIP §V-B).
//!
//! ```text
//! topology file ─► Scaler ◄─ load reports, operator's wishes, deaths (no report)
//!                    │
//!                    ├─► element: groups (version, bucket → server), the version, owners of partitions' blocks
//!                    └─► servers: which blocks of a partition are theirs
//! ```
//!
//! A group of servers has a version. The element keeps two Bloom filters: one of the flows that arrived under the
//! newest version, and one of the flows of the previous version. Flows of the previous version keep their old server,
//! new flows go to the new group. A third version starts only when no flow needs the oldest any more. If a change of
//! the group or the removal of a server waits too long for that, an event is sent to the operator and the servers
//! *drain* their old flows. A flow loses its server only if the operator has set a time limit. A change moves as few
//! buckets as possible; a flow whose bucket stays becomes a flow of the newest group with its next packet.

mod buckets;
mod drain;
mod load;
mod ranges;
mod scaler;
mod topology;

use std::time::Duration;

pub use crate::place::ServerId;
pub use buckets::{assign, moved};
pub use ranges::{Ranges, ValueBlock};
pub use scaler::Scaler;
pub use topology::{Topology, TopologyDevice, TopologyDeviceRole, TopologyError};

/// Version of a group, and of the flows that arrived under the group.
pub type Version = u8;

/// Highest version: even, because its successor is 1.
pub const VERSION_MAX: Version = 254;

/// Settings of the scaling.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Number of buckets, selected by the hash of a flow.
    pub buckets: u16,
    /// Minimum number of servers when a group shrinks by load.
    pub servers_min: usize,
    /// Mean load, as a share of the capacity, above which a server is added.
    pub load_high: f64,
    /// Mean load, as a share of the capacity, below which a server is removed, if the others can take its load.
    pub load_low: f64,
    /// Minimum time between two changes by load.
    pub calm: Duration,
    /// Time without a load report after which a server counts as dead.
    pub report_within: Duration,
    /// Time without flows of the old group at any server after which the group ends: longer than the longest way of a
    /// packet.
    pub quiet: Duration,
    /// Waiting time for old flows after which they are drained and an event is sent, if the group is to change again or
    /// one of the old group's servers is to be removed.
    pub drain_after: Duration,
    /// Period of repeated drain commands.
    pub drain_every: Duration,
    /// Idle time after which a draining server expires old flows; `None`: the function's own idle time.
    pub drain_idle: Option<Duration>,
    /// Longest wait for old flows; afterwards the remaining flows lose their server and are counted. `None`: no limit.
    pub drain_within: Option<Duration>,
    /// Time before the values of a dead server are given to another: they may still be in use.
    pub quarantine: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            buckets: 256,
            servers_min: 1,
            load_high: 0.8,
            load_low: 0.3,
            calm: Duration::from_secs(10),
            report_within: Duration::from_secs(1),
            quiet: Duration::from_secs(1),
            drain_after: Duration::from_secs(60),
            drain_every: Duration::from_secs(1),
            drain_idle: None,
            drain_within: None,
            quarantine: Duration::from_secs(120),
        }
    }
}

/// Input of the scaler.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Load report of a server.
    Load(Load),
    /// Servers that the operator wants in the group.
    SetWanted(Vec<ServerId>),
    /// A server has no value of a block in use any more.
    Returned {
        /// Server that returns the block.
        server: ServerId,
        /// Partition and block.
        block: (usize, ValueBlock),
    },
    /// The element has applied a batch.
    Applied {
        /// Number of the batch.
        batch: u64,
    },
    /// The element has restarted: it has no groups and no flows in its filters.
    ElementRestarted,
}

/// Periodic load report of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Server that reports.
    pub server: ServerId,
    /// Incarnation of the server, greater with each start.
    pub incarnation: u32,
    /// Packets per second, as a share of the capacity.
    pub load: f64,
    /// Flows that have state at the server.
    pub flows: u64,
    /// Flows among them that the element assigns to this server only by the old group: their last packet came under
    /// that group.
    pub old_flows: u64,
    /// Newest version that the server knows, on which the count of old flows is based.
    pub version: Version,
}

/// Output of the scaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Batch of commands for the element, to be applied in this order and acknowledged by [`Input::Applied`].
    Element {
        /// Number of the batch.
        batch: u64,
        /// Commands of the batch.
        commands: Vec<Command>,
    },
    /// Newest version and the server's buckets in it, by which the server counts old flows and recognises flows that
    /// have moved to other servers.
    Group {
        /// Server of the buckets.
        server: ServerId,
        /// Newest version.
        version: Version,
        /// Buckets of the server in the newest version.
        buckets: Vec<u16>,
        /// Previous version, while flows need it, and the server's buckets in it.
        old: Option<(Version, Vec<u16>)>,
    },
    /// Block of values for a server.
    Give {
        /// Server that gets the block.
        server: ServerId,
        /// Partition and block.
        block: (usize, ValueBlock),
    },
    /// Request to a server to use no new values of a block, and to report when none is in use: [`Input::Returned`].
    Take {
        /// Server that has the block.
        server: ServerId,
        /// Partition and block.
        block: (usize, ValueBlock),
    },
    /// Request to a server to drain its old flows: entries of flows that stay at this server leave the element, so that
    /// their next packets belong to the newest group. Repeated while the wait lasts.
    Drain {
        /// Server that drains.
        server: ServerId,
        /// Idle time after which old flows expire; `None`: the function's own time.
        idle: Option<Duration>,
    },
    /// Event for the operator.
    Event(Event),
}

/// Command for the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Set the server of a version and bucket; `None`: no server.
    Group {
        /// Version of the group.
        version: Version,
        /// Bucket of the group.
        bucket: u16,
        /// Server of the bucket.
        server: Option<ServerId>,
        /// Whether the server of the bucket is the same in the newest group, so that flows move to the newest group.
        stays: bool,
    },
    /// Set the version of new flows, and whether flows of the previous version are looked up.
    Version {
        /// Newest version.
        version: Version,
        /// Whether some flows need the previous version.
        previous: bool,
    },
    /// Set the server that packets with a value of this block are steered to; `None`: steer them by flow.
    Owner {
        /// Index of the partition.
        partition: usize,
        /// Block of values.
        block: ValueBlock,
        /// Server of the block.
        server: Option<ServerId>,
    },
}

/// Event for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A server has reported for the first time, or again.
    Up(ServerId),
    /// A server is dead: its reports stopped, or it has restarted. Its flows move to other servers and lose their
    /// state.
    Down {
        /// Dead server.
        server: ServerId,
        /// Number of flows that the server reported.
        flows: u64,
    },
    /// The group has changed.
    Changed {
        /// Version of the new group.
        version: Version,
        /// Servers of the new group.
        servers: Vec<ServerId>,
    },
    /// No flow needs the group with this version any more.
    Drained(Version),
    /// A change has waited for flows of the previous group for [`Config::drain_after`].
    Waits {
        /// Version of the previous group.
        version: Version,
        /// Servers with such flows, and how many each has.
        servers: Vec<(ServerId, u64)>,
    },
    /// The wait reached [`Config::drain_within`]: the previous group has ended, and its remaining flows lost their
    /// server.
    Overdue {
        /// Version of the previous group.
        version: Version,
        /// Number of flows that lost their server.
        flows: u64,
    },
}

/// Counters of the scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Changes of the group.
    pub changes: u64,
    /// Changes of the group by load.
    pub by_load: u64,
    /// Servers that died.
    pub deaths: u64,
    /// Flows that moved to other servers and lost their state.
    pub flows_lost: u64,
    /// Drain commands sent to servers.
    pub drains: u64,
    /// Old groups that ended although flows needed them ([`Config::drain_within`]).
    pub overdue: u64,
}
