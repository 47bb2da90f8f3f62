//! Execution interface of an element's program: packets in, packets and digests out, access to the program's memory.
//!
//! ```text
//! packet, port, now ─► Execution::process ─► Output::{Packet, Digest, Dropped}
//!          controller ─► entries, registers, counters, groups
//! ```
//!
//! The interpreter ([`crate::interp`]) is the reference implementation; every other execution of an
//! [`crate::ir::Program`] is compared with it.

use crate::ir::{ActionId, CounterId, Match, RegisterId, TableEntry, TableId};

/// Longest packet that an execution accepts, bytes.
pub const PACKET_MAX: usize = 65_535;
/// Most recirculations of one packet, its copies included.
pub const RECIRCULATIONS_MAX: usize = 8;
/// Most entries of a parser into one state before the parser ends with `ParserTimeout` (P4_16 core).
pub const PARSER_ROUNDS_MAX: u32 = 4096;
/// Most clones of one packet.
pub const CLONES_MAX: usize = 8;

/// Execution of a program.
pub trait Execution {
    /// Processes a packet that arrived at `port`; `now_us`: microseconds since the start.
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>));

    /// Adds an entry.
    ///
    /// # Errors
    /// If the entry does not fit the table or exists already, or if the table is full.
    fn insert(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError>;

    /// Replaces the action of an entry.
    ///
    /// # Errors
    /// If the entry does not fit the table or does not exist.
    fn modify(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError>;

    /// Removes the entry with these keys.
    ///
    /// # Errors
    /// If the entry does not exist, or is declared by the program.
    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError>;

    /// Sets the default action of a table, which runs on a miss.
    ///
    /// # Errors
    /// If the table has no such action or the arguments do not fit it.
    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError>;

    /// Calls `each` with every entry that a packet hit since the last call, and clears the hit mark of the entry.
    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&TableEntry));

    /// Number of entries of the table.
    fn entries(&self, table: TableId) -> usize;

    /// Value of a register cell; 0 beyond the end.
    fn register(&self, register: RegisterId, index: u32) -> u128;

    /// Writes a register cell; beyond the end nothing happens.
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128);

    /// Packets and bytes that a counter cell counted; 0 beyond the end.
    fn counter(&self, counter: CounterId, index: u32) -> CounterValue;

    /// Sets the ports of a multicast group, each with its `egress_rid`; an empty list removes the group.
    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]);

    /// Waits until no packet is in flight that was matched against a table as it was before the last change. An
    /// execution that processes one packet at a time returns at once.
    fn wait_in_flight(&mut self) {}

    /// Number of packets dropped for this reason.
    fn dropped(&self, reason: DropReason) -> u64;
}

/// Output of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<'a> {
    /// Packet that leaves the element.
    Packet {
        /// Output port.
        port: u16,
        /// Whole packet.
        bytes: &'a [u8],
    },
    /// Digest for the controller.
    Digest {
        /// Name of the digest.
        name: &'a str,
        /// Values of the digest's fields.
        values: &'a [u128],
    },
    /// A packet, or one of its copies, was dropped.
    Dropped(DropReason),
}

/// Reason of a dropped packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum DropReason {
    /// The program dropped the packet (`mark_to_drop`).
    #[error("dropped by the program")]
    Program,
    /// The packet was, or became, longer than [`PACKET_MAX`].
    #[error("longer than {PACKET_MAX} bytes")]
    TooLong,
    /// The packet was recirculated more than [`RECIRCULATIONS_MAX`] times.
    #[error("recirculated more than {RECIRCULATIONS_MAX} times")]
    Recirculated,
    /// The packet was cloned more than [`CLONES_MAX`] times.
    #[error("cloned more than {CLONES_MAX} times")]
    Clones,
    /// The multicast group of the packet has no ports.
    #[error("its multicast group has no ports")]
    NoGroup,
    /// The handler dropped the packet, or trapped.
    #[error("ended by the handler")]
    Handler,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Program, Self::TooLong, Self::Recirculated, Self::Clones, Self::NoGroup, Self::Handler];
}

/// Value of a counter cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets as received.
    pub bytes: u64,
}

/// Error of a change to a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The table has no free entry.
    #[error("table {table} is full: {size} entries")]
    Full {
        /// Name of the table.
        table: String,
        /// Most entries of the table.
        size: u32,
    },
    /// An entry with the same keys exists.
    #[error("table {table} has an entry with these keys")]
    Exists {
        /// Name of the table.
        table: String,
    },
    /// No entry has these keys.
    #[error("table {table} has no entry with these keys")]
    Missing {
        /// Name of the table.
        table: String,
    },
    /// The entry is declared by the program and cannot be changed.
    #[error("entries that the program declares for table {table} cannot be changed")]
    Constant {
        /// Name of the table.
        table: String,
    },
    /// Wrong number of keys or arguments.
    #[error("table {table}: expected {expected} {what}, got {got}")]
    Number {
        /// Name of the table.
        table: String,
        /// "keys" or "arguments".
        what: &'static str,
        /// Expected number.
        expected: usize,
        /// Received number.
        got: usize,
    },
    /// A value has bits beyond its width, or the prefix length is invalid for the key.
    #[error("table {table}: {what} {value:#x} does not fit {width} bits")]
    Width {
        /// Name of the table.
        table: String,
        /// "key", "prefix" or "argument".
        what: &'static str,
        /// Received value.
        value: u128,
        /// Width, bits.
        width: u16,
    },
    /// The action is not one of the table's actions.
    #[error("table {table} does not have action {action}")]
    Action {
        /// Name of the table.
        table: String,
        /// Number of the action.
        action: u32,
    },
}
