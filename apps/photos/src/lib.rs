//! A photo service on three servers, whose methods use map, clone, delegate and place between them: one `.proto`, one
//! service, tonic's own stubs.
//!
//! ```text
//! Like, Count ──── map ──────► the element adds up; the front owns the sums
//! Get ──────────── clone ────► front, index or archive: two of them, if two are idle
//! Thumbnail ────── clone ────► one of them ── place ──► its processor, or its accelerator
//! Find ─────────── delegate ─► front ─► index ─► archive ── place ──► … ─► the caller
//! ```
//!
//! [`album`] is what there is to see and what each answer has to be; [`service`] answers calls of tonic's, [`hops`]
//! those that are passed on; [`server`] puts a server together; [`load`] calls, and checks each answer; [`told`] is what
//! came of it.

pub mod album;
pub mod hops;
pub mod load;
pub mod server;
pub mod service;
pub mod told;

/// Generated: messages, stubs and what the methods ask of their path.
#[allow(missing_docs, reason = "tonic writes them")]
pub mod pb {
    pathcall::include_proto!("photos");
}
