//! The gRPC face of Pathcall: what goes under a client's stubs and around a server's services.
//!
//! ```text
//! client                                     server
//! stub ─► channel ─┬─ gRPC ─────────────────► layer ─► handler
//!                  │    Join, rest of a call, query │
//!                  └─ endpoint ═ map frames ═ element ═ endpoint
//! ```
//!
//! A method without an option is plain gRPC throughout. Of one with a filter, the typed field leaves
//! the message and travels as map frames (NetRPC §4), the rest follows as a gRPC call of the same
//! method if the handler has to see it, and the reply is put together from both.
//!
//! In the order that a call meets them: [`Channel`] ([`channel`]) takes it from the stub;
//! [`message`] cuts the typed field out of the encoded bytes; [`Server`] ([`server`]) lets callers
//! join and passes the rest on; `assemble` puts the reply together. Methods that servers may pass on are
//! [`delegate`]'s, those that a pool of servers answers are `cloned`'s. `application` groups methods by
//! `AppName`, `deadline` and `awake` watch the time, `names` numbers keys that are too long for a frame, `status` words the
//! failures.

//! Functions that connect, start or serve return boxed futures: the body of an `async fn` is compiled once more in each
//! program that awaits it.

#![warn(missing_docs)]

mod application;
mod assemble;
mod awake;
pub mod channel;
mod cloned;
mod deadline;
pub mod delegate;
mod headers;
mod key;
pub mod message;
mod names;
mod request;
pub mod server;
mod status;

pub use application::Disagreement;
pub use channel::Channel;
pub use headers::{CALL_ID, ROLE};
pub use names::{KEY_BYTES_MAX, LONG_KEYS_BYTES_MAX};
pub use server::Server;
