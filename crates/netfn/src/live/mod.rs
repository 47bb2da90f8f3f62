//! Control protocol of a function whose element and servers run on different hosts, as state machines: commands of the
//! controller, messages of the servers, and their handling. The driver is `crates/live`.
//!
//! ```text
//!                        ┌── ServerCommand ──► GroupServer: HandlerServer ── requests, responses ──┐
//! digests, windows ─► Controller                   │                                         │
//!        ▲               ▲ └── batches ─► element ◄┼─────────────────────────────────────────┘
//!        └── element     └── ServerMessage ◄───────┘
//! ```
//!
//! Messages between one server and the controller arrive in order. If either side loses the connection, the server
//! starts again with a new incarnation.

mod controller;
mod group_server;

use std::time::Duration;

use crate::place::{EntryNumber, EntryValues};
use crate::scale::{ValueBlock, Version};
use pathcall_p4::ir::{TableEntry, TableId};

pub use controller::{Config, Controller, Output};
pub use group_server::GroupServer;

/// Command of the controller to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerCommand {
    /// Lease the entry that matches this key ([`crate::place::Output::Lease`]).
    Lease {
        /// Table of the entry.
        table: TableId,
        /// Key to be looked up.
        key: Vec<u128>,
        /// Number of the entry from now on.
        number: EntryNumber,
    },
    /// Store the register values of an entry that left the element ([`crate::place::Output::Give`]).
    Store(EntryValues),
    /// The entry with this number is no longer leased.
    Release(EntryNumber),
    /// Newest version of the group, and the server's buckets in it.
    Group {
        /// Newest version.
        version: Version,
        /// Buckets of the server, ascending.
        buckets: Vec<u16>,
        /// Previous version, while flows need it, and the server's buckets in it.
        old: Option<(Version, Vec<u16>)>,
    },
    /// Drain flows of the previous group; entries idle for the given time may expire.
    Drain(Option<Duration>),
    /// Replace the server's ranges of a partition.
    Ranges {
        /// Index of the partition.
        partition: usize,
        /// First and last value of each range, ascending.
        ranges: Vec<(u128, u128)>,
    },
    /// Report when no value of a block is in use any more; the block is in none of the server's ranges.
    ReturnBlock {
        /// Index of the partition.
        partition: usize,
        /// Block to be returned.
        block: ValueBlock,
        /// First and last value of the block.
        values: (u128, u128),
    },
}

/// Message of a server to the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerMessage {
    /// Answer to [`ServerCommand::Lease`].
    Leased {
        /// Number of the entry.
        number: EntryNumber,
        /// Entry in the form that the element may have; `None` if the server has no such entry.
        entry: Option<TableEntry>,
    },
    /// Recall of the entry with this number from the element.
    Recall(EntryNumber),
    /// Acknowledgement of [`ServerCommand::Store`].
    Stored(EntryNumber),
    /// Load report, sent periodically.
    Load {
        /// Requests per second.
        requests: f64,
        /// Flows that have state at the server.
        flows: u64,
        /// Flows among them that belong to the previous group.
        old_flows: u64,
        /// Newest version that the server knows.
        version: Version,
    },
    /// Answer to [`ServerCommand::ReturnBlock`].
    ReturnedBlock {
        /// Index of the partition.
        partition: usize,
        /// Returned block.
        block: ValueBlock,
    },
}
