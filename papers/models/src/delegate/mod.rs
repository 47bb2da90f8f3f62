//! Delegated calls beside plain ones, on hosts that work on one message after the other.
//!
//! ```text
//! shapes: trees of requests ─┬─► cost: one call: messages, bytes, time
//!                            └─► load: many calls at once: latency over load
//! hops on links that lose ─────► lossy: how long calls take
//! ```
//!
//! What delegated calls are compared with is [`twin`]: plain calls on the same transport.

pub mod cost;
mod hosts;
pub mod load;
pub mod lossy;
pub mod shapes;
pub mod twin;
