//! The host's end of *map*: what a call asks for, what it gets, and the two state machines.
//!
//! ```text
//! Operation ─► client ─frames─► element ─frames─► server     (sums, adds: worked on in passing)
//!              client ─frames──────────────────► server     (the software path: same answer)
//! Output   ◄── client ◄─frames── element ◄─frames── server
//! ```
//!
//! [`client::MapClient`] belongs to one caller of one application, [`server::MapServer`] to the
//! owner of its truth. Both take frames and `now`, and give frames (to an [`Outbox`]), events and
//! the next deadline. Neither does I/O or reads a clock.

mod ballot;
mod bypass;
pub mod client;
mod error;
mod key;
mod lanes;
pub mod lease;
pub mod server;

use std::time::Duration;

pub use error::CallError;
pub use key::{Key, logical_address};
pub use lanes::Lanes;
use pathcall_wire::{OpType, Target};

/// `Stream.modify` of a call: operator and operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modify {
    /// The operator.
    pub op: OpType,
    /// Its operand.
    pub para: i32,
}

/// Clear policy of arrays (NetRPC §5.2.2): who keeps a round's sums until all workers have them. All calls of an
/// application have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClearPolicy {
    /// The server: it has them before anybody else, and then the element is cleared.
    #[default]
    Copy,
    /// The element, which says them itself and has two rows in place of one; and each worker for the others, should the
    /// element fail.
    Shadow,
}

/// Who must have what a call adds before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// The element will do: its caller keeps it until the server has it.
    #[default]
    Element,
    /// The server (NOTES: `ack: server`): losing element and caller together loses nothing of it.
    Server,
}

/// What a call asks the map for. Values are quantised already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// SyncAgtr: this caller's array of a round among `threshold` workers; all get the sums.
    Sum {
        /// One value per lane.
        lanes: Lanes,
        /// Applied to each value first.
        modify: Modify,
        /// Workers that contribute.
        threshold: u32,
    },
    /// AsyncAgtr, KeyValue: adds each value to its key; `get` asks for the values after it.
    Add {
        /// Keys, each at most once, with what to add.
        pairs: Vec<(Key, i64)>,
        /// Applied to each value first.
        modify: Modify,
        /// Whether the values after the addition are wanted.
        get: bool,
        /// Who must have it before the call is done.
        ack: Ack,
    },
    /// Agreement: counts each key once; test-and-set when the threshold is 1.
    Count {
        /// Keys to count.
        keys: Vec<Key>,
        /// Forward when the counter reaches it.
        threshold: u32,
        /// To whom.
        to: Target,
    },
    /// Clears counters and values of these keys, and gives locks back.
    Clear {
        /// Keys to clear.
        keys: Vec<Key>,
        /// The grants that are given back, by their fencing tokens, key by key; empty: those that the
        /// caller holds now.
        tokens: Vec<u64>,
    },
}

/// What a finished call got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// [`Operation::Sum`]: one sum per lane.
    Sums(Lanes),
    /// [`Operation::Add`] with `get`: one value per pair, in the call's order.
    Values(Vec<i64>),
    /// [`Operation::Count`]: whether this call's message is the one that `CntFwd` forwards.
    Counted {
        /// True for every caller when the target is `All`.
        forwarded: bool,
    },
    /// [`Operation::Count`] to a threshold of 1: these locks are the caller's.
    Locked {
        /// Their fencing tokens, in the order of the keys.
        tokens: Vec<u64>,
        /// For how long at least, unless they are given back.
        lease: Duration,
    },
    /// Took effect, nothing to give back.
    Done,
}

/// Whom a frame is handed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dest {
    /// The application's element.
    Element,
    /// The endpoint with this id, directly.
    Endpoint(u32),
    /// The application's element, which is on the way to the endpoint with this id: a frame that is
    /// addressed there is worked on in passing (inline), or comes there bare if the element is gone.
    Inline(u32),
}

/// Where a state machine puts its frames: the driver's link, or the simulator's network.
pub trait Outbox {
    /// Takes one frame.
    fn send(&mut self, to: Dest, frame: &[u8]);
}

/// A place in an element's memory, as the controller granted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Rows of registers.
    pub rows: u32,
    /// Lanes in a row.
    pub width: u16,
}

/// A caller's frame that a committed generation of an ended epoch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The caller's flow, counted from 0.
    pub flow: u32,
    /// Its sequence number.
    pub seq: u32,
    /// Lanes of it that overflowed and were left out.
    pub left_out: u32,
}

/// What a caller is told when the epoch changes: the element has restarted, another serves the
/// application, its memory has moved, or there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The epoch from now on.
    pub epoch: u32,
    /// Whether this caller's frames go by an element.
    pub element: bool,
    /// First of its flow slots there.
    pub slot_base: u32,
    /// Upper half of the fencing tokens of locks that the element grants.
    pub era: lease::Era,
    /// Generations of the ended epoch up to this are the server's; later ones are gone.
    pub committed: u32,
    /// What they hold of this caller's frames, as far as it may not have been acknowledged.
    pub applied: Vec<Applied>,
}
