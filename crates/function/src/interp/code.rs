//! The form that the interpreter runs: operations on one array of values, one after another, with jumps.
//!
//! ```text
//! values: │ slots │ validity of headers │ constants and intermediate results │
//! ```

use crate::ir::{Binary, HashAlgorithm, HeaderId, SlotId, Unary};

/// An index in the array of values.
pub type V = u32;

/// One operation. Widths are those of the operands.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    Copy {
        to: V,
        from: V,
    },
    /// To a field of a header, if that is valid.
    CopyIf {
        to: V,
        from: V,
        valid: V,
    },
    Unary {
        op: Unary,
        to: V,
        of: V,
        width: u16,
    },
    Binary {
        op: Binary,
        to: V,
        left: V,
        right: V,
        width: u16,
        signed: bool,
    },
    Slice {
        to: V,
        of: V,
        low: u16,
        width: u16,
    },
    Cast {
        to: V,
        of: V,
        from: u16,
        width: u16,
        signed: bool,
    },
    Mux {
        to: V,
        condition: V,
        then: V,
        otherwise: V,
    },
    Lookahead {
        to: V,
        skip: u32,
        width: u16,
    },
    SetValid {
        header: HeaderId,
        valid: bool,
    },
    Jump {
        to: u32,
    },
    JumpUnless {
        condition: V,
        to: u32,
    },
    Apply {
        table: u32,
        hit: Option<SlotId>,
        action: Option<SlotId>,
    },
    /// Back behind the `Apply`.
    Back,
    /// The end of a block.
    End,
    Read {
        register: u32,
        index: V,
        to: V,
    },
    Write {
        register: u32,
        index: V,
        value: V,
    },
    Update {
        register: u32,
        index: V,
        op: Binary,
        operand: V,
        to: V,
    },
    Count {
        counter: u32,
        index: V,
    },
    Hash {
        to: V,
        algorithm: HashAlgorithm,
        inputs: Range,
    },
    /// `to = base + hash % max`, both of `width` bits.
    HashRange {
        to: V,
        hash: V,
        base: V,
        max: V,
        width: u16,
    },
    Checksum {
        to: V,
        algorithm: HashAlgorithm,
        inputs: Range,
        payload: bool,
    },
    Extract {
        header: HeaderId,
        varbits: Option<V>,
    },
    Advance {
        bits: V,
    },
    Require {
        condition: V,
        error: u16,
    },
    Reject {
        error: u16,
    },
    Digest {
        name: u32,
        values: Range,
    },
    Clone {
        session: V,
    },
    Recirculate,
    Truncate {
        bytes: V,
    },
    Remote,
}

/// A part of [`Code::operands`].
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub start: u32,
    pub end: u32,
}

/// A compiled program.
#[derive(Debug)]
pub struct Code {
    pub ops: Vec<Op>,
    /// Values at the start of a packet, constants among them.
    pub values: Vec<u128>,
    /// Slots and validities: what each packet starts with as 0.
    pub cleared: usize,
    /// What leaves is cut to so many bytes; 0: it is not.
    pub length_max: V,
    /// Inputs of hashes and digests: values and their widths.
    pub operands: Vec<(V, u16)>,
    pub names: Vec<String>,
    pub headers: Vec<Layout>,
    /// Where each action starts, by its number.
    pub actions: Vec<u32>,
    /// Slots of each action's parameters.
    pub params: Vec<Vec<V>>,
    /// Keys of each table.
    pub keys: Vec<Vec<V>>,
    pub parser: u32,
    pub verify: u32,
    pub ingress: u32,
    pub egress: u32,
    pub compute: u32,
    pub deparser: Vec<HeaderId>,
    /// How deep `Apply` may nest.
    pub depth: usize,
}

/// A header's fields: first slot's value, bit offset, width.
#[derive(Debug)]
pub struct Layout {
    pub fields: Vec<(V, u32, u16)>,
    pub bits: u32,
    pub varbits_max: u32,
    pub valid: V,
    /// Where the bytes of its varbit field lie in the packet: start in the higher, length in the lower 32 bits.
    pub varbits: V,
}
