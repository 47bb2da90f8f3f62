//! The controller: who takes part, and what of which element belongs to whom (NetRPC §3.2, §5.2.2).
//!
//! ```text
//!   servers   ── RegisterApplication ─▶┌─────────┐
//!              ◀─ grants ──────────────│         │── changes ─▶ store
//!             ── RegisterEndpoint ────▶│ service │
//!   elements  ── RegisterElement ─────▶│ engine  │── Install, SetEndpoints, … ─▶ elements
//!   operators ── Lookup, Status ──────▶│ state   │
//!                                      └─────────┘
//! ```
//!
//! Servers register their applications: an AppName gets its GAID, an epoch and, first come, first
//! served, a piece of an element's memory. They also register the callers they let in, which get
//! endpoint ids and slots of the element's repeat filter. The controller pushes all that to the
//! elements, and tells servers when it changes.
//!
//! In the order data meets them: [`serve`] listens; `service` takes calls; `engine` drives the
//! [`state`], which decides everything; the [`store`] keeps it across restarts; `link` pushes it to
//! one element. [`nodes`] is the directory of those that calls are passed on to.

#![warn(missing_docs)]

mod engine;
mod error;
mod link;
pub mod nodes;
mod serve;
mod service;
pub mod state;
pub mod store;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use error::Error;
pub use pathcall_auth::Security;
pub use serve::{Config, Handle, KEEP_ALIVE, bind, serve};
pub use state::Timing;
pub use store::Place;

/// TCP port of the controller.
pub const CONTROLLER_PORT: u16 = 7700;
/// Where the controller listens if not told otherwise.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), CONTROLLER_PORT);
