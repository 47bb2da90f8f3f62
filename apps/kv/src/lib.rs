//! Key-value service in front of a store, with several equivalent servers.
//!
//! ```text
//! Client ─ Get, Scan ─▶ pathcall: the element clones, or the shorter queue ─▶ KvService ─▶ its Store
//!        └────────────▶ plain gRPC: a server at random, perhaps hedged ──▶ the same
//! ```
//!
//! [`objects`] defines the stored objects, [`store`] keeps them, [`service`] answers calls, [`cluster`] has servers and
//! clients of both kinds, [`plain`] the clients without Pathcall, [`load`] generates the paper's workload, [`picture`] draws latencies.

pub mod cluster;
pub mod load;
pub mod objects;
pub mod picture;
pub mod plain;
pub mod service;
pub mod store;

/// Generated stubs and manifest.
pub mod pb {
    #![allow(clippy::doc_markdown, missing_docs)]
    pathcall::include_proto!("kv");
}

pub use cluster::{Client, Cluster};
pub use load::{Kind, ReadMix};
pub use service::{KvService, Waits};
pub use store::Store;
