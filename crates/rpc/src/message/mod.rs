//! Messages as they are encoded: typed fields are cut out of a request and put into a reply without
//! decoding the rest.
//!
//! ```text
//! request bytes ─ split ─┬─ typed field ─ typed ─► lanes, pairs or keys, quantised
//!                        └─ everything else ─────► the rest, for the handler
//! rest of a reply + sums or values ─ reply ─► reply bytes
//! ```
//!
//! In the order that bytes meet them: [`frame`] takes a message out of its gRPC frame and puts one
//! in, [`fields`] walks a message field by field, [`split`] finds a field by its path, [`typed`]
//! reads the values of a typed field, [`number`] turns them into integers and back, and [`reply`]
//! writes a typed field; [`keys`] is a message of our own. Nothing here panics, whatever the bytes.

pub mod fields;
pub mod frame;
pub mod keys;
pub mod number;
pub mod reply;
pub mod split;
pub mod typed;

use pathcall_proto::manifest::Shape;

/// How a typed field holds its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collection {
    Array,
    StringMap,
    IntMap,
    Scalar,
}

/// How a typed field encodes one value.
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

/// Bytes that are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message: expected {expected} at byte {at} of {len}")]
pub struct Malformed {
    /// What should have stood there.
    pub expected: &'static str,
    /// Where, in bytes from the start of the (nested) message.
    pub at: usize,
    /// Length of that message in bytes.
    pub len: usize,
}
