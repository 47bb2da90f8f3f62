//! NetFilters (NetRPC §4, Fig. 3): what a user writes beside a `.proto`.
//!
//! ```text
//! { // agtr.nf
//!   "AppName": "DT-1",               // who shares the map
//!   "Precision": 8,                  // digits after the point that floating-point values keep
//!   "get": "AgtrGrad.tensor",        // the reply's field that is read from the map, or "nop"
//!   "addTo": "NewGrad.tensor",       // the request's field that is added to the map, or "nop"
//!   "clear": "copy",                 // empty what was read, or "nop"
//!   "modify": "nop",                 // or {"op": "MAX", "para": 0}: done to each value before
//!   "CntFwd": {"to": "ALL", "threshold": 2, "key": "ClientID"},
//!   "ack": "element",                // or "server": who must have what addTo adds before the call is done
//! }
//! ```
//!
//! [`parse`] takes the text to [`NetFilter`]s, each value with its place, and looks at nothing but
//! the text: whether the fields exist and the primitives fit together is decided in
//! [`crate::resolve`], which has the messages at hand. The text is JSON with comments and trailing
//! commas; a file holds one object, several one after the other, or an array of them.

use pathcall_proto::manifest::{Ack, Modify, Target};

use crate::diagnostic::{Diagnostic, Source, Span, Spanned};

mod read;
#[cfg(test)]
mod schema_tests;
mod words;

/// The JSON Schema of one filter, for editors; tested to agree with [`parse`].
pub const SCHEMA: &str = include_str!("../../proto/pathcall/netfilter.schema.json");

/// `Precision` at most: decimal digits that a double holds.
pub const PRECISION_MAX: u8 = 15;

/// One filter as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetFilter {
    /// The whole object.
    pub span: Span,
    /// `AppName`: methods with the same name work on the same map. Not empty.
    pub app_name: Spanned<String>,
    /// `Precision`: 0..=[`PRECISION_MAX`]; 0 unless given.
    pub precision: Spanned<u8>,
    /// `get`: the reply's field that `Map.get` fills in, as `Message.field`; none is `"nop"`.
    pub get: Spanned<Option<String>>,
    /// `addTo`: the request's field that `Map.addTo` adds; none is `"nop"`.
    pub add_to: Spanned<Option<String>>,
    /// `clear`: whether and how the map is emptied.
    pub clear: Spanned<ClearPolicy>,
    /// `modify`: what `Stream.modify` does to each value.
    pub modify: Spanned<Modify>,
    /// `CntFwd`: when the call is answered, and to whom.
    pub cnt_fwd: CntFwd,
    /// `ack`: who must have what is added before the call completes; `element` unless given.
    pub ack: Spanned<Ack>,
}

/// `CntFwd`: `cnt[key]++; if cnt[key] == threshold then forward(to) else drop` (NetRPC Table 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CntFwd {
    /// Whom the answer goes to; `SRC` unless given.
    pub to: Spanned<Target>,
    /// How many it takes; 0, which counts nothing, unless given.
    pub threshold: Spanned<u32>,
    /// What is counted; `NULL` unless given.
    pub key: Spanned<Key>,
}

/// `clear` (NetRPC §5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClearPolicy {
    /// Nothing is cleared.
    Nop,
    /// The server keeps a copy of what is cleared.
    Copy,
    /// Sums stay in the element until two later ones were made there.
    Shadow,
}

/// `CntFwd.key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// `"NULL"`: nothing is counted.
    Null,
    /// `"ClientID"`: callers are.
    ClientId,
    /// `"Message.field"`: each key of this field is.
    Field(String),
}

/// Reads the filters of a text.
///
/// # Errors
/// Everything that is wrong with the text, in its order; complaints call it `<filter>`.
pub fn parse(text: &str) -> Result<Vec<NetFilter>, Vec<Diagnostic>> {
    parse_source(&Source::new("<filter>", text))
}

/// Reads the filters of a text that has a name.
///
/// # Errors
/// Everything that is wrong with the text, in its order.
pub fn parse_source(source: &Source) -> Result<Vec<NetFilter>, Vec<Diagnostic>> {
    read::filters(source)
}
