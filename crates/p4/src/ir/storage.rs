//! Storage: slots and headers for a packet; tables, registers and counters across packets.

use super::{Block, Expr, SourceSpan, Ty};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )+};
}

ids! {
    /// Index of a slot.
    SlotId,
    /// Index of a header instance.
    HeaderId,
    /// Index of a table.
    TableId,
    /// Index of an action.
    ActionId,
    /// Index of a register array.
    RegisterId,
    /// Index of a counter array.
    CounterId,
}

/// Storage of one value for the duration of a packet; initially 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Unique name with its path, such as `hdr.ipv4.ttl`, `meta.index` or `pre.found`.
    pub name: String,
    /// Type of the value.
    pub ty: Ty,
    /// Origin of the slot.
    pub kind: SlotKind,
}

/// Origin of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Field of a header.
    Field {
        /// Header instance.
        header: HeaderId,
        /// Bit offset within the header.
        offset_bits: u32,
    },
    /// Field of the user metadata.
    Metadata,
    /// Local variable of a control or parser, or parameter of an action.
    Local,
    /// Field of v1model's `standard_metadata_t`.
    Standard(StandardField),
    /// Parameter of the request.
    Request,
    /// Parameter of the response.
    Response,
}

/// Supported fields of `standard_metadata_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StandardField {
    /// `bit<9>`: ingress port.
    IngressPort,
    /// `bit<9>`: requested egress port; [`super::DROP_PORT`] drops the packet.
    EgressSpec,
    /// `bit<9>`: actual egress port (egress only).
    EgressPort,
    /// `bit<32>`: length of the received packet, bytes.
    PacketLength,
    /// `bit<48>`: time since the element's start, µs.
    IngressTimestamp,
    /// `bit<16>`: multicast group, 0 for none.
    McastGroup,
    /// `bit<16>`: replica number of a multicast (egress only).
    EgressRid,
    /// `bit<32>`: origin of the packet: 0 received, 1 clone, 4 recirculated, 5 multicast replica.
    InstanceType,
    /// `bit<1>`: set by a failed checksum verification.
    ChecksumError,
    /// `error`, as `bit<16>`: result of the parser; 0 is success.
    ParserError,
}

/// Header instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Path, such as `hdr.ipv4` or `hdr.vlan[1]`.
    pub name: String,
    /// Name of the header type.
    pub type_name: String,
    /// Slots of the fixed-width fields in wire order, without gaps; together whole bytes.
    pub fields: Vec<super::SlotId>,
    /// Largest width of a trailing `varbit<N>` field, bits. Programs can carry the field, but not read it.
    pub varbit_bits_max: Option<u32>,
}

/// Match-action table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Path, such as `pre.nat_out`.
    pub name: String,
    /// Keys.
    pub keys: Vec<TableKey>,
    /// Actions that entries may use.
    pub actions: Vec<ActionId>,
    /// Default action with its arguments.
    pub default: (ActionId, Vec<u128>),
    /// Entries declared in the program.
    pub entries: Vec<super::TableEntry>,
    /// Capacity in entries.
    pub size: u32,
    /// `@mirrored`: servers hold the whole table, the element a part of it (CLIP §IV-C).
    pub mirrored: bool,
    /// `idle_timeout`: time without a match after which an entry is removed, ms.
    pub idle_timeout_ms: Option<u64>,
    /// Source position of the declaration.
    pub at: SourceSpan,
}

/// Key of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableKey {
    /// Key expression.
    pub expr: Expr,
    /// Match kind.
    pub kind: MatchKind,
    /// Source text of the key, or its `@name`.
    pub name: String,
}

/// Match kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// Exact match.
    Exact,
    /// Longest-prefix match; at most one key of a table.
    Lpm,
}

/// Action of tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Path, such as `pre.rewrite`.
    pub name: String,
    /// Slots that receive the entry's action data.
    pub params: Vec<super::SlotId>,
    /// Statements.
    pub body: Block,
}

/// Register array, with the lifetime of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Path.
    pub name: String,
    /// Type of a cell.
    pub ty: Ty,
    /// Number of cells.
    pub size: u32,
    /// `@mirrored`: a cell moves with the mirrored table's entry that names it; servers hold the remaining cells.
    pub mirrored: bool,
}

/// Counter array of packets and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Path.
    pub name: String,
    /// Number of cells.
    pub size: u32,
}
