//! Chord (Stoica et al., SIGCOMM '01) by calls that are passed on (DPC Fig. 3.2): a look-up goes from node to
//! node, and the owner of the key replies straight to the caller.
//!
//! ```text
//! caller ── Find(key) ─► node ─► a finger of it ─► … ─► the owner
//!    ▲                                                    │
//!    └───────────────────── Owner ────────────────────────┘
//! ```
//!
//! [`ring`] has places and finger tables; [`find`] nodes and callers. Finger tables are computed from the list
//! of members. That members join, leave and fail while others look up (Chord's stabilization) is left out.

pub mod find;
pub mod ring;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("chord");
}
