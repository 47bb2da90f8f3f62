//! Chord (Stoica et al., SIGCOMM '01) with delegated calls (DPC Fig. 3.2): a look-up travels from node to node, and the
//! owner of the key replies directly to the caller.
//!
//! ```text
//! caller ── Find(key) ─► node ─► one of its fingers ─► … ─► owner
//!    ▲                                                        │
//!    └───────────────────────── Owner ────────────────────────┘
//! ```
//!
//! [`ring`] has ring positions and finger tables; [`find`] has nodes and clients. Finger tables are computed from the
//! list of members. Chord's stabilization (members that join, leave or fail during look-ups) is not implemented.

pub mod find;
pub mod ring;

/// Messages and methods.
pub mod pb {
    pathcall::include_proto!("chord");
}
