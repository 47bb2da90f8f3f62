//! Messages of *delegate* between callers and servers of a delegated call (DPC ch. 4).
//!
//! ```text
//! request   head 14 │ request 25 │ reply address 6/18 │ sender 6, in a chain │ manifest, if any │ payload
//! response  head 14 │ id 13 │ manifest, if any │ payload
//! manifest  29 │ address of its server 6/18
//! load      head 14 │ load 4
//! shards    head 14 │ port 2, of each shard
//! ```
//!
//! The transport (flows over UDP, TCP or QUIC) delivers each message whole and at most once (§4.6). [`ids`] has the ids
//! of calls, requests and responses, [`parts`] the fixed sections, [`message`] the parser, [`encode`] the encoder.
//!
//! The flags alone determine the length of each section, for any fan-out. A request is at most 64 bytes longer than
//! the request of a plain remote call ([`parts::PlainRequest`]) between IPv4 addresses; the thesis has about 100
//! (§6.5). Each of the two addresses needs 12 bytes more for IPv6.

pub mod address;
pub mod encode;
pub mod ids;
pub mod message;
pub mod parts;

pub use address::PongAddresses;
pub use encode::{Encoded, list};
pub use ids::{Branch, ContextId, NodeId, RequestId, U24};
pub use message::{
    DelegateMessage, DelegateRequest, DelegateResponse, LoadReport, Ping, PingSubject, Pong, RequestFailure,
    RequestManifest, ResponseGrant, ResponseId, ShardPorts, TraceSpan, add_wait, call_of, parse,
};
pub use parts::{DelegateFlags, DelegateKind, PlainRequest, PlainRequestRepr};

/// First byte of each message: delegate, version 1.
pub const MAGIC: u8 = 0xd1;
/// Maximum number of addresses in one pong. The caller requests further addresses with another ping.
pub const PAGE: usize = 128;
/// Maximum number of shards of a node.
pub const SHARDS_MAX: usize = 64;
/// Maximum length of a message head in bytes, without the addresses of a pong.
pub const HEAD_MAX: usize = 128;
