//! Chain replication (van Renesse and Schneider, OSDI '04): a store of keys and values on several nodes that
//! any but one of them may be lost of.
//!
//! ```text
//! client ── write ─► head ─► … ─► tail ─┐          passed on: each node applies it first
//!    ▲  └── read ────────────────► tail ┤
//!    └──────────────── value ───────────┘          straight from the tail
//! nodes ── renew ─► master ── view ─► nodes, clients
//! ```
//!
//! [`replica`] and [`master`] decide everything and know no network: [`sim`] runs them in a faulty one, and
//! [`linear`] judges what its clients saw; [`serve`] runs them as servers, which
//! [`client`] calls; [`cluster`] is several of them in one process.
//!
//! What is done once is decided here and not below: an update carries its client's number, and the numbers of
//! the last updates are part of what is replicated. A record kept by the node that a call first came to would
//! be lost with just the node whose crash made the client repeat the call.
//!
//! The master is one, and keeps the view in memory (van Renesse and Schneider have it replicated by Paxos);
//! nodes leave, and do not come back.

pub mod client;
pub mod cluster;
pub mod linear;
pub mod master;
pub mod replica;
pub mod serve;
pub mod sim;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("chain");
}
