//! Social network on several servers, with the interactive short queries IS1–IS7 of the LDBC Social Network Benchmark
//! (DPC §6.4).
//!
//! ```text
//! network ─► part, part, part …        generated from a seed; one part per server
//! query ─► walk: server ─► server ─►   delegated call; or a hub that calls one server after the other
//!       └► direct                      reference answer, computed from the whole network
//! ```

pub mod direct;
pub mod network;
pub mod part;
pub mod query;
pub mod walk;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("graph");
}
