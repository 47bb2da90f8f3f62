//! Intermediate representation (IR) of programs: names resolved, types known, calls inlined. All executions run it.
//!
//! ```text
//! packet ─► parser ─► verify ─► ingress ─► egress ─► compute ─► deparser ─► packet
//! ```
//!
//! Each value lives in a [`Slot`]: a field of a header, metadata, a local variable or a parameter. A [`Stmt`] reads and
//! writes slots, tables and registers. The structure is v1model's (P4_16, v1model.p4). [`StmtKind::Remote`] is CLIP's
//! call of the handler (§IV-A); the split removes it.

mod entry;
mod expr;
mod print;
mod stmt;
mod storage;

pub use entry::{Match, TableEntry};
pub use expr::{Binary, Expr, ExprKind, Ty, Unary};
pub use stmt::{Block, HashAlgorithm, Keyset, Parser, ParserState, StateId, Stmt, StmtKind, Transition};
pub use storage::{
    Action, ActionId, Counter, CounterId, Header, HeaderId, MatchKind, Register, RegisterId, Slot, SlotId, SlotKind,
    StandardField, Table, TableId, TableKey,
};

/// Egress port that drops the packet (v1model's `mark_to_drop`).
pub const DROP_PORT: u128 = 511;

/// Source range: bytes `start..end` of file `file`, numbered in the order of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct SourceSpan {
    /// File number; 0 is the main file.
    pub file: u16,
    /// First byte.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
}

/// Program of an element or, with a [`HandlerDecl`], a whole function before the split.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Name: the file name without its extension.
    pub name: String,
    /// All slots; a [`SlotId`] is an index into them.
    pub slots: Vec<Slot>,
    /// Header instances in the order of their declaration.
    pub headers: Vec<Header>,
    /// Parser: packet to headers.
    pub parser: Parser,
    /// Checksum verification, before the ingress.
    pub verify: Block,
    /// Ingress pipeline; before the split it has the form `[pre…, If(flight) {Remote}, post…]`.
    pub ingress: Block,
    /// Egress pipeline, run once for each copy of the packet.
    pub egress: Block,
    /// Checksum computation, after the egress.
    pub compute: Block,
    /// Headers in the order of emission; valid ones are emitted, followed by the unparsed rest of the packet.
    pub deparser: Vec<HeaderId>,
    /// Match-action tables.
    pub tables: Vec<Table>,
    /// Actions of tables.
    pub actions: Vec<Action>,
    /// Register arrays.
    pub registers: Vec<Register>,
    /// Counter arrays.
    pub counters: Vec<Counter>,
    /// Ranges of values that are divided among the servers.
    pub partitions: Vec<Partition>,
    /// Handler in C; `None` after the split.
    pub handler: Option<HandlerDecl>,
}

/// Handler of a function: C source, request and response.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerDecl {
    /// Slots of `request { … }`, in order.
    pub request: Vec<SlotId>,
    /// Slots of `response { … }`, in order.
    pub response: Vec<SlotId>,
    /// Request slots annotated with `@flow`: packets with equal values go to one server.
    pub flow: Vec<SlotId>,
    /// Slot that says whether the packet goes to a handler; written by the part before the call.
    pub flight: SlotId,
    /// Macros defined at the end of the program, as C `#define`s, one per line, for the handler's source.
    pub defines: String,
    /// C source of `state { … }`: state variables and helper functions; empty if absent.
    pub state: CSource,
    /// C source of the body of `remote_handler(…) { … }`.
    pub body: CSource,
}

/// Range of values of which each server owns disjoint parts (CLIP §V-B).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Name.
    pub name: String,
    /// Type of a value.
    pub ty: Ty,
    /// Lowest value.
    pub first: u128,
    /// Highest value.
    pub last: u128,
}

/// C source with its position, to which errors of the C compiler are mapped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CSource {
    /// Text.
    pub text: String,
    /// Position.
    pub at: SourceSpan,
}

impl Program {
    /// Width of a slot in bits.
    #[must_use]
    pub fn width(&self, slot: SlotId) -> u16 {
        self.slots[slot.0 as usize].ty.width()
    }
}
