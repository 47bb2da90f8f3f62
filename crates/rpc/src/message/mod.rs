//! Access to encoded messages: cuts typed fields out of requests and appends them to replies, without decoding the
//! rest.
//!
//! ```text
//! request bytes ─ split ─┬─ typed field ─ typed ─► lanes or pairs, quantised
//!                        └─ everything else ─────► the rest, for the handler
//! rest of a reply + sums or values ─ reply ─► reply bytes
//! ```
//!
//! Modules in the order in which bytes pass them: [`frame`] reads and writes gRPC frames, [`fields`] iterates over the
//! fields of a message and separates one by its path, [`typed`] reads the values of a typed field, [`number`] quantises
//! them, and [`reply`] writes a typed field; [`keys`] encodes a list of keys. No function of this module panics on any
//! input.

pub(crate) mod body;
pub mod fields;
pub mod frame;
pub mod keys;
pub mod number;
pub mod reply;
pub mod typed;

use pathcall_proto::manifest::Shape;

/// Collection type of a typed field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collection {
    Array,
    StringMap,
    IntMap,
    Scalar,
}

/// Encoding of one value of a typed field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    /// `sint64`
    Int,
    Double,
    Float,
}

const fn layout(shape: Shape) -> (Collection, Number) {
    match shape {
        Shape::IntArray => (Collection::Array, Number::Int),
        Shape::FpArray => (Collection::Array, Number::Double),
        Shape::FpArray32 => (Collection::Array, Number::Float),
        Shape::StrInt => (Collection::StringMap, Number::Int),
        Shape::StrFp => (Collection::StringMap, Number::Double),
        Shape::IntInt => (Collection::IntMap, Number::Int),
        Shape::IntFp => (Collection::IntMap, Number::Double),
        Shape::Int => (Collection::Scalar, Number::Int),
        Shape::Fp => (Collection::Scalar, Number::Double),
    }
}

/// Error of bytes that are not a valid protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message: expected {expected} at byte {at} of {len}")]
pub struct Malformed {
    /// Expected item.
    pub expected: &'static str,
    /// Offset from the start of the (nested) message, bytes.
    pub at: usize,
    /// Length of that message, bytes.
    pub len: usize,
}
