//! Servers come and go, flows stay where their state is (CLIP §V-B).
//!
//! ```text
//! topology file ─► Scaler ◄─ load reports, operator's wishes, deaths (no report)
//!                    │
//!                    ├─► element: groups (version, bucket → server), the version, owners of partitions' blocks
//!                    └─► servers: which blocks of a partition are theirs
//! ```
//!
//! A group of servers has a version. The element remembers in one Bloom filter which flows came while a version was the
//! newest, and in the other those of the version before: these go on to their old server, new ones to the new group.
//! A third version waits until no flow needs the oldest any more. Where somebody waits for that for long, because the
//! group shall change again or a server shall go, the operator is told and servers are asked for haste: they *drain*. A
//! flow loses its server only if the operator has said after how long. A change
//! moves as few buckets as it can; a flow whose bucket stays becomes one of the newest group with its next packet.

mod buckets;
mod drain;
mod load;
mod ranges;
mod scaler;
mod topology;

use std::time::Duration;

pub use crate::place::ServerId;
pub use buckets::{assign, moved};
pub use ranges::{BLOCKS_MAX, Block, Ranges, shift as block_shift};
pub use scaler::Scaler;
pub use topology::{Device, Role, Topology, TopologyError};

/// The number of a group, and of the flows that came with it.
pub type Version = u8;

/// The highest version: even, as the one behind it is 1.
pub const VERSION_MAX: Version = 254;

/// How groups change.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Buckets that flows fall into by their hash.
    pub buckets: u16,
    /// Servers of a group at least, when it shrinks by itself.
    pub servers_min: usize,
    /// At a mean load above this share of their capacity a server is added.
    pub load_high: f64,
    /// At a mean load below this share one is removed, if the others can bear it.
    pub load_low: f64,
    /// No change by load sooner than this after the last change.
    pub calm: Duration,
    /// A server that reports no load for so long is dead.
    pub report_within: Duration,
    /// The old group goes when no server has had a flow of its own in it for so long: longer than any packet is on its
    /// way.
    pub quiet: Duration,
    /// When somebody has waited so long for old flows, they are drained, and the operator hears of it: the group is to
    /// change again, or a server of theirs is to go.
    pub drain_after: Duration,
    /// Servers that drain are told again after so long.
    pub drain_every: Duration,
    /// A server that drains lets old flows go that nothing used for so long; none: for as long as their function says.
    pub drain_idle: Option<Duration>,
    /// Nobody waits for longer than this: what is left of old flows loses its server then, and is counted. None: however
    /// long it takes.
    pub drain_within: Option<Duration>,
    /// A dead server's values are given to nobody for so long: others may still use them.
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

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A server reports.
    Load(Load),
    /// The operator wants the group to be these servers.
    Want(Vec<ServerId>),
    /// A server no longer has values of this block.
    Returned {
        /// The server.
        server: ServerId,
        /// Which partition, and which of its blocks.
        block: (usize, Block),
    },
    /// The element has done a batch.
    Applied {
        /// Which.
        batch: u64,
    },
    /// The element began anew: it has no groups and remembers no flow.
    ElementRestarted,
}

/// What a server says of itself, again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The server.
    pub server: ServerId,
    /// Greater each time that it starts.
    pub incarnation: u32,
    /// Packets a second, as a share of its capacity.
    pub load: f64,
    /// Flows that it has state for.
    pub flows: u64,
    /// Of them, those that the element knows only by the group before to be this server's: their last packet came with
    /// that.
    pub old_flows: u64,
    /// The newest version that it knows: counts of old flows are by that one.
    pub version: Version,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The element shall do this, in this order, and say when it has.
    Element {
        /// The batch's number.
        batch: u64,
        /// What.
        commands: Vec<Command>,
    },
    /// A server shall know the newest version and its buckets, by which it counts old flows; and by which it knows flows
    /// that go elsewhere, though it has something of them.
    Group {
        /// The server.
        server: ServerId,
        /// The newest version.
        version: Version,
        /// Its buckets in it.
        buckets: Vec<u16>,
        /// The version before, while flows need it, and the server's buckets in that.
        old: Option<(Version, Vec<u16>)>,
    },
    /// These values are a server's from now on.
    Give {
        /// The server.
        server: ServerId,
        /// Which partition, and which of its blocks.
        block: (usize, Block),
    },
    /// A server shall give out no more of these values, and say when it has none of them: [`Input::Returned`].
    Take {
        /// The server.
        server: ServerId,
        /// Which partition, and which of its blocks.
        block: (usize, Block),
    },
    /// Somebody waits for this server's old flows: what the element has of those that stay with this server leaves it, so
    /// that their next packets are of the newest group. Said again and again while it is so.
    Drain {
        /// The server.
        server: ServerId,
        /// What nothing used for so long goes; none: the function's own time.
        idle: Option<Duration>,
    },
    /// Something that an operator wants to know.
    Event(Event),
}

/// What an element does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Flows of this version and bucket go to this server; without one, nowhere.
    Group {
        /// The version.
        version: Version,
        /// The bucket.
        bucket: u16,
        /// The server.
        server: Option<ServerId>,
        /// Of the group before: the newest has this bucket there too, so the flow becomes one of the newest.
        stays: bool,
    },
    /// New flows are of this version; those of the one before are looked for, or no longer.
    Version {
        /// The newest.
        version: Version,
        /// Whether some flows still need the one before.
        previous: bool,
    },
    /// Packets that are steered by a value of this block go to this server; without one, by their flow.
    Owner {
        /// The partition.
        partition: usize,
        /// The block.
        block: Block,
        /// The server.
        server: Option<ServerId>,
    },
}

/// What operators want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A server has reported for the first time, or again.
    Up(ServerId),
    /// A server is dead: it reported nothing, or has started anew. Its flows go to others, without their state.
    Down {
        /// The server.
        server: ServerId,
        /// Flows that it said it had.
        flows: u64,
    },
    /// The group is another.
    Changed {
        /// Its version.
        version: Version,
        /// Its servers.
        servers: Vec<ServerId>,
    },
    /// No flow needs the group before any more.
    Drained(Version),
    /// Somebody waits for flows of the group before, and has for [`Config::drain_after`].
    Waits {
        /// Its version.
        version: Version,
        /// Servers that have such flows, and how many.
        servers: Vec<(ServerId, u64)>,
    },
    /// Waiting took [`Config::drain_within`]: the group before is gone, with these flows' servers.
    Overdue {
        /// Its version.
        version: Version,
        /// Flows that lost their server.
        flows: u64,
    },
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Changes of the group.
    pub changes: u64,
    /// Of them, by load.
    pub by_load: u64,
    /// Servers that died.
    pub deaths: u64,
    /// Flows that went to others without their state.
    pub flows_lost: u64,
    /// Times that servers were asked to drain.
    pub drains: u64,
    /// Old groups that went although flows needed them ([`Config::drain_within`]).
    pub overdue: u64,
}
