//! Calls that a pool of servers answers (NetClone): what both ends have in common.
//!
//! ```text
//! stub ─► channel ─┬─ request, sealed ═ frames ═ element ═► a server's queue ─► layer's services
//!                  │◄─ reply, sealed ═══ frames ═ element ══ status, metadata, message
//!                  └─ too long, or nobody speaks Pathcall ──► gRPC
//! ```
//!
//! [`request`] and [`reply`] are how they travel, [`table`] reads what a controller says of a pool.

pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod table;
