//! Models of delegated and plain calls on hosts that process one message after the other.
//!
//! ```text
//! shapes: trees of requests ─┬─► cost: one call: messages, bytes, time
//!                            └─► load: many calls at once: latency over load
//! hops on lossy links ─────────► lossy: latency of calls
//! ```
//!
//! The baseline is [`baseline`]: plain calls on the same transport.

pub mod baseline;
pub mod cost;
mod hosts;
pub mod load;
pub mod lossy;
pub mod shapes;
