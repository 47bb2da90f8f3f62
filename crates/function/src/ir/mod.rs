//! What every execution runs: a program with all names resolved, all types known, all calls inlined.
//!
//! ```text
//! packet ─► parser ─► verify ─► ingress ─► egress ─► compute ─► deparser ─► packet
//! ```
//!
//! Values live in [`Slot`]s, one each: fields of headers, metadata, locals, parameters. A [`Stmt`] reads and writes
//! slots, tables, registers. The shape is v1model's (P4_16, v1model.p4); [`StmtKind::Remote`] is CLIP's call of the
//! handler (§IV-A), and is gone after the split.

mod entry;
mod expr;
mod print;
mod stmt;
mod storage;

pub use entry::{Entry, Match};
pub use expr::{Binary, Expr, ExprKind, Ty, Unary};
pub use stmt::{Block, HashAlgorithm, Parser, State, StateId, Stmt, StmtKind, Transition, Value};
pub use storage::{
    Action, ActionId, Counter, CounterId, Header, HeaderId, Key, MatchKind, Register, RegisterId, Slot, SlotId,
    SlotKind, Standard, Table, TableId,
};

/// The egress port that means: drop (v1model's `mark_to_drop`).
pub const DROP_PORT: u128 = 511;

/// Where something stands in its source: bytes `start..end` of file `file` (numbered in the order of reading).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file's number; 0 is the one that was named.
    pub file: u16,
    /// Its first byte.
    pub start: u32,
    /// The byte behind its last.
    pub end: u32,
}

/// A program: what an element runs, or, with a [`Handler`], the whole function before it is split.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its name: the file's, without its ending.
    pub name: String,
    /// Everything that holds a value; a [`SlotId`] is an index here.
    pub slots: Vec<Slot>,
    /// Instances of headers, in the order of their declaration.
    pub headers: Vec<Header>,
    /// How a packet becomes headers.
    pub parser: Parser,
    /// Before the ingress: checksums are looked at.
    pub verify: Block,
    /// The pipeline; in a function before its split `[pre…, If(flight) {Remote}, post…]`.
    pub ingress: Block,
    /// Once for each copy that leaves.
    pub egress: Block,
    /// After the egress: checksums are written.
    pub compute: Block,
    /// The headers that leave, if they are valid, in this order; what no header took of the packet follows.
    pub deparser: Vec<HeaderId>,
    /// Match-action tables.
    pub tables: Vec<Table>,
    /// Actions of tables.
    pub actions: Vec<Action>,
    /// Register arrays.
    pub registers: Vec<Register>,
    /// Counter arrays.
    pub counters: Vec<Counter>,
    /// Ranges of values that servers share among them.
    pub partitions: Vec<Partition>,
    /// The part in C, until the program is split.
    pub handler: Option<Handler>,
}

/// The part of a function that runs on servers, as it was written, and what goes to it and comes from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    /// Slots of `request { … }`, in order.
    pub request: Vec<SlotId>,
    /// Slots of `response { … }`, in order.
    pub response: Vec<SlotId>,
    /// Those of the request that are marked `@flow`: packets that agree in them go to one server.
    pub flow: Vec<SlotId>,
    /// Whether the packet goes to a handler: written by the part before.
    pub flight: SlotId,
    /// The program's `#define`s that stand at the end of its file, as C has them, a line each: the C may use them.
    pub defines: String,
    /// The C of `state { … }`: stateful variables and what helps the handler; empty if there is none.
    pub state: Source,
    /// The C between the braces of `remote_handler(…) { … }`.
    pub body: Source,
}

/// Values of which each server owns ranges, disjoint from the others' (CLIP §V-B).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// The type of a value.
    pub ty: Ty,
    /// The lowest value.
    pub first: u128,
    /// The highest.
    pub last: u128,
}

/// A piece of source in C, with its place: errors of the C compiler point there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// The text.
    pub text: String,
    /// Where it stands.
    pub at: Span,
}

impl Program {
    /// The slot's width in bits.
    #[must_use]
    pub fn width(&self, slot: SlotId) -> u16 {
        self.slots[slot.0 as usize].ty.width()
    }
}
