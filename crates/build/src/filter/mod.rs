//! NetFilters (NetRPC §4, Fig. 3): JSON files beside a `.proto`.
//!
//! ```text
//! { // agtr.nf
//!   "AppName": "DT-1",               // name of the shared map
//!   "Precision": 8,                  // decimal digits of floating-point values
//!   "get": "AgtrGrad.tensor",        // field of the reply, read from the map; or "nop"
//!   "addTo": "NewGrad.tensor",       // field of the request, added to the map; or "nop"
//!   "clear": "copy",                 // reset the values; or "nop"
//!   "modify": "nop",                 // or {"op": "MAX", "para": 0}, applied to each value first
//!   "CntFwd": {"to": "ALL", "threshold": 2, "key": "ClientID"},
//!   "ack": "element",                // or "server": must have the addition before the call completes
//!   "path": "automatic",             // or "element", "software", "direct": by which calls go
//!   "lanes": "int32",                // or "int16", "int8": size of a sum's values, with shared scales
//!   "topk": 0.01,                    // share of a sum's values that travel in a call; all, if absent
//!   "read": "linearizable"           // or "recent": what the answer to a query contains
//! }
//! ```
//!
//! [`parse`] converts the text into [`NetFilter`]s, each value with its position. It checks the text only:
//! [`crate::resolve`], which has the messages, checks whether the fields exist and the primitives fit together. The
//! text is JSON with comments and trailing commas; a file has one object, several in sequence, or an array of objects.

use pathcall_proto::manifest::{Ack, ForwardTarget, LaneFormat, MapPath, Modify, ReadMode};

use crate::diagnostic::{BuildDiagnostic, Positioned, SourceText, TextRange};

mod keywords;
mod read;
#[cfg(test)]
mod schema_tests;

/// JSON Schema of a filter, for editors; a test checks that it agrees with [`parse`].
pub const SCHEMA: &str = include_str!("../../proto/pathcall/netfilter.schema.json");

/// Limit of `Precision`: decimal digits that a double holds.
pub const PRECISION_MAX: u8 = 15;

/// Parsed filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetFilter {
    /// Range of the whole object.
    pub span: TextRange,
    /// `AppName`: methods with the same name share a map. Not empty.
    pub app_name: Positioned<String>,
    /// `Precision`: 0..=[`PRECISION_MAX`]. Default: 0.
    pub precision: Positioned<u8>,
    /// `get`: field of the reply that `Map.get` fills in, as `Message.field`; `None` for `"nop"`.
    pub get: Positioned<Option<String>>,
    /// `addTo`: field of the request that `Map.addTo` adds; `None` for `"nop"`.
    pub add_to: Positioned<Option<String>>,
    /// `clear`: policy by which the map is reset.
    pub clear: Positioned<ClearOption>,
    /// `modify`: operator that `Stream.modify` applies to each value.
    pub modify: Positioned<Modify>,
    /// `CntFwd`: condition and recipient of the answer.
    pub cnt_fwd: CntFwd,
    /// `ack`: party that must have an addition before the call completes. Default: `element`.
    pub ack: Positioned<Ack>,
    /// `path`: path of the calls. Default: `automatic`.
    pub path: Positioned<MapPath>,
    /// `lanes`: size of a sum's values. Default: `int32`.
    pub lanes: Positioned<LaneFormat>,
    /// `topk`: share of a sum's values that travel in a call, in millionths; 0 by default: all values.
    pub topk: Positioned<u32>,
    /// `read`: what the answer to a query contains. Default: `linearizable`.
    pub read: Positioned<ReadMode>,
}

/// `CntFwd`: `cnt[key]++; if cnt[key] == threshold then forward(to) else drop` (NetRPC Table 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CntFwd {
    /// Recipient of the answer. Default: `SRC`.
    pub to: Positioned<ForwardTarget>,
    /// Count at which the call is answered. Default: 0, without counting.
    pub threshold: Positioned<u32>,
    /// Counted keys. Default: `NULL`.
    pub key: Positioned<CountedKey>,
}

/// `clear` (NetRPC §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClearOption {
    /// No reset.
    Nop,
    /// The server copies the values before they are reset.
    Copy,
    /// The element keeps a sum until it has made two later ones.
    Shadow,
    /// The element keeps a sum until the next one begins.
    Lazy,
}

/// `CntFwd.key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CountedKey {
    /// `"NULL"`: no count.
    Null,
    /// `"ClientID"`: counts callers.
    ClientId,
    /// `"Message.field"`: counts each key of this field.
    Field(String),
}

/// Parses the filters of a text.
///
/// # Errors
/// Returns all errors of the text in order, under the file name `<filter>`.
pub fn parse(text: &str) -> Result<Vec<NetFilter>, Vec<BuildDiagnostic>> {
    parse_source(&SourceText::new("<filter>", text))
}

/// Parses the filters of a named text.
///
/// # Errors
/// Returns all errors of the text in order.
pub fn parse_source(source: &SourceText) -> Result<Vec<NetFilter>, Vec<BuildDiagnostic>> {
    read::filters(source)
}
