//! gRPC side of Pathcall: the channel under a client's stubs and the layer around a server's services.
//!
//! ```text
//! client                                     server
//! stub ─► channel ─┬─ gRPC ─────────────────► layer ─► handler
//!                  │    Join, rest of a call, query │
//!                  └─ endpoint ═ map frames ═ element ═ endpoint
//! ```
//!
//! A method without a Pathcall option is plain gRPC. If a method has a filter, its typed field leaves the message and
//! travels as map frames (NetRPC §4). If the handler has to run, the rest follows as a gRPC call of the same method.
//! The reply combines both.
//!
//! Modules in the order in which a call passes them: [`channel`] takes the call from the stub ([`Channel`]);
//! [`message`] cuts the typed field out of the encoded message; [`mod@layer`] ([`Layer`]) admits callers and passes the
//! rest on; `assemble` builds the reply. [`delegate`] has delegated calls and `cloned` cloned calls. `application`
//! groups methods by `AppName`; `deadline` and `process_timeout` handle time; `key_numbers` replaces keys that are too
//! long for a frame by numbers; `status` has the gRPC statuses of failures.
//!
//! Functions that connect, start or serve return boxed futures: otherwise each program that awaits them would compile
//! their bodies again.

#![warn(missing_docs)]

mod application;
mod assemble;
pub mod channel;
mod cloned;
mod deadline;
pub mod delegate;
mod headers;
mod key_numbers;
pub mod layer;
pub mod message;
#[cfg(feature = "otel")]
mod metrics;
mod process_timeout;
mod request;
mod status;
mod streams;
mod token_key;

pub use application::FilterConflict;
pub use channel::Channel;
pub use headers::{CALL_ID, COST, PUSHBACK, ROLE};
pub use key_numbers::{KEY_BYTES_MAX, LONG_KEYS_BYTES_MAX};
pub use layer::{Layer, OwnerStore};
