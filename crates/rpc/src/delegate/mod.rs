//! Calls that servers pass on, behind ordinary streaming stubs (DPC ch. 3).
//!
//! ```text
//! stub ─► Channel ── request ──► handler ── delegate::<M>(target, request) ──► handler …
//!   ▲                              │ reply                                       │ reply
//!   └──── the channel's node ◄─────┴─────────────────────────────────────────────┘
//! ```
//!
//! A method with the option `(pathcall.delegate)` has a [handler](Handlers::handle) in place of tonic's. It
//! replies any number of times, passes requests on to other servers any number of times, and returns: with
//! `Ok`, its part is done; with an error, or when it panics, the caller's stream ends with that, and all who
//! still work on the call stop. The stream ends well when all parts are done, wherever they were, and all
//! their replies have come.
//!
//! `envelope` is how a request travels; [`directory`] finds servers by name and by key, `registry` keeps it
//! as a controller has it; `handlers` runs handlers, which have a `call`; `respond` makes a stub's stream of a
//! call, which is `ongoing` until it ends; `client` begins calls with several requests; `trace` says who did what.
//! Who calls such a method without Pathcall gets the same from the [server's layer](crate::server::ServerLayer),
//! which calls on its behalf.

pub(crate) mod call;
mod client;
pub mod directory;
pub(crate) mod envelope;
mod guard;
pub(crate) mod handlers;
pub(crate) mod ongoing;
#[cfg(feature = "otel")]
pub mod otel;
mod registry;
pub(crate) mod respond;
pub(crate) mod trace;

pub use call::{Call, Sealed};
pub use client::{Begin, Client, Replies};
pub use directory::{Directory, Target};
pub use handlers::{Handlers, Serving, StartError};
pub use ongoing::PATIENCE;
pub use pathcall_endpoint::delegate::caller::CallOptions;
pub use pathcall_endpoint::delegate::caller::trace::{Span, Tree};
pub use pathcall_endpoint::delegate::worker::Order;
pub use pathcall_endpoint::delegate::worker::record::{NoRecord, Record};
pub use pathcall_endpoint::delegate::{Context, RequestId};
pub use pathcall_endpoint::driver::node::{History, Node, NodeConfig, NodeStats, Transport};
#[cfg(feature = "quic")]
pub use pathcall_endpoint::driver::streams::quic::Tls;
pub use pathcall_proto::delegate::Method;
pub use pathcall_wire::TokenKey;
pub use trace::{Trace, Traced, Traces};
