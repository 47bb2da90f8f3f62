//! The contracts that are written in protobuf: [`v1`] is how controller, elements, servers and
//! callers register and find each other. [`manifest`] is what `pathcall-build` generates from a
//! user's `.proto` files and their filters, and [`types`] are the typed fields in its messages.

pub mod manifest;
pub mod types;

/// Generated from `proto/pathcall/control.proto`.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("pathcall.v1");
}
