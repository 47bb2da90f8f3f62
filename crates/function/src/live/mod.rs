//! A function whose parts are apart: what its controller, beside the element, and its servers tell each other, and
//! what each does with it. No clock and no I/O: `crates/live` carries words and packets.
//!
//! ```text
//!                        ┌── Task ──► Member: Server, its ranges, what it bears ── requests, responses ──┐
//! digests, windows ─► Controller                   │                                                     │
//!        ▲               ▲ └── batches ─► element ◄┼─────────────────────────────────────────────────────┘
//!        └── element     └────────── Word ◄────────┘
//! ```
//!
//! Words between one server and the controller arrive in order, or the server is another one from then on: whoever lost
//! the other begins anew.

mod controller;
mod member;

use std::time::Duration;

use crate::ir::{Entry, TableId};
use crate::place::{EntryNumber, Given};
use crate::scale::{Block, Version};

pub use controller::{Config, Controller, Output};
pub use member::Member;

/// What a server is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// It shall lease the entry that matches this key ([`crate::place::Output::Lease`]).
    Lease {
        /// The table.
        table: TableId,
        /// The key.
        key: Vec<u128>,
        /// The entry's number from now on.
        number: EntryNumber,
    },
    /// Values that an entry had in the element ([`crate::place::Output::Give`]).
    Give(Given),
    /// The entry of this number is its own again.
    Release(EntryNumber),
    /// The newest group's version, and the server's buckets in it.
    Group {
        /// Which.
        version: Version,
        /// Ascending.
        buckets: Vec<u16>,
        /// The version before, while flows need it, and the server's buckets in that.
        old: Option<(Version, Vec<u16>)>,
    },
    /// Somebody waits for flows of the group before; what nothing used for so long may go.
    Drain(Option<Duration>),
    /// The values of a partition that are the server's from now on.
    Ranges {
        /// Which partition.
        partition: usize,
        /// First and last of each, ascending.
        ranges: Vec<(u128, u128)>,
    },
    /// It shall say when it uses no value of a block any more: the block is in none of its ranges.
    Return {
        /// Which partition.
        partition: usize,
        /// Which block.
        block: Block,
        /// First and last value.
        values: (u128, u128),
    },
}

/// What a server says.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// The answer to [`Task::Lease`].
    Leased {
        /// The number.
        number: EntryNumber,
        /// The entry, as the element may have it; none if there is none.
        entry: Option<Entry>,
    },
    /// The entry of this number is to leave the element.
    Recall(EntryNumber),
    /// It has heard of the values of [`Task::Give`].
    Taken(EntryNumber),
    /// What it bears, again and again.
    Load {
        /// Requests a second.
        requests: f64,
        /// Flows that it has state for.
        flows: u64,
        /// Of them, those of the group before.
        old_flows: u64,
        /// The newest version that it knows.
        version: Version,
    },
    /// The answer to [`Task::Return`].
    Returned {
        /// Which partition.
        partition: usize,
        /// Which block.
        block: Block,
    },
}
