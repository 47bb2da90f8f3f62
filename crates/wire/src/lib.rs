//! Frames as they travel: typed views over bytes, big-endian, fixed layout, no I/O, no allocation.
//!
//! ```text
//! UDP │ base 44 B │ token 8 B, if flagged │ map 28 B │ bitmap │ lanes │ payload
//!                                         │ clone 32 B │ payload
//! Ethernet │ function 8 B │ parameters, carried values, options │ a packet
//! ```
//!
//! In the order a frame is met: [`base`] says who sends what to whom under which admission;
//! [`token`] proves it; [`map`] is the header of the five map primitives with its lanes (NetRPC
//! Fig. 14), [`clone`] that of calls which the element steers (NetClone Fig. 3); [`pairs`] is the payload
//! that carries whole keys to the software path. [`time`] is the clock's type that every state machine is
//! handed. [`link`] is what links say to each other beneath the frames. [`delegate`] has the messages of
//! calls that servers pass on, which transports carry whole; [`function`] is what stands before a packet between an
//! element and the servers of a network function (CLIP §IV-B); [`messages`] is what one of these transports
//! says over UDP; [`place`] says how long a server's host had a request (LEO Fig. 7).
//!
//! Each header is described once, by the `header!` macro: the view, the plain struct beside it
//! (its `Repr`) and the layout table that the C and P4 headers are held to come from one list.
//! A view is made by `new_checked`, after which no accessor panics, whatever the bytes.

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
pub mod time;
pub mod token;

pub use base::{Base, BaseRepr, Flags, Kind};
pub use clone::{CloneFlags, CloneFrame, CloneHeader, CloneRepr};
pub use header::FieldSpec;
pub use map::{MapFlags, MapFrame, MapHeader, MapRepr, OpType, Target};
pub use mutant::Mutant;
pub use time::Instant;
pub use token::TokenKey;

/// Sequence numbers in flight per flow, `w_max` (NetRPC §5.1).
pub const W_MAX: u32 = 256;
/// Lanes of a linear row in the default profile.
pub const LINEAR_LANES: usize = 256;
/// Key/value pairs of a keyed frame: one register array per position (NetRPC App. B.1).
pub const KEYED_LANES: usize = 32;
/// Lanes of a keyed application's row: its registers in two banks, one for each of two generations.
pub const KEYED_WIDTH: usize = 2 * KEYED_LANES;
/// Places of a flow slot that one [`Kind::MapRecord`] tells of: numbers, generations, masks.
pub const RECORD_PLACES: usize = 64;
/// Largest frame that every link of the default profile carries: a 1,400-byte MTU less IPv4 and UDP.
pub const MAX_FRAME: usize = 1372;
/// Largest frame without a token: one that still fits when it gets one.
pub const MAX_UNSIGNED: usize = MAX_FRAME - base::TOKEN_LEN;
/// Workers of one SyncAgtr application that an element can tell apart.
pub const MAX_WORKERS: usize = 64;

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the header needs.
    #[error("frame too short: expected at least {expected} bytes, got {got}")]
    Short {
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        got: usize,
    },
    /// The length field and the bytes disagree.
    #[error("frame length: expected {expected} bytes, got {got}")]
    Length {
        /// What the headers add up to.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// The first bytes are not ours.
    #[error("not a Pathcall frame: magic {0:#06x}")]
    Magic(u16),
    /// A version this build does not speak.
    #[error("frame version {0}, expected 1")]
    Version(u8),
    /// A field holds a value without meaning.
    #[error("{field} has no meaning with value {value}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// What it held.
        value: u64,
    },
}
