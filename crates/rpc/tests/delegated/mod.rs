//! Tests of delegated calls: through stubs, through clients, unary, to services with replicas, traced, exactly
//! once, and at their limits.

mod calls;
pub(crate) mod cluster;
mod encoded;
mod exactly_once;
mod grpcio;
mod limits;
mod overload;
mod process;
mod replicas;
mod several_requests;
mod shards;
mod traces;
mod unary;
