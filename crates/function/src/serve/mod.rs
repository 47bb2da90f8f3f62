//! A server of a function: requests in, the same frames out as responses; and what the controller asks of it.
//!
//! ```text
//! request ─► no repeat ─► values of registers, if newer ─► Handler ─► response in place, with the values ─► turned round
//! controller ─► lease, release, add, ranges ─► Holder, Handler ─► leased, recall
//! ```
//!
//! [`Handler`] is the function's own part: C in a sandbox, or Rust. [`Server`] is what is around it, the same for all.

mod flows;
mod made_here;
mod repeats;
mod server;
mod unlisted;

use crate::ir::{Entry, Match, RegisterId, TableId};
use crate::place::Mirror;

pub use flows::Groups;
pub use repeats::Repeats;
pub use server::{Answer, Server, Stats};

/// What became of a packet at its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The response is there.
    Respond,
    /// The handler ended the packet, for this reason of its own.
    Drop(u32),
    /// The handler failed, its instance was begun anew; the packet is lost.
    Trap,
}

/// What happened to an entry of a mirrored table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It came, or says something else.
    Put(Entry),
    /// It went: the handler removed it, or nothing used it for long.
    Removed(Vec<Match>),
}

/// An entry that a handler looked up for a packet: the element may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// Of this table.
    pub table: TableId,
    /// What it matches.
    pub keys: Vec<Match>,
    /// What was looked up.
    pub key: Vec<u128>,
}

/// One instance of a function's handler, with its mirrored tables and registers.
///
/// Tables, registers and actions have the numbers that the program has for them before its split.
pub trait Handler: Mirror {
    /// Works on a packet. `request`: a value for each of its parameters, in order; `packet`: as it came;
    /// `response`: zeros, to be filled.
    fn handle(&mut self, now_ms: u64, request: &[u128], packet: &[u8], response: &mut [u128]) -> Outcome;

    /// The entry that the last packet was about: the first that it looked up and found, or made.
    fn touched(&self) -> Option<Touched>;

    /// The next thing that happened to the tables and was not asked for yet.
    fn poll_change(&mut self) -> Option<(TableId, Change)>;

    /// Adds an entry, or gives the one with these keys another action: an operator's, which does not grow old. False:
    /// there is no room, or it is none of this table.
    fn put(&mut self, table: TableId, entry: &Entry) -> bool;

    /// Removes an entry. False: there is none.
    fn remove(&mut self, table: TableId, keys: &[Match]) -> bool;

    /// Whether the element has the entry: it does not grow old meanwhile.
    fn set_leased(&mut self, now_ms: u64, table: TableId, keys: &[Match], leased: bool);

    /// The entry with these very keys.
    fn entry(&self, table: TableId, keys: &[Match]) -> Option<Entry>;

    /// Calls `each` with every entry of the table.
    fn each_entry(&self, table: TableId, each: &mut dyn FnMut(&Entry));

    /// A cell of a mirrored register; 0 beyond its end.
    fn register(&self, register: RegisterId, index: u32) -> u128;

    /// Writes a cell of a mirrored register; beyond its end nothing happens.
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128);

    /// The ranges of a partition that are this server's from now on, first and last each, in order.
    fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]);

    /// Lets entries go that nothing used for their time.
    fn expire(&mut self, now_ms: u64);

    /// Has an entry go as one that nothing used for its time, if nothing used it for `idle_ms`: its flow is wanted elsewhere.
    /// False: it stays.
    fn let_go(&mut self, _now_ms: u64, _table: TableId, _keys: &[Match], _idle_ms: u64) -> bool {
        false
    }

    /// When [`Self::expire`] may find something next, at the earliest.
    fn next_expiry_ms(&self) -> Option<u64>;
}
