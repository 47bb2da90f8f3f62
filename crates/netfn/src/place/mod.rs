//! Placement: choice of the flows whose entries are in the element; packets of all other flows go to servers (CLIP
//! §V-A).
//!
//! ```text
//! element: sketch ─► reports above the threshold ─► Placer ─► ask servers to lease the entries ─► insert, batched
//!             ▲                                       │  ▲                        │
//!             └── threshold, k · packets / flows ◄────┘  └── unused, recalled ◄───┘ LeaseHolder: a server's side
//! ```
//!
//! [`Placer`] is the controller's part, [`LeaseHolder`] a server's; both are state machines without I/O: inputs and the
//! time go in, commands come out. An entry in the element is *leased*: its server does not expire it, and recalls it
//! before a more specific one is added beneath it. While packets of a flow are at a server, the entry's hits in the
//! element do not count (`split::balance`), so the placement does not wait for them.

mod entry_numbers;
mod lease_holder;
mod placer;
mod ranking;
mod removal;
mod selection;
mod threshold;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pathcall_p4::ir::{Match, TableEntry, TableId};

pub use lease_holder::{LeasableTables, LeaseHolder, LeaseOutput, clear_prefix};
pub use placer::Placer;
pub use ranking::{Ranked, top};
pub use threshold::ThresholdFeedback;

/// Number of a server in the topology.
pub type ServerId = u16;

/// Number of an entry in the element: the index of its state there.
pub type EntryNumber = u32;

/// Strategy of placement (Fig. 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum PlacementStrategy {
    /// Nothing is placed: all packets without an entry of the program go to servers (the paper's BL).
    None,
    /// Random flows are placed (R).
    Random,
    /// The element reports every flow, and the controller places the largest (H).
    Heap,
    /// The element reports flows above a threshold, and the controller places the largest of them (T).
    #[default]
    Threshold,
}

impl PlacementStrategy {
    /// All strategies, in the order of the figures.
    pub const ALL: [Self; 4] = [Self::None, Self::Random, Self::Heap, Self::Threshold];
}

impl fmt::Display for PlacementStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Random => "random",
            Self::Heap => "heap",
            Self::Threshold => "threshold",
        })
    }
}

/// Error of an unknown strategy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy {0:?}: none, random, heap or threshold")]
pub struct UnknownStrategy(String);

impl FromStr for PlacementStrategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.to_string() == name);
        found.ok_or_else(|| UnknownStrategy(name.to_owned()))
    }
}

/// Settings of the placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Strategy of placement.
    pub strategy: PlacementStrategy,
    /// First value of `k`, the factor of the threshold.
    pub k: f64,
    /// Tolerated deviation of the number of reports from the room of the table, as a share (the paper's ε).
    pub tolerance: f64,
    /// Time after which an entry that nothing matched leaves the element.
    pub idle: Duration,
    /// Minimum time of an entry in a full table; doubled for each return of an entry that left lately.
    pub stay: Duration,
    /// Factor by which a flow has to exceed an entry that it replaces in a full table.
    pub advantage: f64,
    /// Time after which an entry is used although its flow always has a packet at a server; packets may be reordered.
    /// `None`: never.
    pub force_after: Option<Duration>,
    /// Most commands in a batch.
    pub batch: usize,
    /// Time in which a server has to answer; afterwards it counts as a server without the entry.
    pub answer_within: Duration,
    /// Time before the number of a removed entry is reused: longer than any packet is at a server.
    pub reuse_after: Duration,
    /// Most reports kept in a window; further reports are only counted.
    pub reports_max: usize,
    /// Seed of the random strategy.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strategy: PlacementStrategy::Threshold,
            k: 2.0,
            tolerance: 0.1,
            idle: Duration::from_secs(5),
            stay: Duration::from_secs(2),
            advantage: 1.5,
            force_after: Some(Duration::from_millis(200)),
            batch: 1000,
            answer_within: Duration::from_millis(100),
            reuse_after: Duration::from_secs(1),
            reports_max: 1 << 20,
            seed: 1,
        }
    }
}

/// Facts about a mirrored table that placement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Table of the program.
    pub table: TableId,
    /// Widths of the keys, bits.
    pub widths: Vec<u16>,
    /// Capacity of the element's table, entries.
    pub capacity: u32,
    /// First number of its entries; there are `2 * capacity` numbers, as those of removed entries are not reused for a
    /// while.
    pub first_number: EntryNumber,
    /// Whether entries name cells of mirrored registers, whose values move with the entry.
    pub has_values: bool,
}

/// Values of mirrored registers that an entry had in the element when it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryValues {
    /// Number of the entry.
    pub number: EntryNumber,
    /// Turn of the values.
    pub turn: u16,
    /// One value for each mirrored register.
    pub values: Vec<u128>,
}

/// Report of a large flow by the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowReport {
    /// Table of the lookup.
    pub table: TableId,
    /// Key of the lookup.
    pub key: Vec<u128>,
    /// Hash of the key: its position in the sketch.
    pub hash: u32,
}

