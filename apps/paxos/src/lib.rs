//! Replicated log by Paxos, with votes that the network counts (NetRPC §6.3).
//!
//! ```text
//! client ─ Execute ─► leader ─ Accept ─► acceptors, each with a log on disk
//!                                           ║ votes
//!                        element, which counts them, or every learner counts
//!                                           ║ a majority
//!                     learners: apply the value; the leader answers the client
//! ```
//!
//! [`consensus`] is the protocol without I/O, [`store`] the replicated application, [`disk`] the log on disk,
//! [`convert`] has the messages of the wire, [`driver`] runs a replica, [`votes`] the server of the votes,
//! and [`load`] is a client that measures.

pub mod consensus;
pub mod convert;
pub mod disk;
pub mod driver;
pub mod load;
pub mod store;
pub mod votes;

/// Generated stubs and manifest.
pub mod pb {
    #![allow(clippy::doc_markdown, missing_docs)]
    pathcall::include_proto!("paxos");
}
