//! Tests of delegated calls: through stubs, through clients, traced, exactly once, and at their limits.

mod calls;
pub(crate) mod cluster;
mod exactly_once;
mod limits;
mod overload;
mod process;
mod several_requests;
mod traces;
