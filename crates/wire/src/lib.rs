//! Wire format of Pathcall: typed views of frames over bytes, big-endian, fixed layout, no I/O, no allocation.
//!
//! ```text
//! UDP │ base 44 B │ token 8 B, if flagged │ map 28 B │ bitmap │ lanes │ payload
//!                                         │ clone 32 B │ payload
//! Ethernet │ function 8 B │ parameters, carried values, options │ a packet
//! ```
//!
//! Modules, in the order in which a receiver reads a frame:
//! * [`base`]: base header with source, destination, application, epoch and sequence number.
//! * [`token`]: authentication token of a frame.
//! * [`map`]: header and lanes of the five map primitives (NetRPC Fig. 14).
//! * [`clone`]: header of calls that the element steers and clones (NetClone Fig. 3).
//! * [`pairs`]: payload with whole keys for the software path.
//!
//! Other formats: [`delegate`] has the messages of delegated calls, [`messages`] the frames of the UDP transport that
//! carries them, [`link`] the negotiation of shared memory, [`function`] the header before a packet between an element
//! and the servers of a network function (CLIP §IV-B), [`place`] the time that a request spent in the server's host
//! (LEO Fig. 7). [`policy`] has the options of methods that all parties share. [`time`] is the clock type of all state
//! machines, and [`random`] their seeded generator.
//!
//! The `header!` macro describes each header once. It makes three things from one list of fields: the view, the plain
//! struct (`Repr`) and the layout table. The C and P4 headers are generated from the layout table.
//! `new_checked` makes a view; after that no accessor panics, for any bytes.

#![no_std]
#![warn(missing_docs)]

mod header;

pub mod base;
pub mod clone;
pub mod delegate;
pub mod function;
pub mod link;
pub mod map;
pub mod messages;
pub mod mutant;
pub mod pairs;
pub mod place;
pub mod policy;
pub mod random;
pub mod time;
pub mod token;

pub use base::{Base, BaseRepr, Flags, FrameKind};
pub use clone::{CloneFlags, CloneFrame, CloneHeader, CloneRepr};
pub use header::FieldSpec;
pub use map::{ForwardTarget, MapFlags, MapFrame, MapHeader, MapRepr, OpType};
pub use mutant::Mutant;
pub use random::SplitMix64;
pub use time::Instant;
pub use token::TokenKey;

/// Sequence numbers in flight per flow, `w_max` (NetRPC §5.1).
pub const W_MAX: u32 = 256;
/// Lanes of a linear row in the default profile.
pub const LINEAR_LANES: usize = 256;
/// Key/value pairs of a keyed frame: one register array per position (NetRPC App. B.1).
pub const KEYED_LANES: usize = 32;
/// Lanes of a row of a keyed application: two banks of registers, one for each open generation.
pub const KEYED_WIDTH: usize = 2 * KEYED_LANES;
/// Window positions of a flow slot in one [`FrameKind::MapRecord`]: sequence numbers, generations, masks.
pub const RECORD_PLACES: usize = 64;
/// Largest frame that every link of the default profile carries: a 1,400-byte MTU less IPv4 and UDP.
pub const MAX_FRAME: usize = 1372;
/// Largest frame without a token. It still fits after a token is inserted.
pub const MAX_UNSIGNED: usize = MAX_FRAME - base::TOKEN_LEN;
/// Maximum number of workers of one SyncAgtr application.
pub const MAX_WORKERS: usize = 64;

/// Error of the frame parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the header needs.
    #[error("frame too short: expected at least {expected} bytes, got {got}")]
    Short {
        /// Required bytes.
        expected: usize,
        /// Received bytes.
        got: usize,
    },
    /// The length field differs from the number of bytes.
    #[error("frame length: expected {expected} bytes, got {got}")]
    Length {
        /// Length that the headers give.
        expected: usize,
        /// Received bytes.
        got: usize,
    },
    /// The first bytes are not the magic number of Pathcall.
    #[error("not a Pathcall frame: magic {0:#06x}")]
    Magic(u16),
    /// Version that this build does not support.
    #[error("frame version {0}, expected 1")]
    Version(u8),
    /// Value of a field is invalid.
    #[error("invalid {field}: {value}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}
