//! Photo service on three servers, whose methods use map, clone, delegate and place: one `.proto`, one service, tonic's
//! own stubs.
//!
//! ```text
//! Like, Count ──── map ──────► the element adds up; the front owns the sums
//! Get ──────────── clone ────► front, index or archive: two of them, if two are idle
//! Thumbnail ────── clone ────► one of them ── place ──► its processor, or its accelerator
//! Find ─────────── delegate ─► front ─► index ─► archive ── place ──► … ─► the caller
//! ```
//!
//! [`album`] has the photos and the expected answers; [`service`] handles calls of tonic, [`hops`] delegated calls;
//! [`server`] assembles a server; [`load`] makes calls and checks each answer; [`report`] has the results.

pub mod album;
pub mod hops;
pub mod load;
pub mod report;
pub mod server;
pub mod service;

/// Generated messages, stubs and manifest.
#[allow(missing_docs, reason = "tonic writes them")]
pub mod pb {
    pathcall::include_proto!("photos");
}
