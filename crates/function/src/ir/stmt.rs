//! Statements and parsers.

use super::{CounterId, Expr, HeaderId, RegisterId, SlotId, Span, TableId};

/// Statements in order.
pub type Block = Vec<Stmt>;

/// A statement and where it was written; what the compiler adds has the default span.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it stands.
    pub at: Span,
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// Writes a slot. To a field of a header that is not valid: nothing happens.
    Assign {
        /// The slot.
        to: SlotId,
        /// Its new value, of the slot's type.
        value: Expr,
    },
    /// Makes a header valid (all fields 0 if it was not) or not.
    SetValid {
        /// The header.
        header: HeaderId,
        /// Which of both.
        valid: bool,
    },
    /// One of two blocks.
    If {
        /// Of type `bool`.
        condition: Expr,
        /// If it holds.
        then: Block,
        /// If not.
        otherwise: Block,
    },
    /// Looks up a table and runs the action found, or the default one.
    Apply {
        /// The table.
        table: TableId,
        /// Becomes whether an entry matched (`bool`).
        hit: Option<SlotId>,
        /// Becomes the index, in the table's list, of the action that ran (`bit<32>`).
        action: Option<SlotId>,
    },
    /// The body of a control or an action that was inlined: [`StmtKind::Return`] leaves the innermost.
    Body(Block),
    /// `return`
    Return,
    /// `exit`: ends ingress or egress.
    Exit,
    /// Reads a cell of a register array; a read beyond its end gives 0.
    Read {
        /// The array.
        register: RegisterId,
        /// The cell.
        index: Expr,
        /// Takes its value.
        to: SlotId,
    },
    /// Writes a cell of a register array; beyond its end nothing happens.
    Write {
        /// The array.
        register: RegisterId,
        /// The cell.
        index: Expr,
        /// Its new value.
        value: Expr,
    },
    /// `cell = cell op operand` in one step (`op`: `Add`, `Sub`, `Or`, `And`, `Xor`), also where processors share the
    /// array. Written by the compiler; in P4 text a read, the operation and a write.
    Update {
        /// The array.
        register: RegisterId,
        /// The cell.
        index: Expr,
        /// What is done.
        op: super::Binary,
        /// With what.
        operand: Expr,
        /// Takes the value *after* it.
        to: Option<SlotId>,
    },
    /// Counts this packet, and its bytes.
    Count {
        /// The array.
        counter: CounterId,
        /// The cell; beyond the end nothing happens.
        index: Expr,
    },
    /// `to = base + hash(inputs) % max`; with `max` 0, `base` (v1model).
    Hash {
        /// Takes the result.
        to: SlotId,
        /// How.
        algorithm: HashAlgorithm,
        /// The lowest result.
        base: Expr,
        /// Laid out one after another, most significant bit first, and filled with zero bits to whole bytes.
        inputs: Vec<Expr>,
        /// How many results there are.
        max: Expr,
    },
    /// `to = checksum(inputs, and the payload if said)` if `condition` holds (v1model's `update_checksum`).
    Checksum {
        /// Only then.
        condition: Expr,
        /// Takes the result.
        to: SlotId,
        /// As for [`StmtKind::Hash`].
        algorithm: HashAlgorithm,
        /// As for [`StmtKind::Hash`].
        inputs: Vec<Expr>,
        /// Whether what no header took of the packet follows the inputs.
        payload: bool,
    },
    /// Compares instead (`verify_checksum`): `standard_metadata.checksum_error` becomes 1 on a difference.
    Verify {
        /// Only then.
        condition: Expr,
        /// The field that should hold it.
        expected: Expr,
        /// As for [`StmtKind::Hash`].
        algorithm: HashAlgorithm,
        /// As for [`StmtKind::Hash`].
        inputs: Vec<Expr>,
        /// Whether the payload follows.
        payload: bool,
    },
    /// Takes a header from the packet (parsers only). Too short a packet ends the parser with `PacketTooShort`.
    Extract {
        /// The header.
        header: HeaderId,
        /// The length of its `varbit` field in bits, if it has one.
        varbits: Option<Expr>,
    },
    /// Moves the parser's cursor by so many bits (parsers only).
    Advance(Expr),
    /// Parsers only: if it does not hold, parsing ends with this error (index in the list of errors of P4_16 core,
    /// then the program's).
    Require {
        /// Has to hold.
        condition: Expr,
        /// If not.
        error: u16,
    },
    /// Tells the controller.
    Digest {
        /// Of which kind.
        name: String,
        /// What.
        values: Vec<Expr>,
    },
    /// A copy of the packet as it came in, with the fields of headers as they are now, goes to this port's egress too
    /// (v1model's `clone`, with sessions that are ports).
    Clone {
        /// The port.
        session: Expr,
    },
    /// After the deparser the packet comes in once more (v1model).
    Recirculate,
    /// What leaves is cut to so many bytes, if it is longer (v1model's `truncate`).
    Truncate(Expr),
    /// The packet's server is the one that owns this value of partition `name` (`steer`); without it, its flow decides.
    /// Before the split only.
    Steer {
        /// Which partition.
        partition: String,
        /// The value.
        value: Expr,
    },
    /// Calls the handler: request to response. Before the split only, and once.
    Remote,
}

/// How bytes become a number. Bits and order as in v1model's reference implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// IEEE 802.3.
    Crc32,
    /// CRC-16/ARC.
    Crc16,
    /// The Internet's checksum, RFC 1071.
    Csum16,
    /// 16-bit words xored.
    Xor16,
    /// The inputs themselves.
    Identity,
}

/// A parser: states from `states[0]`, `start`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parser {
    /// All states; a [`StateId`] is an index here.
    pub states: Vec<State>,
}

/// Which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId(pub u32);

/// A state: statements, then where to.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Its name.
    pub name: String,
    /// What it does.
    pub body: Block,
    /// Where to.
    pub next: Transition,
}

/// Where a parser goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Done: on to the pipeline.
    Accept,
    /// Done with an error (index as in [`StmtKind::Require`]; `NoMatch` is 2): v1model's pipeline runs all the same, with
    /// `standard_metadata.parser_error` set.
    Reject(u16),
    /// To a state.
    To(StateId),
    /// To the state of the first case whose values all match; none: `Reject(NoMatch)`.
    Select {
        /// What is looked at.
        keys: Vec<Expr>,
        /// Values for each key, and where to.
        cases: Vec<(Vec<Value>, Transition)>,
    },
}

/// What a key of a `select` may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// `default`, `_`.
    Any,
    /// `value &&& mask`; one value has all bits in its mask.
    Mask(u128, u128),
    /// `low .. high`, both included.
    Range(u128, u128),
}
