//! Server of a function: processes requests of the element into responses, and commands of the controller.
//!
//! ```text
//! request ─► repeat filter ─► register values, if newer ─► FunctionHandler ─► response in place, with values
//! controller ─► lease, release, add, ranges ─► LeaseHolder, FunctionHandler ─► leased, recall
//! ```
//!
//! [`FunctionHandler`] is the function's own part: C in a sandbox, or Rust. [`HandlerServer`] is the same for all
//! functions.

mod derived_params;
mod flows;
mod repeat_filter;
mod server;
mod untracked_flows;

use crate::place::LeasableTables;
use pathcall_p4::ir::{Match, RegisterId, TableEntry, TableId};

pub use flows::Groups;
pub use repeat_filter::RequestRepeatFilter;
pub use server::{FrameAnswer, HandlerServer, Stats};

/// Result of a handler for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandlerOutcome {
    /// The response is complete.
    Respond,
    /// The handler dropped the packet, with its own reason number.
    Drop(u32),
    /// The handler failed and was restarted; the packet is lost.
    Trap,
}

/// Change of a mirrored table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableChange {
    /// An entry was inserted or changed.
    Put(TableEntry),
    /// An entry was removed by the handler or expired.
    Removed(Vec<Match>),
}

/// Entry that a handler looked up for a packet, and that may be placed in the element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedEntry {
    /// Table of the entry.
    pub table: TableId,
    /// Keys of the entry.
    pub keys: Vec<Match>,
    /// Key that was looked up.
    pub key: Vec<u128>,
}

/// Instance of a function's handler, with its mirrored tables and registers.
///
/// Tables, registers and actions have the numbers of the program before its split.
pub trait FunctionHandler: LeasableTables {
    /// Processes a packet. `request`: one value per parameter, in order; `packet`: the packet as received; `response`:
    /// zeros, to be filled.
    fn handle(&mut self, now_ms: u64, request: &[u128], packet: &[u8], response: &mut [u128]) -> HandlerOutcome;

    /// Entry that the last packet was about: the first entry that was found or inserted for the packet.
    fn touched(&self) -> Option<TouchedEntry>;

    /// Next change of a table that was not returned yet.
    fn poll_change(&mut self) -> Option<(TableId, TableChange)>;

    /// Adds an operator's entry, which does not expire, or replaces the action of its keys; false if the table is full
    /// or the entry does not fit the table.
    fn put(&mut self, table: TableId, entry: &TableEntry) -> bool;

    /// Removes an entry; false if it does not exist.
    fn remove(&mut self, table: TableId, keys: &[Match]) -> bool;

    /// Begins or ends the lease of an entry, which does not expire while it is leased.
    fn set_leased(&mut self, now_ms: u64, table: TableId, keys: &[Match], leased: bool);

    /// Entry with exactly these keys.
    fn entry(&self, table: TableId, keys: &[Match]) -> Option<TableEntry>;

    /// Calls `each` with every entry of the table.
    fn each_entry(&self, table: TableId, each: &mut dyn FnMut(&TableEntry));

    /// Value of a cell of a mirrored register; 0 beyond the end.
    fn register(&self, register: RegisterId, index: u32) -> u128;

    /// Writes a cell of a mirrored register; beyond the end nothing happens.
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128);

    /// Replaces this server's ranges of a partition, first and last value of each, in order.
    fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]);

    /// Expires entries that were idle for their idle time.
    fn expire(&mut self, now_ms: u64);

    /// Expires an entry early, if it was idle for `idle_ms`, so that its flow can move; false if the entry stays.
    fn expire_if_idle(&mut self, _now_ms: u64, _table: TableId, _keys: &[Match], _idle_ms: u64) -> bool {
        false
    }

    /// Earliest time at which [`Self::expire`] may expire an entry.
    fn next_expiry_ms(&self) -> Option<u64>;
}
