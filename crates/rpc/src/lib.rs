//! The gRPC face of Pathcall.

pub mod message;
