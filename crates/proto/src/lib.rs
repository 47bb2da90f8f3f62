//! The contracts that are written in protobuf: [`v1`] is how controller, elements, servers and
//! callers register and find each other. [`manifest`] is what `pathcall-build` generates from a
//! user's `.proto` files and their filters.

pub mod manifest;

/// Generated from `proto/pathcall/control.proto`.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("pathcall.v1");
}
