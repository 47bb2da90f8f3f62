//! What every execution of a program offers: packets in, packets out, and a controller's view of its memory.
//!
//! ```text
//! packet, port, now ─► Execution::process ─► Output::{Packet, Digest, Dropped}
//!          controller ─► entries, registers, counters, groups
//! ```
//!
//! The interpreter ([`crate::interp`]) is the reference; whatever else runs an [`crate::ir::Program`] is held to it.

use crate::ir::{ActionId, CounterId, Entry, Match, RegisterId, TableId};

/// Longest packet that an execution takes, bytes.
pub const PACKET_MAX: usize = 65_535;
/// How often one packet, with all its copies, may come in once more.
pub const RECIRCULATIONS_MAX: usize = 8;
/// How often a parser may go back to a state before it ends with `ParserTimeout` (P4_16 core).
pub const PARSER_ROUNDS_MAX: u32 = 4096;
/// Clones that one packet may leave.
pub const CLONES_MAX: usize = 8;

/// Runs a program.
pub trait Execution {
    /// Works on a packet that came in at `port`; `now_us`: microseconds since the start.
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>));

    /// Adds an entry.
    ///
    /// # Errors
    /// If it does not fit the table, is there already, or the table is full.
    fn insert(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError>;

    /// Gives an entry another action.
    ///
    /// # Errors
    /// If it does not fit the table or is not there.
    fn modify(&mut self, table: TableId, entry: &Entry) -> Result<(), TableError>;

    /// Removes the entry with these keys.
    ///
    /// # Errors
    /// If it is not there, or belongs to the program.
    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError>;

    /// What runs on a miss.
    ///
    /// # Errors
    /// If the table has no such action or the arguments do not fit it.
    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError>;

    /// Calls `each` with every entry that a packet hit since the last call, and clears its mark.
    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&Entry));

    /// How many entries the table holds.
    fn entries(&self, table: TableId) -> usize;

    /// A cell's value; 0 beyond the end.
    fn register(&self, register: RegisterId, index: u32) -> u128;

    /// Writes a cell; beyond the end nothing happens.
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128);

    /// Packets and bytes that a cell counted; 0 beyond the end.
    fn counter(&self, counter: CounterId, index: u32) -> Count;

    /// The ports, each with its `egress_rid`, that a packet with this multicast group goes to; none removes the group.
    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]);

    /// Returns when no packet is under way any more that met a table as it was before the last change. Where packets
    /// come one by one, none is.
    fn settle(&mut self) {}

    /// Packets that ended for this reason.
    fn dropped(&self, reason: Reason) -> u64;
}

/// What comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<'a> {
    /// A packet leaves.
    Packet {
        /// Here.
        port: u16,
        /// Whole.
        bytes: &'a [u8],
    },
    /// Something to tell the controller.
    Digest {
        /// Of which kind.
        name: &'a str,
        /// What.
        values: &'a [u128],
    },
    /// A packet, or one of its copies, ended.
    Dropped(Reason),
}

/// Why a packet ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// The program said so (`mark_to_drop`).
    #[error("dropped by the program")]
    Program,
    /// It was longer than [`PACKET_MAX`], or became so.
    #[error("longer than {PACKET_MAX} bytes")]
    TooLong,
    /// It came in once more too often ([`RECIRCULATIONS_MAX`]).
    #[error("recirculated more than {RECIRCULATIONS_MAX} times")]
    Recirculated,
    /// It left too many clones ([`CLONES_MAX`]).
    #[error("cloned more than {CLONES_MAX} times")]
    Clones,
    /// Its multicast group has no ports.
    #[error("its multicast group has no ports")]
    NoGroup,
    /// The handler ended it, or trapped.
    #[error("ended by the handler")]
    Handler,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Program, Self::TooLong, Self::Recirculated, Self::Clones, Self::NoGroup, Self::Handler];
}

/// What a cell of a counter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, as they came in.
    pub bytes: u64,
}

/// Why an entry is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table holds what it was made for.
    #[error("table {table} is full: {size} entries")]
    Full {
        /// Its name.
        table: String,
        /// What it holds at most.
        size: u32,
    },
    /// These keys are there already.
    #[error("table {table} has an entry with these keys")]
    Exists {
        /// Its name.
        table: String,
    },
    /// These keys are not there.
    #[error("table {table} has no entry with these keys")]
    Missing {
        /// Its name.
        table: String,
    },
    /// The entry belongs to the program.
    #[error("an entry that the program declares for table {table} stays as it is")]
    Constant {
        /// Its name.
        table: String,
    },
    /// Too few or too many keys or arguments.
    #[error("table {table}: expected {expected} {what}, got {got}")]
    Number {
        /// Its name.
        table: String,
        /// Keys or arguments.
        what: &'static str,
        /// What it takes.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A value has bits beyond its width, or a prefix does not suit its key.
    #[error("table {table}: {what} {value:#x} does not fit {width} bits")]
    Width {
        /// Its name.
        table: String,
        /// Key, prefix or argument.
        what: &'static str,
        /// What came.
        value: u128,
        /// Bits there are.
        width: u16,
    },
    /// Not one of the table's actions.
    #[error("table {table} does not have action {action}")]
    Action {
        /// Its name.
        table: String,
        /// The action's number.
        action: u32,
    },
}
