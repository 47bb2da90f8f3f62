//! The gRPC face of Pathcall.

mod application;
mod assemble;
pub mod channel;
mod deadline;
mod headers;
pub mod message;
mod request;
mod status;

pub use application::Disagreement;
pub use channel::Channel;
