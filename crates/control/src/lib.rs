//! Controller: registers all parties and assigns the elements' memory (NetRPC §3.2, §5.2.2).
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
//! Servers register their applications: an AppName gets a GAID, an epoch and, first come, first served, a part of an
//! element's memory. Servers also register the callers that they admit, which get endpoint ids and slots of the
//! element's repeat filter. The controller pushes all this to the elements, and notifies servers of changes.
//!
//! Modules in the order in which data passes them: [`serve`] listens; `service` receives calls; `engine` drives the
//! [`state`], which makes all decisions; the [`store`] keeps it over restarts; `link` pushes it to one element.
//! [`nodes`] is the directory of nodes for delegated calls.

#![warn(missing_docs)]

mod engine;
mod error;
mod link;
pub mod nodes;
mod serve;
mod service;
pub mod state;
pub mod store;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use error::Error;
pub use pathcall_auth::Security;
pub use serve::{Config, Handle, KEEP_ALIVE, bind, serve};
pub use state::{LeaseTiming, MemoryPolicy};
pub use store::StoreLocation;

/// TCP port of the controller.
pub const CONTROLLER_PORT: u16 = 7700;
/// Default address of the controller.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), CONTROLLER_PORT);
