//! Endpoints of Pathcall as state machines: the ends of a call in the processes of callers and servers.
//!
//! Modules, in the order in which a call passes them: [`map`], [`mod@clone`] and [`delegate`] convert calls to frames
//! or messages, and frames or messages to answers. [`flow`] sends each frame reliably within a window; [`messages`]
//! carries long messages over flows. `token` signs and checks frames of applications with a key. No module has I/O or
//! reads a clock, so the simulator and the fuzzers run the same code. `pathcall-driver` moves frames between the state
//! machines and UDP, shared memory, TCP or QUIC.

#![warn(missing_docs)]

pub mod clone;
pub mod delegate;
pub mod flow;
pub mod map;
pub mod messages;
pub mod tables;
mod token;
