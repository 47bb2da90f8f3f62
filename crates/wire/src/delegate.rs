//! Messages of *delegate*: what callers and servers of a call that is passed on say to each other (DPC ch. 4).
//!
//! ```text
//! request   head 14 │ request 25 │ reply address 6/18 │ sender 6, in a chain │ manifest, if any │ payload
//! response  head 14 │ id 13 │ manifest, if any │ payload
//! manifest  29, and the address of who sent it 6/18
//! ```
//!
//! A message is given whole by the transport below, at most once (§4.6): over our flows, TCP or QUIC. [`ids`]
//! names calls, requests and responses; [`parts`] has the fixed sections; [`message`] is what they are
//! put together to, [`encode`] writes it.
//! Every section's length is known from the flags alone, whatever the fan-out; a request is at most 64 bytes
//! longer than that of a plain remote call ([`parts::Twin`]) between IPv4 addresses, where the thesis has
//! about 100 (§6.5). Each of the two addresses takes 12 bytes more when it is of IPv6.

pub mod address;
pub mod encode;
pub mod ids;
pub mod message;
pub mod parts;

pub use address::Addresses;
pub use encode::{Encoded, list};
pub use ids::{Branch, Context, NodeId, RequestId, U24};
pub use message::{
    Fault, Grant, Ids, Manifest, Message, Ping, Pong, Request, Response, Subject, TraceSpan, add_wait, parse,
};
pub use parts::{Flags, Kind, Twin, TwinRepr};

/// First byte of every message: delegate, version 1.
pub const MAGIC: u8 = 0xd1;
/// Addresses in one pong at most; a caller asks for the next ones by another ping.
pub const PAGE: usize = 128;
/// The longest head of a message, in bytes: that of a pong with a full page aside.
pub const HEAD_MAX: usize = 128;
