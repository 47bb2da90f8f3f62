//! Which flows an element works on itself: the rest goes to servers (CLIP §V-A).
//!
//! ```text
//! element: sketch ─► reports above the threshold ─► Placer ─► ask servers to lease the entries ─► insert, batched
//!             ▲                                       │  ▲                        │
//!             └── threshold, k · packets / flows ◄────┘  └── unused, recalled ◄───┘ Holder: a server's side
//! ```
//!
//! [`Placer`] is the controller's half, [`Holder`] a server's; both are state machines: what happened and the time go
//! in, commands come out. Neither knows how they travel. An entry that the element has is *leased*: its server does
//! not expire it, and has it back before a more-specific one is added beneath. While packets of a flow are at a
//! server, its hits in the element do not count (`split::balance`), so nothing here has to wait for them.

mod choose;
mod holder;
mod leave;
mod numbers;
mod placer;
mod rank;
mod threshold;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ir::{Entry, Match, TableId};

pub use holder::{Holder, HolderOutput, Mirror, clear_prefix};
pub use placer::Placer;
pub use rank::{Ranked, top};
pub use threshold::Feedback;

/// A server's number, as the topology counts them.
pub type ServerId = u16;

/// The number of an entry in the element: index of its state there.
pub type EntryNumber = u32;

/// What of a table's traffic is looked for and moved (Fig. 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Strategy {
    /// Nothing is moved: all that the program has no entry for goes to servers (the paper's BL).
    None,
    /// Any flows (R).
    Random,
    /// The element reports every flow, the controller takes the largest (H).
    Heap,
    /// The element reports flows above a threshold, the controller takes the largest of them (T).
    #[default]
    Threshold,
}

impl Strategy {
    /// All of them, as the figures name them.
    pub const ALL: [Self; 4] = [Self::None, Self::Random, Self::Heap, Self::Threshold];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Random => "random",
            Self::Heap => "heap",
            Self::Threshold => "threshold",
        })
    }
}

/// No strategy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy {0:?}: none, random, heap or threshold")]
pub struct UnknownStrategy(String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.to_string() == name);
        found.ok_or_else(|| UnknownStrategy(name.to_owned()))
    }
}

/// How entries are placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What is moved.
    pub strategy: Strategy,
    /// The `k` that the threshold begins with.
    pub k: f64,
    /// Reports that are so much more or fewer than the table has room for, as a share, are right (the paper's ε).
    pub tolerance: f64,
    /// An entry that nothing matched for so long leaves the element.
    pub idle: Duration,
    /// A full table gives no entry up before it was there for so long; who comes back stays twice as long.
    pub stay: Duration,
    /// A full table gives an entry up only for a flow so many times as large.
    pub advantage: f64,
    /// An entry whose flow has had a packet at a server all the time since is used at once after so long, at the price
    /// of order; none: never.
    pub force_after: Option<Duration>,
    /// Commands in a batch at most.
    pub batch: usize,
    /// A server that does not answer in this time has no such entry.
    pub answer_within: Duration,
    /// The number of an entry that left is given again no sooner: longer than any packet is at a server.
    pub reuse_after: Duration,
    /// Reports of a window that are kept at most; more are counted.
    pub reports_max: usize,
    /// Where random choice begins.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strategy: Strategy::Threshold,
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

/// A mirrored table, as its placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Which.
    pub table: TableId,
    /// Widths of its keys in bits.
    pub widths: Vec<u16>,
    /// Entries that the element has room for.
    pub capacity: u32,
    /// Where its entries' numbers begin; they end `2 * capacity` further: those that left lie fallow for a while.
    pub first_number: EntryNumber,
    /// Whether entries name cells of mirrored registers: their values go with them.
    pub handed: bool,
}

/// Values of mirrored registers that an entry had in the element when it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The entry's number.
    pub number: EntryNumber,
    /// Of which turn they are.
    pub turn: u16,
    /// One of each mirrored register.
    pub values: Vec<u128>,
}

