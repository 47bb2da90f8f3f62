//! A key-value service in front of a store, answered by any of several servers.
//!
//! ```text
//! Client ─ Get, Scan ─▶ pathcall: the element clones, or the shorter queue ─▶ KvService ─▶ its Store
//!        └────────────▶ plain gRPC: a server at random ───────────────────▶ the same
//! ```
//!
//! [`objects`] says what is stored, [`store`] where, [`service`] answers, [`cluster`] has servers and clients of either kind, [`load`] reads as the paper's clients do, [`picture`] draws what
//! they saw.

pub mod cluster;
pub mod load;
pub mod objects;
pub mod picture;
pub mod service;
pub mod store;

/// Stubs, and what their methods ask of their path.
pub mod pb {
    #![allow(clippy::doc_markdown, missing_docs)]
    pathcall::include_proto!("kv");
}

pub use cluster::{Client, Cluster};
pub use load::{Kind, Mix};
pub use service::{KvService, Waits};
pub use store::Store;
