//! A social network on several servers, and the interactive short queries IS1–IS7 of the LDBC Social Network
//! Benchmark over it (DPC §6.4).
//!
//! ```text
//! world ─► part, part, part …          the network, made from a seed; each server's part
//! query ─► walk: server ─► server ─►   a call passed on; or a hub that asks one server after the other
//!       └► direct                      or computed from the whole network: what the others are held against
//! ```

pub mod direct;
pub mod part;
pub mod query;
pub mod walk;
pub mod world;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("graph");
}
