//! State machines of *map* in hosts: caller and owner, with their operations and outputs.
//!
//! ```text
//! Operation ─► client ─frames─► element ─frames─► server     (sums, additions: processed by the element)
//!              client ─frames──────────────────► server     (the software path: same answer)
//! Output   ◄── client ◄─frames── element ◄─frames── server
//! ```
//!
//! [`client::MapClient`] is the state machine of one caller of one application, [`server::MapServer`] that of the
//! owner, which has the authoritative values. [`gradient`] makes sums of small values out of gradients. Both take frames and the time, and produce frames (to an [`FrameSink`]),
//! events and the next deadline. They do no I/O and read no clock. [`level`] joins a server and a caller to sums in
//! levels.

mod ballot;
mod bypass;
mod chunks;
pub mod client;
mod error;
pub mod gradient;
mod key;
mod lanes;
pub mod lease;
pub mod level;
pub mod server;

use std::time::Duration;

pub use error::CallError;
pub use key::{Key, logical_address};
pub use lanes::Lanes;
use pathcall_wire::ForwardTarget;
pub use pathcall_wire::policy::{Ack, ClearPolicy, LaneFormat, Modify, ReadMode};

/// Operation of a call. Its values are quantised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// SyncAgtr: array addition over `threshold` workers; all workers get the sums, or
    /// what the server's handler makes of them.
    Sum {
        /// One value per lane.
        lanes: Lanes,
        /// Modification of each value before the addition.
        modify: Modify,
        /// Number of contributing workers.
        threshold: u32,
        /// Target of the sums: `Server` if the server's handler decides the results, else `All`.
        to: ForwardTarget,
    },
    /// AsyncAgtr, KeyValue: keyed addition, optionally with a read of the values.
    Add {
        /// Keys, each at most once, with the values to add.
        pairs: Vec<(Key, i64)>,
        /// Modification of each value before the addition.
        modify: Modify,
        /// Whether to return the values after the addition.
        get: bool,
        /// Acknowledgement that the call waits for.
        ack: Ack,
    },
    /// AsyncAgtr, KeyValue: query of the values of keys.
    Read {
        /// Keys, each at most once.
        keys: Vec<Key>,
        /// What the values must contain.
        read: ReadMode,
    },
    /// Agreement: counts each key once; test-and-set if the threshold is 1.
    Count {
        /// Keys to count.
        keys: Vec<Key>,
        /// Counter value at which `CntFwd` forwards.
        threshold: u32,
        /// Forward target.
        to: ForwardTarget,
        /// Party that has the decision of a ballot before a waiting caller gets it. No effect on locks.
        ack: Ack,
    },
    /// Clears counters and values of keys, and releases locks.
    Clear {
        /// Keys to clear.
        keys: Vec<Key>,
        /// Fencing tokens of the released grants, key by key; if empty, the grants that the caller holds.
        tokens: Vec<u64>,
    },
}

/// Result of a finished call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// [`Operation::Sum`]: one sum per lane.
    Sums(Lanes),
    /// [`Operation::Read`], and [`Operation::Add`] with `get`: one value per pair, in the call's order.
    Values(Vec<i64>),
    /// [`Operation::Count`]: the keys for which `CntFwd` forwards the message of this call.
    Counted {
        /// One value per key, in the call's order. True for all callers that wait for the decision.
        forwarded: Vec<bool>,
    },
    /// [`Operation::Count`] with threshold 1: the caller holds the locks.
    Locked {
        /// Fencing tokens of the locks, one per key, in the call's order.
        tokens: Vec<u64>,
        /// Minimum time for which the caller holds the locks.
        lease: Duration,
    },
    /// Operation without a result.
    Done,
}

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dest {
    /// Element of the application.
    Element,
    /// Endpoint with this id, directly.
    Endpoint(u32),
    /// Endpoint with this id; the element is on the route and processes the frame (inline). If the element is gone, the
    /// frame arrives unprocessed.
    Inline(u32),
}

/// Receiver of a state machine's frames: the driver's link or the simulator's network.
pub trait FrameSink {
    /// Sends a frame.
    fn send(&mut self, to: Dest, frame: &[u8]);
}

/// Memory in an element, granted by the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterGrant {
    /// Rows of registers.
    pub rows: u32,
    /// Lanes in a row.
    pub width: u16,
}

/// Frame of a caller in a committed generation of an ended epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedFrame {
    /// Flow of the caller, from 0.
    pub flow: u32,
    /// Sequence number in the flow.
    pub seq: u32,
    /// Bit mask of lanes that overflowed and were not applied.
    pub overflowed_lanes: u32,
}

/// Notice to a caller about a change of epoch: the element has restarted, another element serves the application, its
/// memory has moved, or there is no element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochChange {
    /// New epoch.
    pub epoch: u32,
    /// Whether the caller's frames use an element.
    pub element: bool,
    /// First flow slot of the caller in the element.
    pub slot_base: u32,
    /// Rows of the application.
    pub rows: u32,
    /// Era of fencing tokens that the element grants.
    pub era: lease::Era,
    /// Last committed generation of the ended epoch; later generations are lost.
    pub committed: u32,
    /// Frames of the caller in committed generations that may not have been acknowledged.
    pub applied: Vec<CommittedFrame>,
}
