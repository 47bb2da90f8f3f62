//! The gRPC face of Pathcall.

mod application;
mod assemble;
pub mod channel;
mod deadline;
mod headers;
pub mod message;
mod request;
pub mod server;
mod status;

pub use application::Disagreement;
pub use channel::Channel;
pub use server::Server;