/// Input of the placer.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A flow has reached the threshold.
    Report(FlowReport),
    /// A window of the sketch has ended.
    Window(SketchWindow),
    /// Answer of a server to [`Output::Lease`].
    Leased {
        /// Server that answers.
        server: ServerId,
        /// Number that the entry would have.
        number: EntryNumber,
        /// Entry in the form that the element may have; `None` if the server has no such entry.
        entry: Option<TableEntry>,
    },
    /// Recall by a server: the entry was changed or removed, or a more specific one is to be added.
    Recall {
        /// Server that recalls.
        server: ServerId,
        /// Number of the entry.
        number: EntryNumber,
    },
    /// The element has applied a batch.
    Applied {
        /// Number of the batch.
        batch: u64,
        /// Entries that the element refused.
        refused: Vec<EntryNumber>,
        /// Register values of entries that are [`EntryMode::Pending`] now.
        given: Vec<EntryValues>,
    },
    /// Acknowledgement of [`Output::Give`].
    Taken {
        /// Server that acknowledges.
        server: ServerId,
        /// Number of the entry.
        number: EntryNumber,
    },
    /// The element has restarted and has no entry.
    ElementRestarted,
    /// A server has started.
    ServerUp(ServerId),
    /// A server has failed or stopped.
    ServerDown(ServerId),
}

/// Counts of the element in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SketchWindow {
    /// Number of packets.
    pub packets: u64,
    /// Number of marked bits of the flow bitmap, and its size.
    pub marked: (u64, u64),
    /// Rows of the sketch.
    pub rows: [Vec<u32>; 2],
    /// Entries that were used, with the number of packets.
    pub used: Vec<(EntryNumber, u32)>,
}

impl SketchWindow {
    /// Estimate of a flow's packets by the sketch: never less than the true number.
    #[must_use]
    pub fn estimate(&self, hash: u32) -> u64 {
        let cell = |row: usize| {
            let cells = &self.rows[row];
            cells.get((hash >> (16 * row)) as usize % cells.len().max(1)).copied().unwrap_or(0)
        };
        u64::from(cell(0).min(cell(1)))
    }

    /// Estimate of the number of flows by linear counting (Whang et al., 1990); at least one.
    #[must_use]
    pub fn flows(&self) -> f64 {
        let (marked, places) = (self.marked.0 as f64, self.marked.1.max(1) as f64);
        let free = (places - marked).max(1.0);
        (places * (places / free).ln()).max(1.0)
    }
}

/// Output of the placer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Batch of commands for the element, to be applied in this order and acknowledged by [`Input::Applied`].
    Element {
        /// Number of the batch.
        batch: u64,
        /// Commands of the batch.
        commands: Vec<Command>,
    },
    /// Request to a server to lease the entry that matches a key.
    Lease {
        /// Server that is asked.
        server: ServerId,
        /// Table of the entry.
        table: TableId,
        /// Key to be looked up.
        key: Vec<u128>,
        /// Number of the entry from now on; responses name changed entries by it.
        number: EntryNumber,
    },
    /// Register values of an entry that is about to leave, to be stored if they are newer than the server's own, before
    /// a packet arrives that does not carry them.
    Give {
        /// Server that gets the values.
        server: ServerId,
        /// Values of the entry.
        given: EntryValues,
    },
    /// End of a lease: the entry has left the element, or was never inserted.
    Release {
        /// Server of the lease.
        server: ServerId,
        /// Number of the entry.
        number: EntryNumber,
    },
}

/// Command for the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Insert an entry.
    Insert {
        /// Table of the entry.
        table: TableId,
        /// Entry to be inserted.
        entry: TableEntry,
        /// Number of the entry.
        number: EntryNumber,
    },
    /// Change the use of an entry. If the entry is no longer used, its values of mirrored registers are returned with
    /// [`Input::Applied`].
    Mode {
        /// Table of the entry.
        table: TableId,
        /// Keys of the entry.
        keys: Vec<Match>,
        /// Number of the entry.
        number: EntryNumber,
        /// New use of the entry.
        mode: EntryMode,
    },
    /// Remove an entry.
    Remove {
        /// Table of the entry.
        table: TableId,
        /// Keys of the entry.
        keys: Vec<Match>,
        /// Number of the entry.
        number: EntryNumber,
    },
    /// Reset the state of an entry number before it is used again.
    Reset(EntryNumber),
    /// Set the packet count from which a flow is reported; `u32::MAX`: never.
    Threshold(u32),
}

/// Use of an entry in the element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryMode {
    /// Hits do not count: packets go to the server.
    Pending = 0,
    /// Hits count while no packet of the flow is at a server.
    Active = 1,
    /// Hits count.
    Forced = 2,
}

/// Counters of the placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reports of flows received.
    pub reports: u64,
    /// Reports that were not kept for lack of room.
    pub reports_dropped: u64,
    /// Entries placed in the element.
    pub placed: u64,
    /// Entries removed because nothing matched them for the idle time.
    pub aged: u64,
    /// Entries replaced by larger flows.
    pub replaced: u64,
    /// Entries recalled by their server.
    pub recalled: u64,
    /// Entries that servers did not have or could not lease.
    pub refused: u64,
    /// Entries forced into use while packets of their flows were at servers.
    pub forced: u64,
}
