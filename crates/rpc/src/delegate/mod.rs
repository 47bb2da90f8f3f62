//! Calls that servers pass on to other servers, behind ordinary streaming stubs (DPC ch. 3).
//!
//! ```text
//! stub ─► Channel ── request ──► handler ── delegate::<M>(target, request) ──► handler …
//!   ▲                              │ reply                                       │ reply
//!   └──── the channel's node ◄─────┴─────────────────────────────────────────────┘
//! ```
//!
//! A method with the option `(pathcall.delegate)` has a [handler](Handlers::handle) in place of tonic's. A handler
//! sends any number of replies, passes any number of requests on to other servers, and returns. `Ok` means that its
//! part is done. With an error or a panic the caller's stream ends with that status, and all servers that still work on
//! the call stop. The stream ends with OK when all parts are done, on all servers, and all their replies have arrived.
//!
//! [`Handlers`] builds the handlers of a server, which work on a [`DelegatedCall`]. [`Directory`] finds servers by name
//! and by key. A stub's call goes through the channel's node; [`Client`] makes calls with several first requests.
//! [`PendingTrace`] and [`TraceSink`] give the trace of a call.
//!
//! A caller without Pathcall gets the same replies from the [server's layer](crate::Layer), which makes the delegated
//! call on the caller's behalf.
//!
//! Private modules: `attempts` plans the attempts of a call, `dns` resolves a directory's hosts, `encoded` adds handlers and
//! calls of encoded messages, `envelope` encodes requests and `failure` statuses, `handler_slot` limits the running
//! handlers, `ongoing_call` follows a call to its end, `registry` keeps a copy of the controller's directory, `respond`
//! makes a stub's response of a call, `server_states` shares loads and failures.

pub(crate) mod attempts;
pub(crate) mod call;
mod client;
pub mod directory;
mod dns;
mod encoded;
pub(crate) mod envelope;
mod failure;
mod guard;
mod handler_slot;
pub(crate) mod handlers;
pub(crate) mod ongoing_call;
#[cfg(feature = "otel")]
pub mod otel;
mod registry;
pub(crate) mod respond;
mod running_handlers;
mod server_states;
mod target;
pub(crate) mod trace;

pub use call::{DelegatedCall, SealedRequest};
pub use client::{CallBuilder, Client, Replies};
pub use directory::{Directory, NodeTarget};
pub use encoded::{EncodedMessage, EncodedMethod};
pub use handlers::{Handlers, HandlersError};
pub use ongoing_call::RETRY_TIMEOUT;
pub use pathcall_driver::node::{Node, NodeConfig, NodeStats, RecordHistory, Transport};
#[cfg(feature = "quic")]
pub use pathcall_driver::streams::quic::Tls;
pub use pathcall_endpoint::delegate::caller::trace::{CallSpan, CallTree};
pub use pathcall_endpoint::delegate::caller::{CallFailure, CallOptions};
pub use pathcall_endpoint::delegate::worker::RequestOrder;
pub use pathcall_endpoint::delegate::worker::record::{InvalidRecord, RequestRecord};
pub use pathcall_endpoint::delegate::{ContextId, RequestId};
pub use pathcall_proto::delegate::RpcMethod;
pub use pathcall_wire::TokenKey;
pub use running_handlers::RunningHandlers;
pub use trace::{CallTrace, PendingTrace, TraceSink};
