//! Chain replication (van Renesse and Schneider, OSDI '04): a key-value store on several nodes that survives the loss
//! of all nodes but one.
//!
//! ```text
//! client ── write ─► head ─► … ─► tail ─┐          delegated: each node applies the write first
//!    ▲  └── read ────────────────► tail ┤
//!    └──────────────── value ───────────┘          directly from the tail
//! nodes ── renew ─► master ── view ─► nodes, clients
//! ```
//!
//! [`replica`] and [`master`] are state machines without a network. [`sim`] runs them in a faulty network, and
//! [`linearizability`] checks the histories of its clients. [`serve`] runs them as servers, [`client`] calls the
//! servers, and [`cluster`] is a chain in one process.
//!
//! Duplicates are detected here, not in a lower layer: an update carries its client's number, and the chain replicates
//! the numbers of the last updates. A record at the node that received a call first would be lost with that node,
//! exactly when its crash makes the client repeat the call.
//!
//! There is one master, which keeps the view in memory (van Renesse and Schneider replicate it by Paxos). Nodes that
//! have left do not come back.

pub mod client;
pub mod cluster;
pub mod linearizability;
pub mod master;
pub mod replica;
pub mod serve;
pub mod sim;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("chain");
}
