//! Bytecode of the interpreter: a linear list of operations on one array of values, with jumps.
//!
//! ```text
//! values: │ slots │ validity of headers │ constants and intermediate results │
//! ```

use crate::ir::{Binary, HashAlgorithm, HeaderId, SlotId, Unary};

/// Index into the array of values.
pub type ValueId = u32;

/// Operation; widths are those of the operands.
#[derive(Debug, Clone, Copy)]
pub enum Instruction {
    Copy {
        to: ValueId,
        from: ValueId,
    },
    /// Copies to a header field if the header is valid.
    CopyIf {
        to: ValueId,
        from: ValueId,
        valid: ValueId,
    },
    Unary {
        op: Unary,
        to: ValueId,
        of: ValueId,
        width: u16,
    },
    Binary {
        op: Binary,
        to: ValueId,
        left: ValueId,
        right: ValueId,
        width: u16,
        signed: bool,
    },
    Slice {
        to: ValueId,
        of: ValueId,
        low: u16,
        width: u16,
    },
    Cast {
        to: ValueId,
        of: ValueId,
        from: u16,
        width: u16,
        signed: bool,
    },
    Mux {
        to: ValueId,
        condition: ValueId,
        then: ValueId,
        otherwise: ValueId,
    },
    Lookahead {
        to: ValueId,
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
        condition: ValueId,
        to: u32,
    },
    Apply {
        table: u32,
        hit: Option<SlotId>,
        action: Option<SlotId>,
    },
    /// Returns to the operation after the `Apply`.
    Back,
    /// Ends the block.
    End,
    Read {
        register: u32,
        index: ValueId,
        to: ValueId,
    },
    Write {
        register: u32,
        index: ValueId,
        value: ValueId,
    },
    Update {
        register: u32,
        index: ValueId,
        op: Binary,
        operand: ValueId,
        to: ValueId,
    },
    Count {
        counter: u32,
        index: ValueId,
    },
    Hash {
        to: ValueId,
        algorithm: HashAlgorithm,
        inputs: Range,
    },
    /// `to = base + hash % max`; `base` and `max` have `width` bits.
    HashRange {
        to: ValueId,
        hash: ValueId,
        base: ValueId,
        max: ValueId,
        width: u16,
    },
    Checksum {
        to: ValueId,
        algorithm: HashAlgorithm,
        inputs: Range,
        payload: bool,
    },
    Extract {
        header: HeaderId,
        varbits: Option<ValueId>,
    },
    Advance {
        bits: ValueId,
    },
    Require {
        condition: ValueId,
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
        session: ValueId,
    },
    Recirculate,
    Truncate {
        bytes: ValueId,
    },
    Remote,
}

/// Range of [`Bytecode::operands`].
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub start: u32,
    pub end: u32,
}

/// Compiled program.
#[derive(Debug)]
pub struct Bytecode {
    pub ops: Vec<Instruction>,
    /// Initial values of a packet, constants included.
    pub values: Vec<u128>,
    /// Number of leading values (slots and validities) that are 0 at the start of a packet.
    pub cleared: usize,
    /// Value that holds the length for `truncate`; 0 for no truncation.
    pub length_max: ValueId,
    /// Inputs of hashes and digests, with their widths.
    pub operands: Vec<(ValueId, u16)>,
    pub names: Vec<String>,
    pub headers: Vec<HeaderSlots>,
    /// Start of each action, by its number.
    pub actions: Vec<u32>,
    /// Parameter slots of each action.
    pub params: Vec<Vec<ValueId>>,
    /// Key values of each table.
    pub keys: Vec<Vec<ValueId>>,
    pub parser: u32,
    pub verify: u32,
    pub ingress: u32,
    pub egress: u32,
    pub compute: u32,
    pub deparser: Vec<HeaderId>,
    /// Largest nesting depth of `Apply`.
    pub depth: usize,
}

/// Fields of a header: value, bit offset, width.
#[derive(Debug)]
pub struct HeaderSlots {
    pub fields: Vec<(ValueId, u32, u16)>,
    pub bits: u32,
    pub varbits_max: u32,
    pub valid: ValueId,
    /// Value that holds the varbit field's position in the packet: start in the high, length in the low 32 bits.
    pub varbits: ValueId,
}
