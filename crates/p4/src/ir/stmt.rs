//! Statements and parser states.

use super::{CounterId, Expr, HeaderId, RegisterId, SlotId, SourceSpan, TableId};

/// Sequence of statements.
pub type Block = Vec<Stmt>;

/// Statement with its source position; statements of the compiler have the default span.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// Operation.
    pub kind: StmtKind,
    /// Source position.
    pub at: SourceSpan,
}

/// Operation of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// Writes a slot. A write to a field of an invalid header has no effect.
    Assign {
        /// Destination.
        to: SlotId,
        /// New value, of the slot's type.
        value: Expr,
    },
    /// Makes a header valid or invalid. A header that becomes valid has all fields 0.
    SetValid {
        /// Header.
        header: HeaderId,
        /// New validity.
        valid: bool,
    },
    /// Conditional.
    If {
        /// Condition, of type `bool`.
        condition: Expr,
        /// Block if the condition is true.
        then: Block,
        /// Block if the condition is false.
        otherwise: Block,
    },
    /// Looks up a table and runs the entry's action, or the default action on a miss.
    Apply {
        /// Table.
        table: TableId,
        /// Destination for the hit flag (`bool`).
        hit: Option<SlotId>,
        /// Destination for the action's index in the table's list (`bit<32>`).
        action: Option<SlotId>,
    },
    /// Inlined body of a control or action; [`StmtKind::Return`] leaves the innermost body.
    Body(Block),
    /// `return`
    Return,
    /// `exit`: ends the ingress or egress.
    Exit,
    /// Reads a cell of a register array; 0 for an index beyond the end.
    Read {
        /// Register array.
        register: RegisterId,
        /// Cell.
        index: Expr,
        /// Destination.
        to: SlotId,
    },
    /// Writes a cell of a register array; no effect for an index beyond the end.
    Write {
        /// Register array.
        register: RegisterId,
        /// Cell.
        index: Expr,
        /// New value.
        value: Expr,
    },
    /// Atomic read-modify-write `cell = cell op operand` (`op`: `Add`, `Sub`, `Or`, `And`, `Xor`), also on an array
    /// shared by processors. Only the compiler generates it. P4 text has a read, the operation and a write instead.
    Update {
        /// Register array.
        register: RegisterId,
        /// Cell.
        index: Expr,
        /// Operation.
        op: super::Binary,
        /// Operand.
        operand: Expr,
        /// Destination for the new value.
        to: Option<SlotId>,
    },
    /// Adds the packet and its bytes to a counter.
    Count {
        /// Counter array.
        counter: CounterId,
        /// Cell; no effect beyond the end.
        index: Expr,
    },
    /// `to = base + hash(inputs) % max`; with `max` 0, `base` (v1model).
    Hash {
        /// Destination.
        to: SlotId,
        /// Hash algorithm.
        algorithm: HashAlgorithm,
        /// Lowest result.
        base: Expr,
        /// Inputs, concatenated with the most significant bit first and padded with zero bits to whole bytes.
        inputs: Vec<Expr>,
        /// Number of different results.
        max: Expr,
    },
    /// `to = checksum(inputs, then the payload if requested)` if `condition` holds (v1model's `update_checksum`).
    Checksum {
        /// Condition of the update.
        condition: Expr,
        /// Destination.
        to: SlotId,
        /// Hash algorithm.
        algorithm: HashAlgorithm,
        /// Inputs, as for [`StmtKind::Hash`].
        inputs: Vec<Expr>,
        /// True if the unparsed rest of the packet follows the inputs.
        payload: bool,
    },
    /// Checksum comparison (`verify_checksum`): a difference sets `standard_metadata.checksum_error`.
    Verify {
        /// Condition of the check.
        condition: Expr,
        /// Expected checksum.
        expected: Expr,
        /// Hash algorithm.
        algorithm: HashAlgorithm,
        /// Inputs, as for [`StmtKind::Hash`].
        inputs: Vec<Expr>,
        /// True if the unparsed rest of the packet follows the inputs.
        payload: bool,
    },
    /// Extracts a header (parsers only). A packet that is too short ends the parser with `PacketTooShort`.
    Extract {
        /// Header.
        header: HeaderId,
        /// Length of the `varbit` field in bits, if the header has one.
        varbits: Option<Expr>,
    },
    /// Moves the parser's cursor by a number of bits (parsers only).
    Advance(Expr),
    /// `verify` of parsers: a false condition ends the parser with this error. Error numbers index the list of P4_16's
    /// core errors, followed by the program's errors.
    Require {
        /// Condition.
        condition: Expr,
        /// Error number.
        error: u16,
    },
    /// Sends a digest to the controller.
    Digest {
        /// Name of the digest.
        name: String,
        /// Values.
        values: Vec<Expr>,
    },
    /// Clones the packet to the egress of a port: the packet as received, with the current header fields (v1model's
    /// `clone`; a session is a port).
    Clone {
        /// Port.
        session: Expr,
    },
    /// Returns the packet to the parser after the deparser (v1model).
    Recirculate,
    /// Truncates the outgoing packet to a number of bytes (v1model's `truncate`).
    Truncate(Expr),
    /// `steer`: sends the packet to the server that owns this value of partition `name`, instead of the server of its
    /// flow. Before the split only.
    Steer {
        /// Partition.
        partition: String,
        /// Value.
        value: Expr,
    },
    /// Call of the handler. Before the split only, once.
    Remote,
}

/// Hash algorithms, with the bit order of v1model's reference implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// CRC-32 of IEEE 802.3.
    Crc32,
    /// CRC-16/ARC.
    Crc16,
    /// Internet checksum, RFC 1071.
    Csum16,
    /// XOR of 16-bit words.
    Xor16,
    /// Identity: the inputs themselves.
    Identity,
}

/// Parser; execution begins at `states[0]`, `start`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parser {
    /// All states; a [`StateId`] is an index into them.
    pub states: Vec<ParserState>,
}

/// Index of a parser state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId(pub u32);

/// Parser state: statements and a transition.
#[derive(Debug, Clone, PartialEq)]
pub struct ParserState {
    /// Name.
    pub name: String,
    /// Statements.
    pub body: Block,
    /// Transition.
    pub next: Transition,
}

/// Transition of a parser state.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Ends the parser; the pipeline runs.
    Accept,
    /// Ends the parser with an error (numbered as in [`StmtKind::Require`]; `NoMatch` is 2). v1model's pipeline still
    /// runs, with `standard_metadata.parser_error` set.
    Reject(u16),
    /// Next state.
    To(StateId),
    /// Next state of the first case whose values all match; `Reject(NoMatch)` without a match.
    Select {
        /// Keys.
        keys: Vec<Expr>,
        /// Cases: a value for each key, and a transition.
        cases: Vec<(Vec<Keyset>, Transition)>,
    },
}

/// Match value of a `select` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyset {
    /// `default`, `_`.
    Any,
    /// `value &&& mask`; an exact value has a mask of all ones.
    Mask(u128, u128),
    /// `low .. high`, inclusive.
    Range(u128, u128),
}
