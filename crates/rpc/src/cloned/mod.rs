//! Encodings of cloned calls (NetClone), for caller and server.
//!
//! ```text
//! stub ─► channel ─┬─ encoded request ═ frames ═ element ═► queue of a server ─► layer's services
//!                  │◄─ encoded reply ═══ frames ═ element ══ status, metadata, message
//!                  └─ too long, or peer without Pathcall ──► gRPC
//! ```
//!
//! [`request`] and [`reply`] are the encodings, [`table`] converts a controller's pool table.

pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod table;