/// The element's report of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heavy {
    /// The table that it looked up.
    pub table: TableId,
    /// With this.
    pub key: Vec<u128>,
    /// Its hash: where it is counted in the sketch.
    pub hash: u32,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A flow has reached the threshold.
    Heavy(Heavy),
    /// A window of the sketch has ended.
    Window(Window),
    /// A server answers [`Output::Lease`].
    Leased {
        /// The server.
        server: ServerId,
        /// The number that the entry would have.
        number: EntryNumber,
        /// The entry, as the element may have it; none if there is none.
        entry: Option<Entry>,
    },
    /// A server wants an entry back: it was changed or removed, or a more-specific one is to be added.
    Recall {
        /// The server.
        server: ServerId,
        /// The entry's number.
        number: EntryNumber,
    },
    /// The element has done a batch.
    Applied {
        /// Which.
        batch: u64,
        /// Numbers of entries that it did not take.
        refused: Vec<EntryNumber>,
        /// Values of entries that are [`Mode::Pending`] now.
        given: Vec<Given>,
    },
    /// A server has heard of the values of [`Output::Give`].
    Taken {
        /// The server.
        server: ServerId,
        /// The entry's number.
        number: EntryNumber,
    },
    /// The element began anew: it has no entry.
    ElementRestarted,
    /// A server is there.
    ServerUp(ServerId),
    /// A server is gone.
    ServerDown(ServerId),
}

/// What the element has counted in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Packets.
    pub packets: u64,
    /// Places of its record of flows that were marked, of how many.
    pub marked: (u64, u64),
    /// The rows of the sketch.
    pub rows: [Vec<u32>; 2],
    /// Entries that were used, for how many packets.
    pub used: Vec<(EntryNumber, u32)>,
}

impl Window {
    /// What the sketch says of a flow: never less than there was.
    #[must_use]
    pub fn estimate(&self, hash: u32) -> u64 {
        let cell = |row: usize| {
            let cells = &self.rows[row];
            cells.get((hash >> (16 * row)) as usize % cells.len().max(1)).copied().unwrap_or(0)
        };
        u64::from(cell(0).min(cell(1)))
    }

    /// How many flows marked so many places: linear counting (Whang et al., 1990). At least one.
    #[must_use]
    pub fn flows(&self) -> f64 {
        let (marked, places) = (self.marked.0 as f64, self.marked.1.max(1) as f64);
        let free = (places - marked).max(1.0);
        (places * (places / free).ln()).max(1.0)
    }
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
    /// A server shall lease the entry that matches this key.
    Lease {
        /// The server.
        server: ServerId,
        /// The table.
        table: TableId,
        /// The key.
        key: Vec<u128>,
        /// The number that it has from now on: changes are said with it.
        number: EntryNumber,
    },
    /// An entry is about to leave: a server shall have its values, if they are newer than its own, before a packet comes
    /// that does not carry them.
    Give {
        /// The server.
        server: ServerId,
        /// The values.
        given: Given,
    },
    /// The entry of this number has left the element, or did not come there: the server's again.
    Release {
        /// The server.
        server: ServerId,
        /// Which.
        number: EntryNumber,
    },
}

/// What the element does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Takes an entry.
    Insert {
        /// In this table.
        table: TableId,
        /// The entry.
        entry: Entry,
        /// Its number.
        number: EntryNumber,
    },
    /// Changes how an entry is used. Where it is no longer used, its values of mirrored registers, if it has some, are
    /// said with [`Input::Applied`].
    Mode {
        /// In this table.
        table: TableId,
        /// What it matches.
        keys: Vec<Match>,
        /// Its number.
        number: EntryNumber,
        /// From now on.
        mode: Mode,
    },
    /// Removes an entry.
    Remove {
        /// In this table.
        table: TableId,
        /// What it matches.
        keys: Vec<Match>,
        /// Its number.
        number: EntryNumber,
    },
    /// Makes an entry's state what it is before the entry comes.
    Reset(EntryNumber),
    /// Packets of a flow from which on it is reported; `u32::MAX`: never.
    Threshold(u32),
}

/// How an entry in the element is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Its hits do not count: packets go to the server.
    Pending = 0,
    /// Its hits count while no packet of its flow is at a server.
    Active = 1,
    /// Its hits count.
    Forced = 2,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reports of flows that came.
    pub reports: u64,
    /// Of them, not kept for want of room.
    pub reports_dropped: u64,
    /// Entries that came into the element.
    pub placed: u64,
    /// That left: nothing matched them for long.
    pub aged: u64,
    /// That left for larger flows.
    pub replaced: u64,
    /// That left because their server said so.
    pub recalled: u64,
    /// That servers did not have, or could not give.
    pub refused: u64,
    /// That were used although packets of their flows were at servers.
    pub forced: u64,
}
