//! What holds something: slots and headers for a packet's time; tables, registers and counters for longer.

use super::{Block, Expr, Span, Ty};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )+};
}

ids! {
    /// Which slot.
    SlotId,
    /// Which instance of a header.
    HeaderId,
    /// Which table.
    TableId,
    /// Which action.
    ActionId,
    /// Which register array.
    RegisterId,
    /// Which counter array.
    CounterId,
}

/// Holds one value while a packet is worked on; 0 at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// As it was written, with its path: `hdr.ipv4.ttl`, `meta.index`, `pre.found`. Unique.
    pub name: String,
    /// The type of what it holds.
    pub ty: Ty,
    /// What it belongs to.
    pub kind: SlotKind,
}

/// What a slot belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// A field of a header, at this bit of it.
    Field {
        /// The instance.
        header: HeaderId,
        /// Bits before it.
        offset_bits: u32,
    },
    /// A field of the user's metadata.
    Metadata,
    /// A variable of a control or parser, or a parameter of an action.
    Local,
    /// A field of v1model's `standard_metadata_t`.
    Standard(Standard),
    /// A parameter of the request.
    Request,
    /// A parameter of the response.
    Response,
}

/// The fields of `standard_metadata_t` that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standard {
    /// `bit<9>`: where it came in.
    IngressPort,
    /// `bit<9>`: where it shall leave; [`super::DROP_PORT`] drops it.
    EgressSpec,
    /// `bit<9>`: where it leaves (egress).
    EgressPort,
    /// `bit<32>`: bytes of the packet as it came in.
    PacketLength,
    /// `bit<48>`: microseconds since the element started.
    IngressTimestamp,
    /// `bit<16>`: the multicast group, 0 for none.
    McastGroup,
    /// `bit<16>`: which copy of a multicast (egress).
    EgressRid,
    /// `bit<32>`: why this packet is in the egress or came in: 0 itself, 1 a clone, 4 recirculated, 5 a copy.
    InstanceType,
    /// `bit<1>`: a checksum was wrong.
    ChecksumError,
    /// `error`, as `bit<16>`: how the parser ended; 0 well.
    ParserError,
}

/// An instance of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its path: `hdr.ipv4`, `hdr.vlan[1]`.
    pub name: String,
    /// The name of its type.
    pub type_name: String,
    /// Slots of its fields of fixed width, in wire order, without holes; together whole bytes.
    pub fields: Vec<super::SlotId>,
    /// A `varbit<N>` field behind them: N. It is carried, not read.
    pub varbit_bits_max: Option<u32>,
}

/// A match-action table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its path: `pre.nat_out`.
    pub name: String,
    /// What is matched.
    pub keys: Vec<Key>,
    /// Actions that entries may name.
    pub actions: Vec<ActionId>,
    /// What runs on a miss, with its arguments.
    pub default: (ActionId, Vec<u128>),
    /// Entries that belong to the program.
    pub entries: Vec<super::Entry>,
    /// How many entries it is made for.
    pub size: u32,
    /// `@mirrored`: servers hold all of it, an element a part (CLIP §IV-C).
    pub mirrored: bool,
    /// `idle_timeout`: entries that nothing matched for so long go, milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// Where it is declared.
    pub at: Span,
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// What is matched.
    pub expr: Expr,
    /// How.
    pub kind: MatchKind,
    /// As it was written, or its `@name`.
    pub name: String,
}

/// How a key is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// All bits.
    Exact,
    /// The longest prefix; one key of a table at most.
    Lpm,
}

/// An action of tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Its path: `pre.rewrite`.
    pub name: String,
    /// Slots that an entry's arguments are put in.
    pub params: Vec<super::SlotId>,
    /// What it does.
    pub body: Block,
}

/// An array of registers: lives as long as the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Its path.
    pub name: String,
    /// Of each cell.
    pub ty: Ty,
    /// Cells.
    pub size: u32,
    /// `@mirrored`: cells go with the entries of a mirrored table that name them; servers hold the others.
    pub mirrored: bool,
}

/// An array of counters: packets and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its path.
    pub name: String,
    /// Cells.
    pub size: u32,
}
